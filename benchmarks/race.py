# SPDX-License-Identifier: MIT
"""What ``python -m scoring run --against`` does not measure, for CUDA kernels on an NVIDIA GPU.

    python benchmarks/race.py bits KERNEL KERNEL ...     whose outputs differ from the first, or call to call
    python benchmarks/race.py back-to-back KERNEL ...    calls in any order without a wait between, plain and captured
    python benchmarks/race.py late KERNEL ...            integer inputs that the kernel before the call writes late
    python benchmarks/race.py energy KERNEL ...          each alone for seconds: time, joules, watts, clock
    python benchmarks/race.py parts KERNEL ...           the device functions of one call, with their times
    python benchmarks/race.py once KERNEL ...            a call per case, inputs made on the CPU: for ncu and sanitizers
    python benchmarks/race.py probe FILE.cu [WORD ...]   builds a program of workbench/probes and runs it here

A KERNEL is what ``--against`` takes, with its problem: ``fp8_gemm/wgmma_tma[EARLY_START=0]``, or a file with --problem.
``backends`` builds it with the flags of what is shipped; NAME may be any macro here. Cases are those of race_cases.py,
else the problem's benchmarks; ``--case`` filters them, ``--shape NAME=VALUE,...`` replaces them. Outputs are compared
with the problem's reference. Inputs rotate over more than 2.2 times the L2 cache where anything is timed. `bits` and
`once` also run CPU kernels. For a kernel that may hang: ``timeout 60 python benchmarks/race.py ...``. Exit code 1: an
output is wrong or differs; 2: usage; 4: no GPU.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import functools
import importlib.util
import itertools
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import race_cases

import backends
from backends.errors import BackendError
from backends.source import KernelSource
from scoring.judge import timing
from scoring.judge.check import compare
from scoring.problem import Problem
from scoring.record import Case
from scoring.run import rivals
from scoring.run.job import promised
from scoring.run.select import SelectionError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LATE_CYCLES = 60_000           # that the writer of late inputs waits, some 30 us


def say(text: str) -> None:
    print(text, flush=True)


def need_gpu() -> None:
    """Ends the program (exit code 4) where there is no NVIDIA GPU."""
    if not torch.cuda.is_available():
        print("no NVIDIA GPU here, and this runs on one; `python -m scoring doctor` says what is missing",
              file=sys.stderr)
        raise SystemExit(4)


class Build:
    """A kernel as ``backends`` builds it for the device here, called on tensors in this process."""

    def __init__(self, name: str, source: KernelSource, defines: Mapping[str, str], entry: Path | None = None):
        """``entry``, if given, is the file to compile: it includes the kernel as ``WARPWAVE_KERNEL_FILE``."""
        self.name, self.source = name, source
        self.problem = Problem(source.header.parent)
        self.device = "cpu" if source.language == "cpu" else "cuda"
        values = {**source.resolve(), **defines}
        compiled = source
        if entry is not None:
            values["WARPWAVE_KERNEL_FILE"] = f'"{source.path}"'
            compiled = KernelSource.read(entry, source.root, source.problem)
        # Any macro may be set here, so no directive restricts the values.
        self.library = load(replace(compiled, tunables={}, defines={}), values)
        signature = source.signature()
        self.parameters = [parameter.name for parameter in signature.params]
        self.argtypes = signature.argtypes()
        self.function = getattr(self.library, signature.symbol)
        self.function.argtypes = self.argtypes

    def bind(self, call: Call, space: torch.Tensor | None = None, function: Any = None) -> Callable[[], None]:
        """The kernel (or ``function`` of its library) on these tensors, on torch's current queue.

        It raises ``RuntimeError`` for a status other than 0.
        """
        given: dict[str, Any] = {**call.arguments, **call.outputs, "workspace": space, "queue": None}
        given["workspace_bytes"] = 0 if space is None else space.numel()
        values = [given[name] for name in self.parameters]
        values = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in values]
        queue = self.parameters.index("queue")
        entry = function or self.function

        def run() -> None:
            values[queue] = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else None
            if status := entry(*values):
                raise RuntimeError(f"{self.name} returned status {status}")

        return run

    def workspace(self, case: Case) -> torch.Tensor | None:
        """All-ones bytes, NaN in every format, for a call to use as it likes."""
        size = self.problem.binding.workspace_bytes(case.params)
        return torch.full((size,), 0xFF, dtype=torch.uint8, device=self.device) if size else None


class Call:
    """Inputs of one case, made on ``made_on``, and outputs that are NaN until a kernel writes them."""

    def __init__(self, problem: Problem, case: Case, seed: int, device: str, made_on: str = ""):
        self.problem, self.case, self.made_on = problem, case, made_on or device
        self.made = problem.generate(case, seed, self.made_on, "e4m3fn")
        self.data = moved(self.made, device)
        self.arguments = problem.binding.arguments(case.params, self.data)
        self.outputs = {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            for name, (shape, dtype) in problem.binding.outputs(case.params).items()}
        self.poison()

    def again(self) -> Call:
        """A call on the same inputs with outputs of its own."""
        other = copy.copy(self)
        other.outputs = {name: torch.empty_like(output) for name, output in self.outputs.items()}
        other.poison()
        return other

    def poison(self) -> None:
        for output in self.outputs.values():
            output.view(torch.uint8).fill_(0xFF)

    @cached_property
    def expected(self) -> Any:
        return self.problem.expectations(self.made)

    def wrong(self, partial: Sequence[str] = ()) -> str:
        """What is wrong with the outputs (those in ``partial``, if any is named there); "" if nothing is."""
        outputs = [output.to(self.made_on) for output in self.outputs.values()]
        verdict = compare(self.problem, self.expected, outputs, list(self.outputs), partial)
        return "" if verdict.passed else verdict.message

    def bits(self) -> list[torch.Tensor]:
        return [output.view(torch.uint8).clone() for output in self.outputs.values()]


def moved(data: Any, device: str) -> Any:
    """Nested data with its tensors on a device."""
    if isinstance(data, torch.Tensor):
        return data.to(device)
    if isinstance(data, tuple | list):
        return type(data)(moved(item, device) for item in data)
    return {key: moved(item, device) for key, item in data.items()} if isinstance(data, dict) else data


def same(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def find(text: str, problem: str | None = None) -> tuple[KernelSource, Mapping[str, str]]:
    """The kernel that a command line names, and the values given for it. Raises ``SelectionError``."""
    spec = rivals.parse(text)
    path = Path(spec.what)
    if path.suffix not in backends.suffixes().values():
        parts = spec.what.split("/")
        *folders, variant = [*["cuda", problem or "PROBLEM"][: 3 - len(parts)], *parts]
        path = ROOT.joinpath("kernels", *folders, f"{variant}{backends.suffixes().get(folders[0], '')}")
    if not path.is_file():
        raise SelectionError(f"{text}: no file {path}; `python -m scoring list` shows the kernels", 2)
    homes = [folder.parent for folder in path.absolute().parents if folder.name == "kernels"]
    return KernelSource.read(path, homes[0] if homes else ROOT, problem), spec.defines


def load(source: KernelSource, values: Mapping[str, str]) -> ctypes.CDLL:
    """The library that ``backends`` makes of a file for the device here."""
    backend = next(one for name in backends.names() if (one := backends.get(name)).language == source.language)
    devices = backend.probe().devices
    if not devices:
        need_gpu()
    return ctypes.CDLL(str(backend.compile(source, backend.target_for(devices[0]), values).path))


def builds_of(options: argparse.Namespace) -> list[Build]:
    """What the command line names; says that there is no GPU before anything is compiled for one."""
    named = [(text, *find(text, options.problem)) for text in options.kernels]
    if any(source.language != "cpu" for _text, source, _values in named) or options.verb not in ("bits", "once"):
        need_gpu()
    if len({source.problem for _text, source, _values in named}) > 1:
        raise SelectionError("kernels of several problems: name those of one", 2)
    return [Build(text, source, values) for text, source, values in named]


def cases_of(build: Build, options: argparse.Namespace) -> list[Case]:
    """Shapes of the command line, else of race_cases.py, else the problem's benchmarks, as ``--case`` filters them."""
    if options.shape:
        return [Case(race_cases.shape(text), "benchmarks") for text in options.shape]
    known = race_cases.CASES.get(options.verb, {}).get(build.problem.name)
    cases = list(build.problem.benchmarks) if known is None else [Case(params, "benchmarks") for params in known]
    return [case for case in cases if any(fnmatch(case.name, glob) for glob in options.case or ["*"])]


