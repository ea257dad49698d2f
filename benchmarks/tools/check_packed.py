# SPDX-License-Identifier: MIT
"""Packed submissions under compute-sanitizer, and timed beside the tree's builds, on a machine with an NVIDIA GPU.

    python benchmarks/tools/check_packed.py [--only REGEX] [--sanitize] [--speed] [--cases 4] [--case GLOB] [--jobs 12]
        [--tools memcheck,racecheck,synccheck] [--seconds 100] [--folder DIR] [-D NAME=VALUE]

Packs every CUDA kernel whose name (problem/variant) matches, stages it beside its problem as a leaderboard would and
builds it once. ``--sanitize`` then calls it on test cases (every n-th, at most ``--cases`` of them; ``--case`` chooses
by name, as in ``batch=2,*hq=128*``) under each tool, several processes at a time; only kernels defined in the packed
file are instrumented, and every result is checked. Reports that differ in thread, block and address alone are told
once, with their number. ``--speed`` races the packed build with the tree's (backends compile) on a few benchmark cases,
after both have given the same bits: inputs that rotate over more than twice the L2 cache, in turns. A packed file
launches on the default stream, which no graph can capture, so the calls are queued behind a kernel that waits, and the
GPU runs them without a pause. Exit status 1 if a tool finds anything, a result is wrong, or a child fails or runs out
of time. ``--folder`` keeps what was packed and built; without ``--sanitize`` and ``--speed`` that is all that happens.
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import importlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backends.instruments import sanitizer  # noqa: E402 - the path comes first

TOOLS = ("memcheck", "racecheck", "synccheck")
HEAVY = 3e10                                # FLOP of a case that a sanitizer should not be asked to run
CACHE = 120 << 20                           # bytes of inputs to rotate over: more than twice an H200's L2
KERNEL = re.compile(r"__global__[^;{]*?\b([a-z_0-9]+)\(", re.DOTALL)
SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (.*)")


def kernel_names(text: str) -> list[str]:
    """The names of the ``__global__`` functions of a packed file; attributes' arguments are no names."""
    plain = re.sub(r"__(?:launch_bounds|cluster_dims)__\((?:[^()]|\([^()]*\))*\)", "", text)
    return sorted(set(KERNEL.findall(plain)))


