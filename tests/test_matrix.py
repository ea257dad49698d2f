# SPDX-License-Identifier: MIT
"""backend × problem × kernel × case: every kernel compiles for every target it supports, and is right where it can run.

What cannot be compiled or run here is skipped and says why; ``--require NAME`` turns that into a failure. Binaries come
from the user's cache, so a second run compiles only what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import backends
from backends import _emulated
from backends.base import Availability, Binary, Target
from backends.errors import SourceError
from backends.source import KernelSource, kernels
from scoring.config.load import load_config
from scoring.ipc.emulator import EMULATED
from scoring.ipc.requests import Load, LoadEmulator
from scoring.judge.job import Contestant
from scoring.problem import Problem, discover
from scoring.record import Case, Mode, Status
from scoring.run import targets
from scoring.run.job import emulator_options, native_contestant

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = load_config(file=str(ROOT / "config.yaml"), environment={})


class Cell(NamedTuple):
    """One kernel file of one backend."""

    backend: str
    problem: str
    kernel: str
    path: Path
    root: Path = ROOT
    defines: tuple[tuple[str, str], ...] = ()      # tunables that have another value than the file's first


CELLS = [
    Cell(name, path.parent.name, path.stem, path)
    for name in backends.names() for path in kernels(ROOT, backends.get(name).language)
]


# Whole layers of the AMD challenge, whose own test cases have 48 GFLOP and more.
LAYERS = ("amd_mla_decode", "amd_moe")


@cache
def problem_of(name: str) -> Problem:
    return Problem(discover(ROOT / "problems", ROOT / "workbench" / "problems")[name])


@cache
def probed(name: str, _chosen: tuple[bool | None, ...]) -> Availability:
    return backends.get(name).probe()


def available(name: str) -> Availability:
    """What is here now: with a device emulated on demand, it is another than without."""
    return probed(name, tuple(_emulated._chosen))


def targets_of(cell: Cell) -> list[Target]:
    """One target per arch the kernel names; all of the backend's if it names none."""
    every = {target.arch: target for target in reversed(backends.get(cell.backend).targets())}
    try:
        arches = KernelSource.read(cell.path, cell.root).arches
    except SourceError:
        arches = ()        # the test that reads it will say so
    return [every[arch] for arch in arches or sorted(every) if arch in every]


def compiled(cell: Cell, target: Target) -> Binary:
    """The binary, or a skip where there is no compiler."""
    found = available(cell.backend)
    if not found.can_compile:
        pytest.skip("; ".join(found.reasons) or f"no compiler for {cell.backend}")
    return backends.get(cell.backend).compile(KernelSource.read(cell.path, cell.root), target, dict(cell.defines))


def test_the_matrix_is_not_empty():
    """Each problem has a plain kernel for the CPU, and every backend has kernels."""
    assert {cell.backend for cell in CELLS} == set(backends.names())
    assert {cell.problem for cell in CELLS if cell.backend == "cpu"} == set(discover(ROOT / "problems"))
    assert {cell.problem for cell in CELLS} <= set(discover(ROOT / "problems"))


# Compiling -----------------------------------------------------------------------------------------------------------

def builds(cells: Sequence[Cell], quick: Sequence[str]) -> Iterator[Any]:
    """Every kernel for every target. nvcc takes minutes for machine code: CUDA's are slow but for the problems in
    ``quick``. The tests on emulated GPUs compile all of them to PTX; tests/kernels/cuda/test_gemm_compiled.py looks at
    the machine code of a family."""
    for cell in cells:
        for target in targets_of(cell):
            slow = cell.backend == "cuda" and cell.problem not in quick
            yield pytest.param(cell.backend, cell, target, marks=pytest.mark.slow if slow else (),
                               id=f"{cell.backend}-{cell.problem}-{cell.kernel}-{target.arch}")


@pytest.mark.toolchain
@pytest.mark.parametrize(("backend", "cell", "target"), list(builds(CELLS, ["hadamard_quantize"])))
def test_kernel_compiles(backend: str, cell: Cell, target: Target):
    check_build(backend, cell, target)


