# SPDX-License-Identifier: MIT
"""The workbench: every experiment compiles, is right where it can run, stands in its README, and its settings work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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
    problem_of,
    runs,
)

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "workbench"
CELLS = [
    Cell(name, path.parent.name, path.stem, path, BENCH)
    for name in backends.names() for path in kernels(BENCH, backends.get(name).language)
]


# Of kernels that differ by a template's argument or a step, those that `make test` compiles and runs: to compile all of
# them for the first time takes many minutes. Of a problem that is not here all are taken.
KEPT = {
    ("cuda", "flash_attention"): {"4c_producer_warps", "9_cluster"},
    ("cuda", "fp8_gemm"): {"3_tma", "6_pairs"},
    ("cuda", "gelu"): {"2_vector"},
    ("cuda", "gemv"): {"2_split"},
    ("cuda", "rmsnorm"): {"4_vector"},
    ("cuda", "sgemm"): {"5_columns", "9_double_buffer"},
    ("cuda", "wgmma_tile"): {"b_transposed_none", "cluster_2", "swizzle_32"},
    ("rocm", "flash_attention"): {"3_mfma_both", "6_registers"},
    ("rocm", "gelu"): {"2_vector"},
    ("rocm", "gemv"): {"2_split"},
    ("rocm", "rmsnorm"): {"4_vector"},
    ("rocm", "sgemm"): {"5_columns", "8_transposed_a"},
}


def kept(params: Iterable[Any]) -> Iterator[Any]:
    """Those of kernels that are not in ``KEPT`` become slow."""
    for param in params:
        (cell,) = (value for value in param.values if isinstance(value, Cell))
        slow = cell.kernel not in KEPT.get((cell.backend, cell.problem), {cell.kernel})
        yield pytest.param(*param.values, id=param.id, marks=[*param.marks, *[pytest.mark.slow] * slow])


def test_what_make_test_takes_of_a_series_exists() -> None:
    for (backend, problem), names in KEPT.items():
        there = {cell.kernel for cell in CELLS if (cell.backend, cell.problem) == (backend, problem)}
        assert names < there


@pytest.mark.toolchain
@pytest.mark.parametrize(("backend", "cell", "target"), list(kept(builds(CELLS, ["fma_contraction"]))))
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
@pytest.mark.parametrize(("backend", "cell", "case"), list(kept(runs(CELLS, most=1e8))))
def test_experiment_is_right(backend: str, cell: Cell, case: Case, benches: dict[str, Bench]) -> None:
    check_case(backend, cell, case, benches)


@pytest.fixture(scope="module")
def emulated_gpus() -> Iterator[dict[str, Bench]]:
    yield from emulated_benches()


def takes(cell: Cell, case: Case) -> bool:
    """Whether a CUDA kernel is for a case."""
    if cell.problem == "fma_contraction":
        return bool(case.params["contract"] == cell.kernel)
    if cell.kernel.startswith("cluster_"):
        return int(case.params["n"]) % (8 * int(cell.kernel.removeprefix("cluster_"))) == 0
    return True


@pytest.mark.toolchain("cuda")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("cell", "gpu", "case"), list(kept(emulated_runs(CELLS, takes))))
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


def test_steps_of_a_ladder_say_what_is_expected_of_them() -> None:
    """Attention's and SGEMM's. HIP's attention has all of its steps; SGEMM's mirror has some."""
    attention = "flash_attention"
    for problem, backend, steps in ((attention, "cuda", 9), (attention, "hip", 6), ("sgemm", "cuda", 11)):
        sources = [KernelSource.read(path, BENCH) for path in kernels(BENCH, backend, problem)]
        assert len(sources) >= steps
        assert all(source.step and source.expect for source in sources)
    numbers = [source.step.number for path in kernels(BENCH, "hip", "flash_attention")
               if (source := KernelSource.read(path, BENCH)).step]
    assert numbers == list(range(1, 7))
    mirrored = {path.stem for path in kernels(BENCH, "hip", "sgemm")}
    assert mirrored == {"1_coalesced", "4_vector", "5_columns", "8_transposed_a", "9_double_buffer"}


def test_a_ladders_page_names_every_step() -> None:
    for problem in ("flash_attention", "sgemm", "wgmma_tile"):
        page = (BENCH / f"{problem.removeprefix('flash_')}.md").read_text()
        cells = [cell for cell in CELLS if cell.problem == problem and cell.backend != "cpu"]
        assert len(cells) > 10
        assert not [cell.path.name for cell in cells if f"`{cell.kernel}" not in page]


@pytest.mark.slow
@pytest.mark.toolchain("cuda")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kernel", "defines"), [
    ("4b_tiles", {"TILE": "9664", "STAGES": "1"}), ("4b_tiles", {"TILE": "6464", "STAGES": "2"}),
    ("4b_tiles", {"TILE": "6464", "STAGES": "1"}), ("4c_producer_warps", {"LOADERS": "2"})], ids=str)
def test_other_values_of_a_tunable_are_right(
    kernel: str, defines: dict[str, str], emulated_gpus: dict[str, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above run a tunable's default alone."""
    path = BENCH / f"kernels/cuda/flash_attention/{kernel}.cu"
    cell = Cell("cuda", "flash_attention", kernel, path, BENCH, tuple(defines.items()))
    for case in problem_of("flash_attention").tests:
        if case.params["dim"] == 64 and case.params["sq"] in (113, 128, 17):
            check_emulated(cell, "L4", case, emulated_gpus, monkeypatch)


def test_list_shows_the_workbench_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--config", str(BENCH / "config.yaml"), "list"]) == 0
    out = capsys.readouterr().out
    assert "mla_decode_fp8" not in out, "a problem without an experiment"
    steps = sorted((KernelSource.read(path, BENCH) for path in kernels(BENCH, "cuda", "flash_attention")), key=by_step)
    places = [out.index(f" {source.variant} ") for source in steps]
    assert places == sorted(places)
    assert len(places) >= 6