def bits(builds: Sequence[Build], options: argparse.Namespace) -> int:
    """Whose outputs differ from the first build's, or from call to call; returns how many builds and cases do."""
    bad = 0
    for case in cases_of(builds[0], options):
        call = Call(builds[0].problem, case, options.seed, builds[0].device)
        first: list[torch.Tensor] = []
        for build in builds:
            runs = []
            for _ in range(3):
                call.poison()
                build.bind(call, build.workspace(case))()
                runs.append(call.bits())
            first = first or runs[0]
            wrong = call.wrong()
            told = [f"WRONG: {wrong}"] * bool(wrong)
            told += ["its bits differ from call to call"] * (not all(same(runs[0], run) for run in runs))
            told += [f"other bits than {builds[0].name}"] * (not same(first, runs[0]))
            bad += bool(told)
            say(f"{case.name} {build.name}: {'; '.join(told) or 'right, the same bits'}")
    return bad


def back_to_back(builds: Sequence[Build], options: argparse.Namespace) -> int:
    """How many calls leave other bits than they leave alone when no call waits for the one before."""
    bad = 0
    for build in builds:
        alone = []
        for number, case in enumerate(cases_of(build, options)):
            call = Call(build.problem, case, options.seed + number, build.device)
            build.bind(call, build.workspace(case))()
            if wrong := call.wrong():
                say(f"{build.name} {case.name}: WRONG alone: {wrong}")
                bad += 1
            alone.append((call, call.bits()))
        sizes = [build.problem.binding.workspace_bytes(call.case.params) for call, _bits in alone]
        space = build.workspace(alone[sizes.index(max(sizes))][0].case)
        chosen = random.Random(options.seed).choices(alone, k=options.calls)
        burst = [(other := call.again(), right, build.bind(other, space)) for call, right in chosen]

        def differing(how: str, name: str = build.name, burst: Any = burst) -> int:
            torch.cuda.synchronize()
            wrong = [call.case.name for call, right, _run in burst if not same(call.bits(), right)]
            for call, *_rest in burst:
                call.poison()
            torch.cuda.synchronize()
            say(f"{name} {how}: {len(wrong)} of {len(burst)} calls differ {wrong[:2] or ''}")
            return len(wrong)

        for *_rest, run in burst:
            run()
        bad += differing("in a row")
        graph = capture([run for *_rest, run in burst])
        bad += differing("captured")
        graph.replay()
        bad += differing("captured, again")
    return bad