def check_build(backend: str, cell: Cell, target: Target) -> None:
    """It exports the one symbol of its problem's kernel.h, and the compiler's report names its device functions."""
    from elftools.elf.elffile import ELFFile

    binary = compiled(cell, target)
    symbol = problem_of(cell.problem).binding.SYMBOL
    assert KernelSource.read(cell.path, cell.root).signature().symbol == symbol
    with binary.path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        exported = {entry.name for entry in symbols if entry["st_shndx"] != "SHN_UNDEF"}
    assert symbol in exported
    assert bool(binary.usage.kernels) is (backend != "cpu")
    assert all(usage.shared_bytes <= target.max_smem for usage in binary.usage.kernels)
    errors = [diagnostic for diagnostic in binary.diagnostics if diagnostic.severity == "error"]
    assert not errors


# Running -------------------------------------------------------------------------------------------------------------

class Bench:
    """One worker, and what is loaded in it; replaced when a kernel takes it down."""

    def __init__(self) -> None:
        self.worker: Any = None
        self.loaded: set[str] = set()

    def worker_for(self, device: int | None, contestant: Contestant, emulator: LoadEmulator | None) -> Any:
        from scoring.judge.worker_process import WorkerProcess
        from scoring.sandbox.policy import Policy

        if self.worker is None or not self.worker.alive:
            # A sandbox shows only what is there when it starts, and this worker is to load kernels made later.
            files = [Path(contestant.spec.library)]
            variables = emulator.variables if emulator is not None else None
            self.worker = WorkerProcess(
                device, files=files, sandbox=Policy(isolation="process"), variables=variables)
            self.loaded.clear()
            if emulator is not None:
                self.worker.request(emulator, 120)
        if contestant.name not in self.loaded:
            self.worker.request(Load(contestant.name, contestant.spec), 120)
            self.loaded.add(contestant.name)
        return self.worker

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None


@pytest.fixture(scope="module")
def benches() -> Iterator[dict[str, Bench]]:
    """A bench per backend."""
    made = {name: Bench() for name in backends.names()}
    yield made
    for bench in made.values():
        bench.close()


def runs(cells: Sequence[Cell], most: float = 3e8) -> Iterator[Any]:
    """Cases of kernels. Those of more than ``most`` FLOP or 4 MB are slow: seconds to minutes of a CPU."""
    for cell in cells:
        binding = problem_of(cell.problem).binding
        for case in problem_of(cell.problem).tests:
            name = f"{cell.backend}-{cell.problem}-{cell.kernel}-{case.name}"
            slow = binding.flops(case.params) > most or binding.bytes_moved(case.params) > 4e6
            yield pytest.param(cell.backend, cell, case, id=name, marks=pytest.mark.slow if slow else ())


@pytest.mark.device
@pytest.mark.timeout(600)        # the first one on the emulated MI300X builds the emulator
@pytest.mark.parametrize(("backend", "cell", "case"), list(runs(CELLS)))
def test_kernel_is_right(backend: str, cell: Cell, case: Case, benches: dict[str, Bench]):
    check_case(backend, cell, case, benches)


def check_case(backend: str, cell: Cell, case: Case, benches: dict[str, Bench]) -> None:
    """Two calls on fresh inputs, guards and inputs intact, every element within its bound.

    Where the device is emulated, all its checks are on, and none finds anything.
    """
    found = available(backend)
    if not found.can_run:
        pytest.skip("; ".join(found.reasons) or f"no device for {backend}")
    (place,) = targets.places(SETTINGS, backends.get(backend), found, None)
    check_on(place, cell, case, benches[backend])


