# SPDX-License-Identifier: MIT
"""One process for all programs of a session, replaced when one of them takes it down."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import backends
from backends.emulator import build
from backends.errors import ToolchainMissing

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
_LIMIT = 120.0          # seconds for one program, on a machine that does other things too
Run = Callable[[str], str | None]


class Worker:
    """``run`` sends a program, waits for the verdict; a worker that dies or hangs is a verdict too."""

    def __init__(self, programs: Sequence[str], checks: str, log: Path, gpu: str = "MI300"):
        self._argv = [sys.executable, "-m", "tests.emulator.programs.run", "--serve", "--checks", checks, "--gpu", gpu,
                      *programs]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def run(self, program: str) -> str | None:
        if self._process is None:
            with self._log.open("wb") as stderr:
                self._process = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                 stderr=stderr, text=True, cwd=ROOT)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(program + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._lost("did not start")
        if not select.select([self._process.stdout], [], [], _LIMIT)[0]:
            return self._lost(f"no answer after {_LIMIT:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            return self._lost("the process died")
        wrong: str | None = json.loads(line)["wrong"]
        return wrong

    def _lost(self, how: str) -> str:
        status = self.close()
        return f"{how} (exit status {status}): {self._log.read_text(errors='replace')[-2000:]}"

    def close(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return process.wait()


@pytest.fixture(scope="session")
def emulator() -> None:
    """The emulator is built, and there is a compiler of HIP programs: a worker need not wait for either."""
    try:
        backends.get("rocm").compiler()
        build.library()
    except ToolchainMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def hip_programs(request: pytest.FixtureRequest) -> list[str]:
    """The HIP programs that the session's tests will run; a worker compiles them ahead."""
    programs = (item.callspec.params.get("program", "") for item in request.session.items
                if isinstance(item, pytest.Function) and item.path.parent == HERE and hasattr(item, "callspec"))
    return list(dict.fromkeys(program for program in programs if program.startswith("hip ")))


@pytest.fixture(scope="session")
def run(emulator: None, hip_programs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """``run(program)``: None, or what is wrong."""
    worker = Worker(hip_programs, "none", tmp_path_factory.mktemp("programs") / "worker.log")
    yield worker.run
    worker.close()


@pytest.fixture(scope="session")
def run_checked(emulator: None, hip_programs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The same with all checks, whose findings are wrong, too."""
    worker = Worker(hip_programs, "all", tmp_path_factory.mktemp("programs") / "checked.log")
    yield worker.run
    worker.close()


@pytest.fixture(scope="session", params=["H100", "L4"])
def run_on_nvidia(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """``run(program)`` on an emulated NVIDIA GPU with all checks."""
    try:
        build.cuda_library(13)
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    worker = Worker([], "all", tmp_path_factory.mktemp("programs") / f"{request.param}.log", request.param)
    yield worker.run
    worker.close()
