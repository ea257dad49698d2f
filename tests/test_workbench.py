# SPDX-License-Identifier: MIT
"""The workbench: every experiment compiles, is right where it can run, stands in its README, and its settings work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import backends
from backends.base import Target
from backends.source import KernelSource, by_step, kernels
from scoring import cli
from scoring.problem import discover
from scoring.record import Case
from tests.test_matrix import (
    Bench,
    Cell,
    builds,
    check_build,
    check_case,
    check_emulated,
    emulated_benches,
    emulated_runs,
    runs,
)

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "workbench"
CELLS = [
    Cell(name, path.parent.name, path.stem, path, BENCH)
    for name in backends.names() for path in kernels(BENCH, backends.get(name).language)
]


@pytest.mark.toolchain
@pytest.mark.parametrize(("backend", "cell", "target"), list(builds(CELLS, ["fma_contraction"])))
def test_experiment_compiles(backend: str, cell: Cell, target: Target) -> None:
    check_build(backend, cell, target)


@pytest.fixture(scope="module")
def benches() -> Iterator[dict[str, Bench]]:
    made = {name: Bench() for name in backends.names()}
    yield made
    for bench in made.values():
        bench.close()


@pytest.mark.device
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("backend", "cell", "case"), list(runs(CELLS, most=1e8)))
def test_experiment_is_right(backend: str, cell: Cell, case: Case, benches: dict[str, Bench]) -> None:
    check_case(backend, cell, case, benches)


@pytest.fixture(scope="module")
def emulated_gpus() -> Iterator[dict[str, Bench]]:
    yield from emulated_benches()


@pytest.mark.toolchain("cuda")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("cell", "gpu", "case"), list(emulated_runs(CELLS)))
def test_experiment_is_right_on_an_emulated_gpu(
    cell: Cell, gpu: str, case: Case, emulated_gpus: dict[str, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_emulated(cell, gpu, case, emulated_gpus, monkeypatch)


def test_every_problem_has_a_plain_kernel_that_runs_anywhere() -> None:
    own = set(discover(BENCH / "problems"))
    assert {cell.problem for cell in CELLS if cell.backend == "cpu"} == own
    assert {cell.problem for cell in CELLS} <= own | set(discover(ROOT / "problems"))
    assert not own & set(discover(ROOT / "problems")), "a name has one home"


def test_every_experiment_has_a_row_with_its_command() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| `(.+?)` \| (.+?) \|$", (BENCH / "README.md").read_text(), re.MULTILINE)
    commands = [command for _name, _question, command, _answer in rows]
    named = {word for command in commands for word in re.findall(r"[\w./*-]+", command)}
    problems = {cell.problem for cell in CELLS}
    assert not [problem for problem in problems if problem not in {word.split("/")[0] for word in named}]
    probes = {f"workbench/probes/{path.name}" for path in (BENCH / "probes").glob("*.cu")}
    assert probes <= named


def test_steps_are_numbered_without_gaps_between_them_and_the_trees() -> None:
    """A ladder's steps are 1, 2, 3 …; a letter marks a variation. Some steps of the older ladders are the tree's."""
    text = (ROOT / "benchmarks/README.md").read_text()
    series: dict[tuple[str, str], list[KernelSource]] = {}
    for cell in CELLS:
        source = KernelSource.read(cell.path, BENCH)
        if source.step and cell.backend == "cuda":
            series.setdefault((cell.backend, cell.problem), []).append(source)
    assert len(series) >= 3
    for (_backend, problem), sources in series.items():
        line = re.search(rf"^\| `{problem}` \| (.*) \|$", text, re.MULTILINE)
        trees = {int(number) for number in re.findall(r"`(\d+)_\w+`", line[1])} if line else set()
        numbers = trees | {source.step.number for source in sources if source.step}
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), problem
        assert all(source.variant.startswith(f"{source.step.number}{source.step.letter}_")
                   for source in sources if source.step)


def test_list_shows_the_workbench_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--config", str(BENCH / "config.yaml"), "list"]) == 0
    out = capsys.readouterr().out
    assert "mla_decode_fp8" not in out, "a problem without an experiment"
    steps = sorted((KernelSource.read(path, BENCH) for path in kernels(BENCH, "cuda", "flash_attention")), key=by_step)
    places = [out.index(f" {source.variant} ") for source in steps]
    assert places == sorted(places)
    assert len(places) >= 6
