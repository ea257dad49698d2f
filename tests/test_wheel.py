# SPDX-License-Identifier: MIT
"""The wheel holds all that the commands need: installed elsewhere, it lists, judges and starts one's own problem."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CASE = "m=64,n=64,k=128"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of commands of an environment that has the wheel, and the packages of this one."""
    pytest.importorskip("hatchling", reason="the wheel is built by hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
             "--disable-pip-version-check", "-w", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    (site / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python"), "install", "-q",
               "--no-deps", "--no-index", "--disable-pip-version-check", "--force-reinstall", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def call(installed: Path, work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(installed / "venv" / "bin" / "warpwave"), *arguments], cwd=work, capture_output=True, text=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(work)}, check=False)


def test_the_wheel_has_the_data_and_nothing_that_was_made(installed):
    (wheel,) = installed.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("warpwave/problems/fp8_gemm/task.yml", "warpwave/kernels/common/launch.h", "scoring/py.typed",
                 "warpwave/benchmarks/peers/fp8_gemm/deepgemm.py", "warpwave/submissions/eval.py"):
        assert name in names
    assert not [name for name in names if "__pycache__" in name or name.endswith("submission.py")]
    assert {name.split("/")[0] for name in names if not name.startswith("warpwave-")} == {
        "backends", "scoring", "submissions", "warpwave"}


@pytest.mark.toolchain("cpu")
def test_an_installed_command_judges_and_starts_a_problem(installed, tmp_path):
    done = call(installed, tmp_path, "list", "--problem", "fp8_gemm")
    assert (done.returncode, "mfma" in done.stdout) == (0, True), done.stderr
    run = ("run", "--backend", "cpu", "--mode", "test")
    done = call(installed, tmp_path, *run, "--problem", "fp8_gemm", "--case", CASE)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    done = call(installed, tmp_path, "new", "kernel", "fp8_gemm/mine", "--backend", "cpu")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kernels" / "cpu" / "fp8_gemm" / "mine.cpp").is_file()
    done = call(installed, tmp_path, *run, "--kernel", "fp8_gemm/mine", "--case", CASE)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
