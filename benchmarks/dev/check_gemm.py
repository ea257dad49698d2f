# SPDX-License-Identifier: MIT
"""Check and time the CUDA FP8 products on a machine with an NVIDIA GPU, torch and nvcc; nothing else is needed.

    python benchmarks/dev/check_gemm.py [--only wgmma] [--candidates] [--seconds 55] [--no-sweep] [--no-time]

Each kernel gets a process of its own with a hard time limit, so that one that hangs costs no more than that. It is
built for the GPU's own arch (and mma_sync once more as sm_89 PTX that the driver translates, so that the code of the L4
build runs, too; wgmma_tma once more with waits that trap), checked against fp64 with poisoned outputs and guard bands,
then timed in turns with torch's block-scaled and row-wise products (gemm_race.py) and with every plan the heuristic
finds worth a try. ``--candidates`` sweeps the longer table of wgmma_candidates.cu. Exit status 1 if any check fails.
With $OUT set, everything is written to $OUT/check_gemm.json, too. Times are in microseconds; a plan is the index of a
tile shape and the number of parts K is split into.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import gpu
import torch
from gemm_race import (
    GUARD,
    POISON,
    UNAVAILABLE,
    WORKSPACE,
    Data,
    deepgemm_calls,
    race,
    rotating,
    torch_calls,
    workspace,
)

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ("fp8_gemm/wgmma_tma", "amd_fp8_mm/wgmma_tma", "fp8_gemm/mma_sync", "amd_fp8_mm/mma_sync")
WORTH = 2.5                 # a sweep tries plans predicted to take at most so many times the best prediction
START = time.monotonic()

# (m, n, k): every tail, one K block, long K, every m class of the heuristic.
CHECKS = {
    "fp8_gemm": [
        (1, 1, 128), (1, 576, 7168), (7, 577, 256), (7, 2112, 7168), (64, 576, 128), (64, 7168, 2048), (96, 2112, 1536),
        (128, 7168, 1536), (127, 129, 16384), (1024, 576, 7168), (1024, 7168, 256), (1024, 1536, 7168),
        (4096, 2112, 7168), (6144, 576, 1536), (6144, 4096, 512), (64, 7168, 16384),
    ],
    "amd_fp8_mm": [
        (32, 64, 128), (64, 576, 7168), (96, 2112, 1536), (1024, 576, 7168), (1024, 7168, 256), (1024, 1536, 7168),
        (6144, 576, 1536), (6144, 4096, 512),
    ],
}
FORCED = {   # every plan runs on these
    "fp8_gemm": [(5, 83, 640), (200, 330, 1280), (530, 1096, 2048)],
    "amd_fp8_mm": [(32, 64, 640), (224, 320, 1280)],
}
AMD_SHAPES = [
    (m, n, k)
    for m in (1024, 6144)
    for n, k in (
        (1536, 7168), (3072, 1536), (576, 7168), (7168, 256), (7168, 2048), (4608, 7168), (7168, 2304), (512, 7168),
        (4096, 512),
    )
]
TIMED = {
    "fp8_gemm": [
        *AMD_SHAPES,
        (4096, 7168, 16384), (8192, 8192, 8192), (4096, 4096, 7168), (4096, 24576, 1536), (4096, 2112, 7168),
        (4096, 7168, 2048), (4096, 32768, 512),
        *((m, n, k) for m in (1, 16, 64, 128)
          for n, k in ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (576, 7168))),
    ],
    "amd_fp8_mm": AMD_SHAPES,
}
SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)


class Crashed(Exception):
    """A tile shape (or -1: the shipped choice) ended in a CUDA error."""


class Kernel:
    """One built library: the problem's symbol and the entry points of gemm_plan.cu."""

    def __init__(self, problem: str, label: str, library: Path):
        self.problem, self.label = problem, label
        self.library = ctypes.CDLL(str(library))
        operands = [ctypes.c_void_p] * 5
        tail = [ctypes.c_int] * 3 + [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.symbol = getattr(self.library, problem)
        self.symbol.argtypes = operands + tail
        self.library.plan_run.argtypes = [ctypes.c_int] * 2 + operands + tail
        self.library.plan_chosen.argtypes = [ctypes.c_int] * 3 + [ctypes.c_size_t, ctypes.c_int]
        self.library.plan_cycles.argtypes = [ctypes.c_int] * 6
        self.library.plan_cycles.restype = ctypes.c_double
        self.shapes = self.library.plan_count()
        self.skip: set[int] = set()   # tile shapes known to be wrong
        self.processors = torch.cuda.get_device_properties(0).multi_processor_count

    def chosen(self, m: int, n: int, k: int) -> tuple[int, int]:
        return divmod(self.library.plan_chosen(m, n, k, WORKSPACE, self.processors), 256)

    def call(self, data: Data, plan: tuple[int, int] | None = None) -> int:
        queue = torch.cuda.current_stream().cuda_stream
        arguments = (*data.pointers(), *data.sizes, workspace().data_ptr(), WORKSPACE, queue)
        return self.symbol(*arguments) if plan is None else self.library.plan_run(*plan, *arguments)

    def plans(self, size: tuple[int, int, int]) -> list[tuple[int, int]]:
        """All that run and are worth a try."""
        cycles = {}
        for shape in set(range(self.shapes)) - self.skip:
            for splits in SPLITS:
                if splits <= size[2] // 128:
                    cycles[shape, splits] = self.library.plan_cycles(shape, splits, *size, self.processors)
        limit = WORTH * min(cycles.values())
        return [plan for plan, value in cycles.items() if value <= limit]


def build(kernel: str, candidates: bool, folder: Path, nvcc: str, only: str = "") -> dict[str, Kernel]:
    """By label: "own" for this GPU, "check" with trapping waits or as PTX, "late" and "plain": EARLY_START 0, 1;
    beside the Hopper kernel of amd_fp8_mm "one" (COPIES=1), "early" (EARLY_COPIES=1) and "mma_sync",
    the other kernel.
    """
    problem, variant = kernel.split("/")
    major, minor = torch.cuda.get_device_capability()
    native = f"{major}{minor}{'a' if major == 9 else ''}"
    own = f"arch=compute_{native},code=sm_{native}"
    file = f"{kernel}.cu"
    if variant == "wgmma_tma":
        wanted = {"own": [own], "check": [own, "-DWARPWAVE_DEBUG_TRAP"], "late": [own, "-DEARLY_START=0"]}
        if problem == "amd_fp8_mm":
            wanted |= {"mma_sync": [own], "one": [own, "-DCOPIES=1"], "early": [own, "-DEARLY_COPIES=1"]}
        else:
            wanted |= {"plain": [own, "-DEARLY_START=1"]}
        if candidates and problem == "fp8_gemm":
            file = str(ROOT / "benchmarks/dev/wgmma_candidates.cu")
    else:
        wanted = {"own": [own], "check": ["arch=compute_89,code=compute_89"]}
    jobs = []
    for label, flags in wanted.items():
        if only not in ("", label):
            continue
        library = folder / f"{label}.so"
        command = [
            nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
            "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode", *flags,
            f'-DWARPWAVE_KERNEL_FILE="{f"{problem}/mma_sync.cu" if label == "mma_sync" else file}"',
            *(f"-I{ROOT / path}" for path in (f"problems/{problem}", "kernels/cuda", "kernels/common")),
            str(ROOT / "benchmarks/dev/gemm_plan.cu"), "-o", str(library),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        jobs.append((label, library, process))
    kernels = {}
    for label, library, process in jobs:
        log, _ = process.communicate(timeout=120)
        if process.returncode != 0:
            sys.exit(f"nvcc failed on {kernel} for {label}:\n{log[-4000:]}")
        if any("spill" in line and " 0 bytes spill stores" not in line for line in log.splitlines()):
            say(f"WARNING {kernel} {label}: spills")
        kernels[label] = Kernel(problem, label, library)
    return kernels


def say(text: str) -> None:
    print(text, flush=True)


def elapsed() -> float:
    return time.monotonic() - START


def check(kernel: Kernel, data: Data, expected: tuple[torch.Tensor, torch.Tensor], plan: tuple[int, int] | None) -> str:
    """Empty if right or declined by a forced plan, else what is wrong first."""
    workspace().fill_(math.nan)
    results = []
    for _ in range(2):
        data.store.fill_(POISON)
        status = kernel.call(data, plan)
        if plan is not None and status == -1:
            return ""
        torch.cuda.synchronize()
        if status != 0:
            return f"status {status}"
        results.append(data.store.clone())
    if not torch.equal(*results):
        return "two runs differ"
    store = results[0]
    if not (bool((store[:GUARD] == POISON).all()) and bool((store[-GUARD:] == POISON).all())):
        return "guard band written"
    value, bound = expected
    got = data.c().double()
    wrong = ~((got - value).abs() <= bound)
    count = int(wrong.sum())
    if count == 0:
        return ""
    row, column = divmod(int(wrong.flatten().int().argmax()), value.shape[1])
    return (
        f"{count} of {wrong.numel()} wrong, first c[{row}, {column}] = {got[row, column].item():.6g}, "
        f"expected {value[row, column].item():.6g} +- {bound[row, column].item():.3g}"
    )


def check_all(kernels: dict[str, Kernel]) -> list[dict]:
    rows = []
    first = kernels["own"]
    shapes = [shape for shape in range(first.shapes) if shape not in first.skip]
    todo = [(size, None) for size in CHECKS[first.problem]]
    todo += [(size, (shape, splits)) for size in FORCED[first.problem] for shape in shapes for splits in (1, 2, 5)]
    cached: tuple = ()
    for number, (size, plan) in enumerate(todo):
        if not cached or cached[0] != size:
            # Heavy tails hide a wrong small block; the forced plans get scales of one size, where nothing hides.
            data = Data(*size, seed=number, problem=first.problem, plain_scales=plan is not None)
            cached = (size, data, data.expected())
        for label in ("check", "own", "one"):   # the one that traps goes first
            if label not in kernels or (label == "one" and plan is not None and plan[0] >= kernels[label].shapes):
                continue
            if size[0] * size[1] * size[2] > 2e10 and label == "check" and plan is None and "late" not in kernels:
                continue   # the translated build is about correctness; the small ones cover its code
            try:
                wrong = check(kernels[label], cached[1], cached[2], plan)
            except RuntimeError as error:   # the GPU's context is lost: the parent starts again without this shape
                used = plan or kernels[label].chosen(*size)
                say(f"CRASHED [{label}] {size} plan {used}: {str(error).splitlines()[0]}")
                raise Crashed(plan[0] if plan else -1) from error
            used = plan or kernels[label].chosen(*size)
            rows.append({"build": label, "size": size, "plan": used, "wrong": wrong})
            if wrong and sum(bool(row["wrong"]) for row in rows) <= 20:
                say(f"WRONG [{label}] {size} plan {used}: {wrong}")
    bad = sum(bool(row["wrong"]) for row in rows)
    say(f"checked {len(rows)} runs, {bad} wrong, {elapsed():.1f} s")
    return rows


def name_of(plan: tuple[int, int]) -> str:
    return "{}x{}".format(*plan)


def time_one(kernels: dict[str, Kernel], size: tuple[int, int, int], sweep: bool) -> dict:
    """Everything about one size: the sweep over plans first, then its best beside the shipped kernel and torch's."""
    kernel = kernels["own"]
    m, n, k = size
    sets = rotating(size, kernel.problem)
    long = m * n * k > 1e11
    least_calls = 1 if long else 24
    swept: dict[str, float] = {}
    if sweep:
        plans = {name_of(plan): plan for plan in kernel.plans(size)}
        swept = race(
            {name: [partial(kernel.call, data, plan) for data in sets] for name, plan in plans.items()}, 5, least_calls)
    best = sorted(swept.items(), key=lambda item: item[1])
    contestants = {"ours": [partial(kernel.call, data) for data in sets]}
    if best:
        plan = plans[best[0][0]]
        contestants["best"] = [partial(kernel.call, data, plan) for data in sets]
        for label in ("late", "plain", "early"):
            if label in kernels:
                contestants[label] = [partial(kernels[label].call, data, plan) for data in sets]
    for label in ("one", "mma_sync"):
        if label in kernels:
            contestants[label] = [partial(kernels[label].call, data) for data in sets]
    contestants.update(torch_calls(sets))
    if kernel.problem == "fp8_gemm":
        contestants.update(deepgemm_calls(sets))
    times = race(contestants, 9 if long else 15, least_calls)
    cells = " ".join(f"{name} {us:.1f}" for name, us in times.items())
    top = min(times.get("best", math.inf), times["ours"])
    near = " ".join(f"{name} {us:.1f}" for name, us in best[:4])
    chosen = name_of(kernel.chosen(*size))
    say(f"{m}x{n}x{k} {2e-6 * m * n * k / top:.0f}TF plan {chosen}: {cells}" + (f" | {near}" if near else ""))
    return {"size": size, "chosen": chosen, "us": times, "sweep": swept}


def clocks() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.draw", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"


def inside(kernel: str, options: argparse.Namespace) -> dict:
    """The work of one child process."""
    report: dict = {"kernel": kernel, "machine": clocks(), "times": []}
    with tempfile.TemporaryDirectory() as folder:
        kernels = build(kernel, options.candidates, Path(folder), options.nvcc)
        say(f"\n{kernel}: built after {elapsed():.1f} s")
        for built in kernels.values():
            built.skip = set(options.skip)
        try:
            report["checks"] = check_all(kernels)
        except Crashed as crash:
            return report | {"crashed": crash.args[0]}
        wrong = {tuple(row["plan"]) for row in report["checks"] if row["wrong"]}
        if wrong:
            say(f"wrong plans: {sorted(wrong)}")
            for built in kernels.values():
                built.skip |= {shape for shape, _ in wrong}
        if not options.no_time:
            for size in TIMED[kernels["own"].problem]:
                if size[0] > options.most_tokens:
                    continue
                if elapsed() > options.seconds:
                    say("out of time")
                    break
                report["times"].append(time_one(kernels, size, not options.no_sweep))
        for name, reason in UNAVAILABLE.items():
            say(f"at least once refused: {name}: {reason}")
    report["clocks_after"] = clocks()
    say(f"{report['clocks_after']} | {elapsed():.1f} s")
    return report


def run_child(name: str, options: argparse.Namespace) -> list[dict]:
    """The reports of one kernel: one, or several if it had to be started again without shapes that crashed."""
    reports: list[dict] = []
    skip = list(options.skip)
    while len(reports) < 4:
        left = max(options.seconds - elapsed(), 5.0)
        with tempfile.NamedTemporaryFile() as file:
            command = [sys.executable, __file__, *sys.argv[1:], "--inside", name, "--report", file.name,
                       "--seconds", str(left), "--skip", *map(str, skip)]
            try:
                status: object = subprocess.run(command, timeout=left + 20, check=False).returncode
            except subprocess.TimeoutExpired:
                status = "killed, out of time"
            if status != 0:
                say(f"FAILED {name}: {status}")
                return [*reports, {"kernel": name, "failed": str(status)}]
            reports.append(json.loads(Path(file.name).read_text()))
        if reports[-1].get("crashed", -1) < 0:
            break
        skip.append(reports[-1]["crashed"])
    return reports


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only kernels whose name contains this")
    parser.add_argument("--candidates", action="store_true", help="sweep the longer table of wgmma_candidates.cu")
    parser.add_argument("--seconds", type=float, default=55, help="start nothing new after this; killed 20 s later")
    parser.add_argument("--most-tokens", type=int, default=1 << 30, help="time only products of at most so many tokens")
    parser.add_argument("--no-time", action="store_true", help="checks only")
    parser.add_argument("--no-sweep", action="store_true", help="leave out the sweep over plans")
    parser.add_argument("--nvcc", default=os.environ.get("NVCC", "nvcc"))
    parser.add_argument("--skip", type=int, nargs="*", default=[], help="tile shapes to leave alone")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--report", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        Path(options.report).write_text(json.dumps(inside(options.inside, options)))
        return 0

    gpu.need()
    say(f"{clocks()} | torch {torch.__version__}")
    hopper = torch.cuda.get_device_capability()[0] == 9
    chosen = [name for name in KERNELS if options.only in name and (hopper or "wgmma" not in name)]
    reports = [report for name in chosen for report in run_child(name, options)]
    if out := os.environ.get("OUT"):
        Path(out, "check_gemm.json").write_text(json.dumps(reports))
    wrong = any(row["wrong"] for report in reports for row in report.get("checks", []))
    return 1 if wrong or any("failed" in report or "crashed" in report for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