def late(builds: Sequence[Build], options: argparse.Namespace) -> int:
    """How many calls are wrong whose integer inputs a kernel writes that lets them start before it does so."""
    write = load(program(HERE / "tools" / "late_lengths.cu"), {}).late_lengths
    bad = 0
    for build, case in itertools.product(builds, cases_of(builds[0], options)):
        call = Call(build.problem, case, options.seed, build.device)
        run = build.bind(call, build.workspace(case))
        for name, array in call.arguments.items():
            if not isinstance(array, torch.Tensor) or array.dtype != torch.int32:
                continue
            true = array.clone()

            def both(array: torch.Tensor = array, true: torch.Tensor = true, run: Callable[[], None] = run) -> None:
                queue = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                write(ctypes.c_void_p(array.data_ptr()), ctypes.c_void_p(true.data_ptr()), true.numel(),
                      ctypes.c_longlong(LATE_CYCLES), queue)
                run()

            graph, wrong = capture([both]), 0
            before = (torch.zeros_like(true), true.flip(0), torch.full_like(true, int(true.max())))
            for values, start in itertools.product(before, (both, graph.replay)):
                array.copy_(values)
                call.poison()
                torch.cuda.synchronize()
                start()
                torch.cuda.synchronize()
                wrong += bool(call.wrong())
            say(f"{build.name} {case.name}: {name} written late, 6 calls, {wrong} wrong")
            bad += wrong
    return bad