def check_on(place: targets.Place, cell: Cell, case: Case, bench: Bench) -> None:
    """``check_case`` on the device of a place."""
    from scoring.judge.case_run import CaseRun
    from scoring.judge.seeds import SeedSource
    from scoring.judge.worker_process import WorkerFailure

    backend, problem = cell.backend, problem_of(cell.problem)
    assert place.device is not None
    runner = EMULATED if place.device.emulated else backend
    limit = SETTINGS.settings.limits.case_gflop.get(runner)
    if limit is not None and problem.binding.flops(case.params) > limit * 1e9:
        assert runner != EMULATED or cell.problem in LAYERS, "every other test case is small enough to be emulated"
        pytest.skip(f"more than the {limit:g} GFLOP a case may have on {runner}")
    source = KernelSource.read(cell.path, cell.root)
    if source.arches and place.target.arch not in source.arches:
        pytest.skip(f"{cell.kernel} is for {', '.join(source.arches)}, the device here is {place.target.arch}")
    binary = compiled(cell, place.target)
    contestant = native_contestant(
        f"{source.language}/{source.variant}{binary.digest}", source.signature(), binary.path, place)
    on_device = backend != "cpu" and not place.device.emulated
    worker = bench.worker_for(
        place.device.index if on_device else None, contestant, emulator_options(SETTINGS, place, Mode.TEST))
    torch_device = f"cuda:{place.device.index}" if on_device else "cpu"
    try:
        with CaseRun(problem, case, worker, contestant, SeedSource(2026), torch_device, place.target.fp8, 600) as run:
            verdict, _seconds = run.check()
    except WorkerFailure as failure:
        if failure.status is Status.UNSUPPORTED:
            pytest.xfail(f"declines {case.name}: {failure}")
        bench.close()
        pytest.fail(str(failure))
    assert verdict.passed, verdict.message


# NVIDIA's GPUs, emulated ----------------------------------------------------------------------------------------------

def emulated_runs(
    cells: Sequence[Cell], takes: Callable[[Cell, Case], bool] = lambda cell, case: True) -> Iterator[Any]:
    """Every CUDA kernel's cases on the emulated GPUs it is for; slow are all but its smallest on the first of them.

    ``takes``: whether a kernel does not decline a case; the smallest is of those.
    """
    gpus = {device.arch: device.gpu for device in _emulated.CUDA_DEVICES}
    for cell in cells:
        if cell.backend != "cuda":
            continue
        problem = problem_of(cell.problem)
        cases = sorted(problem.tests, key=lambda case: float(problem.binding.flops(case.params)))
        smallest = next(case for case in cases if takes(cell, case))
        first, *others = [gpus[target.arch] for target in targets_of(cell)]
        for gpu in (first, *others):
            for case in cases:
                quick = case is smallest and gpu == first
                yield pytest.param(cell, gpu, case, marks=() if quick else pytest.mark.slow,
                                   id=f"{cell.problem}-{cell.kernel}-{gpu}-{case.name}")


def emulated_benches() -> Iterator[dict[str, Bench]]:
    """A bench per emulated GPU, closed in the end."""
    made = {device.gpu: Bench() for device in _emulated.CUDA_DEVICES}
    yield made
    for bench in made.values():
        bench.close()


@pytest.fixture(scope="module")
def emulated_gpus() -> Iterator[dict[str, Bench]]:
    yield from emulated_benches()


@pytest.mark.toolchain("cuda")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("cell", "gpu", "case"), list(emulated_runs(CELLS)))
def test_kernel_is_right_on_an_emulated_gpu(
    cell: Cell, gpu: str, case: Case, emulated_gpus: dict[str, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, with all checks on. The PTX that runs here is the one that machine code is made of."""
    check_emulated(cell, gpu, case, emulated_gpus, monkeypatch)


def check_emulated(
    cell: Cell, gpu: str, case: Case, benches: dict[str, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``check_case`` on an emulated NVIDIA GPU."""
    monkeypatch.setattr(_emulated, "_chosen", [True])
    cuda = backends.get("cuda")
    found = available("cuda")
    if not found.can_compile:
        pytest.skip("; ".join(found.reasons))
    (place,) = targets.places(SETTINGS, cuda, found, gpu)
    check_on(place, cell, case, benches[gpu])
