# SPDX-License-Identifier: MIT
"""What a run needs is built at once and first: in parallel, each failure its own, every library once."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

import backends
from backends.base import Binary, Target, Usage
from backends.errors import CompileError
from scoring import cli
from scoring.record import Mode
from scoring.run import plan, targets
from scoring.run.build import Build, builds_of, compile_all
from scoring.run.progress import Progress
from tests.scoring.harness import SETTINGS, problem, toy

TARGET = Target("cpu", "CPU", "x86_64", 1, "e4m3fn", 0, 0)


def binary(seconds: float = 1.0, cached: bool = False) -> Binary:
    return Binary(Path("kernel.so"), "0", TARGET, (), "1", Usage(), cached=cached, seconds=seconds)


def carried_out(making: dict[str, Build]):
    file = io.StringIO()
    with Progress(verbose=True, file=file, environ={}) as progress:
        futures = compile_all(making, progress)
    return futures, file.getvalue().splitlines()


# In parallel ---------------------------------------------------------------------------------------------------------

def test_as_many_as_there_are_processors_compile_at_a_time(monkeypatch):
    monkeypatch.setattr(backends, "processors", lambda: 3)
    together, most, running, guard = threading.Barrier(3, timeout=20), [0], [0], threading.Lock()

    def make() -> Binary:
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait()              # broken, after its time, unless three are here at once
        with guard:
            running[0] -= 1
        return binary()

    futures, said = carried_out({str(i): Build(f"kernel {i}", make) for i in range(6)})
    assert [future.result().seconds for future in futures.values()] == [1.0] * 6
    assert most == [3]
    assert said[0] == "building 6, up to 3 at a time"


def test_a_failure_is_its_own():
    def fail() -> Binary:
        raise CompileError("no such thing", (), "", ())

    making = {"a": fail, "b": binary, "c": lambda: binary(0, True)}
    futures, said = carried_out({name: Build(name, make) for name, make in making.items()})
    with pytest.raises(CompileError, match="no such thing"):
        futures["a"].result()
    assert futures["b"].result() == binary()
    assert futures["c"].result().cached
    assert any(line.endswith(": a, failed (CompileError)") for line in said)
    assert any(line.endswith(": b, 1.0 s") for line in said)
    assert not any(": c, " in line for line in said), "what was in the cache took no compiler"
    assert said[-1].endswith(": 1 from the cache, 1 compiled, 1 failed")


def test_nothing_to_build_says_nothing():
    assert carried_out({}) == ({}, [])


def test_interrupted_it_stops_the_compilers_and_starts_no_more(monkeypatch):
    monkeypatch.setattr(backends, "processors", lambda: 1)
    stopped, started, end = [], [], threading.Event()
    monkeypatch.setattr(backends, "stop", lambda: (stopped.append(True), end.set()))

    def first() -> Binary:
        started.append(1)
        return binary()

    def other() -> Binary:
        started.append(2)
        end.wait(20)
        return binary()

    class Interrupted(Progress):
        def note(self, text: str) -> None:
            if text.startswith("built 1/"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_all({str(i): Build(str(i), other if i else first) for i in range(9)}, Interrupted())
    assert stopped == [True]
    assert len(started) <= 3, "one that ran and, at most, what the pool had taken before it heard"


# First ---------------------------------------------------------------------------------------------------------------

@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path / "cache"))


def test_everything_is_built_before_anything_runs(own_cache, monkeypatch, capsys):
    events: list[str] = []
    cpu, score = backends.get("cpu"), plan.score
    compiled = cpu.compile
    monkeypatch.setattr(cpu, "compile", lambda source, *rest, **more: (
        events.append(source.variant), compiled(source, *rest, **more))[1])
    monkeypatch.setattr(plan, "score", lambda *job: (events.append("scored"), score(*job))[1])
    code = cli.main(["--config", str(SETTINGS), "run", "--mode", "test", "--case", "n=64", "--no-save",
                     "--kernel", "broken", "--kernel", "honest", "--kernel", "nan"])
    assert code == 1
    out, err = capsys.readouterr()
    assert sorted(events[:3]) == ["broken", "honest", "nan"]
    assert events[3:] == ["scored", "scored"], "what does not compile is not run, and nothing is compiled twice"
    assert "cpu/broken" in out
    assert "1 passed, 2 failed" in out
    assert "building 3, up to" in err
    assert "failed (CompileError)" in err
    assert "[3/3] toy cpu/nan on CPU" in err


def test_the_judges_chain_is_built_once_for_all_kernels_that_are_timed(tmp_path):
    settings = toy(tmp_path)
    cpu = backends.get("cpu")
    found = targets.candidates(settings, [problem(settings)], {"cpu": cpu.probe()}, ["honest", "nan"], None)

    def wanted(mode: Mode, to_run: bool = True) -> list[str]:
        keys = {key: build for each in found for key, build in builds_of(settings, each, mode, to_run).items()}
        return sorted(build.name for build in keys.values())

    kernels = ["toy cpu/honest for CPU", "toy cpu/nan for CPU"]
    assert wanted(Mode.BENCHMARK) == ["the judge's chain for CPU", *kernels]
    assert wanted(Mode.TEST) == wanted(Mode.BENCHMARK, to_run=False) == kernels


def test_what_backends_compiles_is_what_the_scorer_finds_in_the_cache(tmp_path, monkeypatch):
    from backends.__main__ import main

    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path))
    settings = toy(tmp_path)
    file = settings.path("kernels") / "cpu" / "toy" / "honest.cpp"
    monkeypatch.setattr("backends.__main__.HOME", settings.path("kernels").parent)
    assert main(["compile", str(file)]) == 0
    here = {"cpu": backends.get("cpu").probe()}
    (candidate,) = targets.candidates(settings, [problem(settings)], here, ["honest"], None)
    (build,) = builds_of(settings, candidate, Mode.TEST, to_run=True).values()
    assert build.make().cached