def prepared(names: list[str], home: Path, tunables: list[str]) -> dict[str, Path]:
    """name -> folder with the problem's files and the packed file, built; folders that are there stay as they are."""
    from submissions.stage import stage

    folders = {name: home / name.replace("/", "-") for name in names}
    new = [name for name in names if not folders[name].exists()]
    for name in new:
        folder = folders[name]
        folder.mkdir(parents=True)
        packed = home / f"{folder.name}.py"
        # A made-up leaderboard: the real one of amd_fp8_mm, say, has no NVIDIA GPU.
        subprocess.run([sys.executable, "-m", "submissions", "pack", name, "--leaderboard", "any", "-o", str(packed),
                        *(word for tunable in tunables for word in ("-D", tunable))],
                       cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        stage(ROOT / "problems" / name.split("/")[0], packed, folder)

    def build(folder: Path) -> None:
        subprocess.run([sys.executable, "-c", "import submission"], cwd=folder, check=True, capture_output=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(build, [folders[name] for name in new]))
    return folders


def cases_of(name: str, kind: str) -> list[dict[str, Any]]:
    from scoring.popcorn.task import load_task

    task = load_task(ROOT / "problems" / name.split("/")[0])
    return [dict(case) for case in (task.tests if kind == "tests" else task.benchmarks)]


def case_name(case: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in case.items() if key != "seed")


def chosen(cases: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The cases that ``--case`` names, of these at most ``--cases``."""
    named = [case for case in cases if not options.case or any(fnmatch(case_name(case), glob) for glob in options.case)]
    return spread(named, options.cases)


def kinds(text: str) -> list[str]:
    """What compute-sanitizer said, each kind of report once, with how often it came, most frequent first."""
    return [f"{count} × {kind}" for kind, count in sanitizer.kinds(text).most_common()]


def spread(cases: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """At most ``count`` of them, evenly, the first and the last among them."""
    if len(cases) <= count:
        return cases
    return [cases[round(i * (len(cases) - 1) / max(1, count - 1))] for i in range(count)]


def child(folder: str, case: Mapping[str, Any]) -> int:
    """Call the staged submission once and check what it returns."""
    sys.path.insert(0, folder)
    import torch

    reference = importlib.import_module("reference")
    submission = importlib.import_module("submission")
    data = reference.generate_input(**case)
    output = submission.custom_kernel(data)
    torch.cuda.synchronize()
    print("called", flush=True)
    good, message = verdict(reference.check_implementation(data, output))
    print("right" if good else f"wrong: {message}")
    return 0 if good else 3


def verdict(answer: Any) -> tuple[bool, str]:
    """(passed, message) of what check_implementation returned: a message, or a pair."""
    if isinstance(answer, tuple):
        return bool(answer[0]), str(answer[1])
    return not answer, str(answer)


def sanitize(folders: Mapping[str, Path], options: argparse.Namespace) -> int:
    """Every kernel and case under every tool; one line for each kernel and tool. Returns the number of bad ones."""
    begin = time.monotonic()
    work = []
    for name, folder in folders.items():
        light = [case for case in cases_of(name, "tests") if flops(name, case) < HEAVY]
        filters = [word for kernel in kernel_names((folder / "submission.py").read_text())
                   for word in ("--kernel-name", f"kernel_substring={kernel}")]
        for tool in options.tools.split(","):
            for case in chosen(light, options):
                work.append((name, tool, case, ["compute-sanitizer", "--tool", tool, "--error-exitcode",
                                                str(sanitizer.FOUND), "--print-limit", str(sanitizer.PRINTED),
                                                *filters, sys.executable, __file__, "--child", str(folder),
                                                "--case", repr(case)]))

    if not work:
        print(f"no test case below {HEAVY / 1e9:.0f} GFLOP has a name that matches {options.case}")
        return 1

    def run(item: tuple[str, str, dict[str, Any], list[str]]) -> tuple[str, str]:
        left = options.seconds - (time.monotonic() - begin)
        if left < 5:
            return "not run", ""
        # A group of its own: what the sanitizer started must not stay on the GPU when it is killed.
        done = subprocess.Popen(item[3], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)
        try:
            text = "".join(done.communicate(timeout=left))
        except subprocess.TimeoutExpired:
            os.killpg(done.pid, signal.SIGKILL)
            done.communicate()
            return "out of time", ""
        said = "\n        ".join(["; ".join(SUMMARY.findall(text)),
                                 *(kinds(text) or [text[-300:].replace("\n", " ")])])
        return ("clean" if done.returncode == 0 and "right" in text else f"exit {done.returncode}"), said

    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(run, work))
    bad = 0
    for name in folders:
        for tool in options.tools.split(","):
            mine = [(case, *result) for (n, t, case, _), result in zip(work, results, strict=True)
                    if (n, t) == (name, tool)]
            clean = sum(outcome == "clean" for _, outcome, _ in mine)
            bad += clean != len(mine)
            print(f"{name:34} {tool:10} {clean} of {len(mine)} clean")
            for case, outcome, said in mine:
                if outcome != "clean":
                    print(f"    {outcome}: {case}: {said}")
    return bad


def flops(name: str, case: Mapping[str, Any]) -> float:
    from scoring.problem import Problem

    return float(Problem(ROOT / "problems" / name.split("/")[0]).binding.flops(case))


def speed(folders: Mapping[str, Path], options: argparse.Namespace) -> int:
    """One process per kernel, so that problems' modules of the same name do not meet."""
    bad = 0
    for name, folder in folders.items():
        try:
            done = subprocess.run([sys.executable, __file__, "--child", str(folder), "--race", name, "--cases",
                                   str(options.cases), *(w for glob in options.case or () for w in ("--case", glob))],
                                  timeout=options.seconds)
            bad += done.returncode != 0
        except subprocess.TimeoutExpired:
            print(f"{name}: out of time after {options.seconds:.0f} s; --seconds gives each kernel more", flush=True)
            bad += 1
    return bad


def race_builds(folder: str, name: str, options: argparse.Namespace) -> int:
    """Print microseconds of the packed and of the tree's build on some benchmark cases."""
    import torch

    import backends
    from backends.source import KernelSource

    sys.path.insert(0, folder)
    submission = importlib.import_module("submission")
    reference = importlib.import_module("reference")
    cuda = backends.get("cuda")
    source = KernelSource.read(ROOT / "kernels" / "cuda" / f"{name}.cu", ROOT)
    target = cuda.target("H200")
    if source.arches and target.arch not in source.arches:
        target = cuda.target(source.arches[0])      # what the packed file is made for, too; the driver translates both
    built = cuda.compile(source, target)
    packed = submission._KERNEL
    library = ctypes.CDLL(str(built.path))
    tree = getattr(library, submission.SYMBOL)
    tree.argtypes, tree.restype = packed.argtypes, packed.restype
    cases = chosen(cases_of(name, "benchmarks"), options)
    if not cases:
        print(f"{name}: no benchmark case has a name that matches {options.case}")
        return 1
    other = 0
    for case in cases:
        sets = [reference.generate_input(**case)]
        size = sum(item.numel() * item.element_size() for item in sets[0] if isinstance(item, torch.Tensor))
        for seed in range(min(24, CACHE // size + 1)):
            sets.append(reference.generate_input(**{**case, "seed": case["seed"] + 1 + seed}))

        def calls(kernel: Any, sets: list[Any] = sets) -> list[Any]:
            def call(data: Any) -> Any:
                submission._KERNEL = kernel
                return submission.custom_kernel(data)
            return [lambda data=data: call(data) for data in sets]

        packed_bits, tree_bits = (answer_bits(calls(kernel)[0]()) for kernel in (packed, tree))
        same = len(packed_bits) == len(tree_bits) and all(map(torch.equal, packed_bits, tree_bits))
        other += not same
        times = race_queued({"packed": calls(packed), "tree": calls(tree)})
        print(f"{name} {case_name(case)}: packed {times['packed']:.2f} us, tree {times['tree']:.2f}, "
              f"{times['packed'] / times['tree']:.3f}, {'same' if same else 'OTHER'} bits", flush=True)
    return 1 if other else 0


def answer_bits(answer: Any) -> list[Any]:
    """A copy of the bytes of every tensor of an answer; as bytes, NaN equals itself."""
    import torch

    items = answer if isinstance(answer, tuple | list) else [answer]
    return [item.clone().contiguous().view(torch.uint8) for item in items if isinstance(item, torch.Tensor)]


def race_queued(contestants: Mapping[str, list[Callable[[], object]]], rounds: int = 16) -> dict[str, float]:
    """Median microseconds per call on the default stream, contestants in turns, each time all calls in one queue.

    As many calls as take about 20 ms, 2 to 24.

    A waiting kernel holds the GPU while Python queues the calls. If the GPU got past it before the last one was queued,
    the measurement has Python's time in it: it is done again with a wait twice as long. RuntimeError if a second is not
    enough.
    """
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first = next(iter(contestants.values()))[0]
    first()                                 # loads the kernel
    begin.record()
    first()
    end.record()
    end.synchronize()
    least_calls = min(24, max(2, int(20 / begin.elapsed_time(end))))
    cycles = 1 << 22                        # about 2 ms
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, once in contestants.items():
            calls = once * -(-least_calls // len(once))
            while True:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda._sleep(cycles)
                begin.record()
                for call in calls:
                    call()
                end.record()
                in_time = not begin.query()
                end.synchronize()
                if in_time:
                    break
                cycles *= 2
                if cycles > 1 << 31:
                    raise RuntimeError(f"{name}: {len(calls)} calls take more than a second to queue; time them with "
                                       "fewer calls, or look for a call that waits for the GPU")
            if turn:                        # the first one warms up
                times[name].append(begin.elapsed_time(end) * 1e3 / len(calls))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("-D", dest="tunables", metavar="NAME=VALUE", action="append", default=[],
                        help="a tunable's value in the packed files; repeatable")
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--case", metavar="GLOB", action="append", help="only cases whose name matches; repeatable")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--folder", type=Path, help="where to pack and build; default: a temporary folder")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--race", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.race:
            return race_builds(options.child, options.race, options)
        return child(options.child, ast.literal_eval(options.case[0]))
    names = sorted(f"{path.parent.name}/{path.stem}" for path in (ROOT / "kernels/cuda").glob("*/*.cu"))
    names = [name for name in names if re.search(options.only, name)]
    if not names:
        parser.error(f"no CUDA kernel's name matches {options.only!r}")
    if options.sanitize and shutil.which("compute-sanitizer") is None:
        parser.error("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    if options.sanitize or options.speed:
        sys.path.insert(0, str(ROOT / "benchmarks"))
        import race  # here, since it needs torch and packing does not

        race.need_gpu()
    with tempfile.TemporaryDirectory() as home:
        begin = time.monotonic()
        folders = prepared(names, options.folder or Path(home), options.tunables)
        print(f"{len(folders)} packed and built in {time.monotonic() - begin:.0f} s", flush=True)
        bad = sanitize(folders, options) if options.sanitize else 0
        bad += speed(folders, options) if options.speed else 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