def rotating(build: Build, case: Case, seed: int) -> list[Call]:
    """As many calls as it takes until inputs that come in turn exceed 2.2 times the L2 cache."""
    calls: list[Call] = []
    enough = timing.CACHE_FACTOR * torch.cuda.get_device_properties(0).L2_cache_size
    while sum(nbytes(call) for call in calls) <= enough:
        calls.append(Call(build.problem, case, seed + len(calls), build.device))
    return [*calls, Call(build.problem, case, seed - 1, build.device)] if len(calls) < 2 else calls


def nbytes(call: Call) -> int:
    """Bytes of a call's inputs."""
    return sum(value.nbytes for value in call.arguments.values() if isinstance(value, torch.Tensor))


def capture(calls: Sequence[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """One graph of all calls, replayed once. torch.cuda.graph would collect garbage for longer than we time."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for call in calls:
            call()
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def contestants(
    builds: Sequence[Build], calls: Sequence[Call], peers: Sequence[str],
) -> Iterator[tuple[str, list[Any]]]:
    """Name and calls of every build and peer that is right on the first inputs; the others are named as left out."""
    for build in builds:
        runs = [build.bind(call, build.workspace(call.case)) for call in calls]
        calls[0].poison()
        runs[0]()
        if wrong := calls[0].wrong():
            say(f"{build.name}: left out, {wrong}")
        else:
            yield build.name, runs
    for name in peers:
        path = HERE / "peers" / builds[0].problem.name / f"{name}.py"
        function = imported(path).custom_kernel
        result = function(calls[0].data)
        returned = result if isinstance(result, tuple) else (result,)
        results = dict(zip(promised(path) or calls[0].outputs, returned, strict=False))
        call = calls[0].again()
        for output, value in results.items():
            call.outputs[output].copy_(value)
        if wrong := call.wrong(list(results)):
            say(f"{name}: left out, {wrong}")
        else:
            yield name, [functools.partial(function, call.data) for call in calls]


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"peer_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise SelectionError(f"no peer {path}", 2)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Energy(NamedTuple):
    """Averages of one contestant's run: microseconds and joules per call, watts, and the SM clock in MHz."""

    us: float
    joules: float
    watts: float
    mhz: float


def energy(builds: Sequence[Build], options: argparse.Namespace) -> int:
    """Each contestant alone: in a race in turns all have one clock, and at the power limit energy decides."""
    for case in cases_of(builds[0], options):
        calls = rotating(builds[0], case, options.seed)
        for name, runs in contestants(builds, calls, options.peer):
            e = sustained(runs, options.seconds)
            say(f"{case.name} {name}: {e.us:.1f} us {e.joules * 1e3:.1f} mJ {e.watts:.0f} W {e.mhz:.0f} MHz")
    return 0


def sustained(calls: Sequence[Callable[[], Any]], seconds: float) -> Energy:
    """A graph of all calls replayed for so long; the first third is not counted."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    graph = capture(calls)
    replays = max(1, int(0.01 / replayed(graph)))      # about 10 ms of work behind each wait
    clocks: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            clocks.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))

    def run(until: float) -> int:
        done = 0
        fence = [torch.cuda.Event(), torch.cuda.Event()]
        while time.monotonic() < until:
            for _ in range(replays):
                graph.replay()
            fence[0].record()
            fence[1].synchronize()       # of the batch before this one, so that the GPU never waits
            fence.reverse()
            done += replays
        torch.cuda.synchronize()
        return done

    run(time.monotonic() + seconds / 3)
    watcher = threading.Thread(target=watch)
    watcher.start()
    joules, start = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3, time.monotonic()
    count = run(start + seconds * 2 / 3) * len(calls)
    took = time.monotonic() - start
    joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3 - joules
    stop.set()
    watcher.join()
    return Energy(took / count * 1e6, joules / count, joules / took, statistics.mean(clocks))


def replayed(graph: torch.cuda.CUDAGraph) -> float:
    """Seconds of one replay between two events."""
    begin: Any = torch.cuda.Event(enable_timing=True)
    end: Any = torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


def parts(builds: Sequence[Build], options: argparse.Namespace) -> int:
    """Microseconds of each device function of a call, as the profiler's activity records have them."""
    for case in cases_of(builds[0], options):
        calls = rotating(builds[0], case, options.seed)
        for name, runs in contestants(builds, calls, options.peer):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                for run in runs:
                    run()
                torch.cuda.synchronize()
            say(f"{case.name} {name}")
            for event in sorted(profile.key_averages(), key=lambda e: -e.device_time_total):
                if event.device_time_total > 0:
                    each, count = event.device_time_total / len(runs), event.count / len(runs)
                    say(f"  {each:8.1f} us  x{count:.0f}  {event.key[:100]}")
    return 0


def once(builds: Sequence[Build], options: argparse.Namespace) -> int:
    """One call per build and case; inputs and references are made on the CPU, so that no other kernel runs."""
    bad = 0
    for case, build in itertools.product(cases_of(builds[0], options), builds):
        call = Call(build.problem, case, options.seed, build.device, made_on="cpu")
        size = build.problem.binding.workspace_bytes(case.params) if options.workspace is None else options.workspace
        space = torch.empty(size, dtype=torch.uint8, device=build.device) if size else None
        build.bind(call, space)()
        wrong = call.wrong()
        bad += bool(wrong)
        say(f"{build.name} {case.name}: {f'WRONG: {wrong}' if wrong else 'right'}")
    return bad


def program(path: Path) -> KernelSource:
    """A CUDA file that is no kernel of a problem, as ``backends`` takes it."""
    if path.suffix != ".cu" or not path.is_file():
        raise SelectionError(f"no .cu file {path}", 2)
    return KernelSource(path.absolute(), ROOT, "probes", path.stem, "cuda", path.read_text(encoding="utf-8"))


def probe(options: argparse.Namespace) -> int:
    """The exit code of a program's ``main``, which gets the words behind the file."""
    need_gpu()
    path, *words = options.kernels
    arguments = [word.encode() for word in (path, *words)]
    return int(load(program(ROOT / path if not Path(path).is_file() else Path(path)), {}).main(
        len(arguments), (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None)))


VERBS = {"bits": bits, "back-to-back": back_to_back, "late": late, "energy": energy, "parts": parts, "once": once}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=[*VERBS, "probe"])
    parser.add_argument("kernels", nargs="+", metavar="KERNEL")
    parser.add_argument("--problem", help="of kernels that are named without theirs")
    parser.add_argument("--case", action="append", metavar="GLOB", help="only cases whose name matches; repeatable")
    parser.add_argument("--shape", action="append", metavar="NAME=VALUE,...", help="this case instead; repeatable")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME", help="energy, parts: a file of peers/")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="energy: of each contestant")
    parser.add_argument("--calls", type=int, default=200, help="back-to-back: how many")
    parser.add_argument("--workspace", type=int, metavar="BYTES", help="once: instead of the problem's")
    options = parser.parse_args(arguments)
    try:
        if options.verb == "probe":
            return probe(options)
        return int(VERBS[options.verb](builds_of(options), options) > 0)
    except (SelectionError, BackendError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
