# SPDX-License-Identifier: MIT
"""A vendor is one file and one folder of kernels: a made-up one, outside the tree, is listed, built, scored and packed.

``docs/adding-a-vendor.md`` tells the same in words.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backends
from scoring.record import Record, Status
from tests.scoring.harness import DATA, ROOT

# All that the tree is told about Acme: its compiler is the CPU's under another name.
VENDOR = '''
"""Acme: the CPU's compiler under another name."""

from dataclasses import replace

from backends.base import GpuLabel
from backends.cpu import CpuBackend


class AcmeBackend(CpuBackend):
    name = "acme"
    language = "acmec"
    suffix = ".acme"
    arch_pattern = "rocket[0-9]+"
    labels = (GpuLabel("Rocket", "acme", ("rocket1",), official=False),)

    def targets(self):
        return tuple(replace(target, backend="acme", gpu="Rocket", arch="rocket1") for target in super().targets())

    def probe(self):
        found = super().probe()
        return replace(found, devices=tuple(
            replace(device, gpu="Rocket", arch="rocket1") for device in found.devices))

    def plan(self, source, out, target, defines=None):
        plan = super().plan(source, out, target, defines)
        return replace(plan, steps=tuple((*step[:-3], "-x", "c++", *step[-3:]) for step in plan.steps))


BACKEND = AcmeBackend()
'''
SETTINGS = """
mode: test
timing: {processes: 1, min_rounds: 2, max_rounds: 3, seconds: 0.5}
paths: {problems: problems, kernels: kernels, peers: peers}
"""
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a problem, Acme's file and Acme's kernels."""
    folder = tmp_path_factory.mktemp("acme")
    shutil.copytree(DATA / "problems" / "toy", folder / "problems" / "toy")
    shutil.copy(ROOT / "problems" / "utils.py", folder / "problems")
    task = folder / "problems" / "toy" / "task.yml"
    task.write_text(task.read_text().replace("../../../../problems/utils.py", "../utils.py"))
    (folder / "vendors").mkdir()
    (folder / "vendors" / "acme.py").write_text(VENDOR)
    home = folder / "kernels" / "acmec"
    (home / "toy").mkdir(parents=True)
    shutil.copy(DATA / "kernels" / "cpu" / "toy.h", home)
    text = (DATA / "kernels" / "cpu" / "toy" / "honest.cpp").read_text()
    (home / "toy" / "honest.acme").write_text(text.replace("//!KERNEL", "//!KERNEL arch rocket1\n//!KERNEL", 1))
    (home / "toy" / "broken.acme").write_text("//!KERNEL arch sm_90a\n")
    (folder / "config.yaml").write_text(SETTINGS)
    return folder


@pytest.fixture
def call(acme: Path, tmp_path: Path) -> Call:
    def run(module: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ, backends.VARIABLE: str(acme / "vendors"), "WARPWAVE_CONFIG": str(acme / "config.yaml"),
            "WARPWAVE_DB": str(tmp_path / "records.db"), "WARPWAVE_CACHE_DIR": str(acme / "cache"),
        }
        done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, env=environment, text=True,
                              capture_output=True, timeout=300, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def records(done: subprocess.CompletedProcess[str]) -> list[Record]:
    return [Record.from_json(json.loads(line)) for line in done.stdout.splitlines()]


def test_without_the_folder_there_is_no_such_vendor() -> None:
    assert "acme" not in backends.names()


def test_list_names_its_kernels_and_reads_its_archs(call: Call) -> None:
    listed: dict[str, Any] = json.loads(call("scoring", "list", "--json", code=2).stdout)
    assert listed["backends"] == ["acme", "cpu", "cuda", "rocm"]
    kernels = [(each["backend"], each["variant"], each["arches"]) for each in listed["kernels"]]
    assert kernels == [("acme", "honest", ["rocket1"])]
    assert "'sm_90a' is no acmec architecture" in json.dumps(listed["errors"])


def test_doctor_finds_its_compiler_and_device(call: Call) -> None:
    found = json.loads(call("scoring", "doctor", "--json").stdout)
    assert found["backends"]["acme"]["compiler"] == found["backends"]["cpu"]["compiler"]
    assert found["backends"]["acme"]["devices"]


@pytest.mark.toolchain("cpu")
def test_build_compiles_for_it(call: Call) -> None:
    (record,) = records(call("scoring", "build", "--backend", "acme", "--kernel", "honest", "--json"))
    assert (record.backend, record.gpu, record.kernel) == ("acme", "Rocket", "acmec/honest")


@pytest.mark.device("cpu")
@pytest.mark.parametrize("mode", ["test", "benchmark"])
def test_run_scores_it(call: Call, mode: str) -> None:
    asked = ("--backend", "acme", "--kernel", "honest", "--mode", mode, "--json")
    (record,) = records(call("scoring", "run", *asked))
    assert record.status is Status.PASSED
    assert (record.backend, record.gpu) == ("acme", "Rocket")
    assert any(case.stats is not None for case in record.cases) == (mode == "benchmark")


@pytest.mark.toolchain("cpu")
def test_pack_makes_a_submission_that_runs(call: Call, acme: Path, tmp_path: Path) -> None:
    """Of a problem of the tree: the toy's binding is not made for packing."""
    for program in ("ninja", "g++"):
        if shutil.which(program) is None:
            pytest.skip(f"torch's load_inline needs {program}, which is not on PATH")
    root = tmp_path / "tree"
    shutil.copytree(ROOT / "problems", root / "problems")
    shutil.copytree(ROOT / "kernels" / "common", root / "kernels" / "common")
    shutil.copytree(ROOT / "kernels" / "cpu", root / "kernels" / "acmec")
    kernel = root / "kernels" / "acmec" / "fp8_gemm" / "naive.acme"
    kernel.write_text((ROOT / "kernels" / "cpu" / "fp8_gemm" / "naive.cpp").read_text())
    packed = tmp_path / "submission.py"
    call("submissions", "pack", "acmec/fp8_gemm/naive", "--root", str(root), "-o", str(packed))
    assert "#!POPCORN gpus Rocket" in packed.read_text()
    done = call("scoring", "run", "--submission", str(packed), "--task", str(ROOT / "problems" / "fp8_gemm"),
                "--backend", "acme", "--mode", "test", "--case", "m=64,n=64,k=128", "--json")
    (record,) = records(done)
    assert record.status is Status.PASSED
