# SPDX-License-Identifier: MIT
"""Race builds of fp8_gemm/wgmma_tma that differ by -D flags, plan by plan, with DeepGEMM where it can be imported.

    python benchmarks/dev/gemm_variants.py build FOLDER base= new=-DSOMETHING=1 …      # needs no GPU
    python benchmarks/dev/gemm_variants.py race FOLDER 4096x4096x7168:0,1 6144x576x7168:2 … [--chosen]
    python benchmarks/dev/gemm_variants.py differences FOLDER 4096x4096x7168 …
    python benchmarks/dev/gemm_variants.py table FOLDER       # the shipped kernel's plans on every shape of the log

`build` compiles wgmma_large.cu (or --table) once per name, all at the same time. `race` checks every plan of every
build against fp64 first, each build in a process of its own with a time limit, then times those that were right in
turns. A plan is the index of an instance, or of one and the parts of K (`3x2`). `warm` has DeepGEMM compile what a race
will call. `differences` prints calc_diff, 1 - 2<x, y> / (|x|^2 + |y|^2), against fp64. `table` checks the plans that a
build chooses, races them with DeepGEMM (the better of with and without early launch) and cuBLASLt's block-scaled
product, and prints a row of Markdown per shape and the geometric means.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKED = ((5, 83, 640), (530, 1096, 2048), (1024, 512, 1152), (1028, 904, 1152), (2300, 1534, 512))


def compile_all(folder: Path, builds: dict[str, list[str]], table: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {}
    for name, flags in builds.items():
        command = [
            "nvcc", "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
            "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static",
            "-gencode", "arch=compute_90a,code=sm_90a", *flags, f'-DWARPWAVE_KERNEL_FILE="{ROOT / table}"',
            *(f"-I{ROOT / path}" for path in ("problems/fp8_gemm", "kernels/cuda", "kernels/common")),
            str(ROOT / "benchmarks/dev/gemm_plan.cu"), "-o", str(folder / f"{name}.so"),
        ]
        jobs[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    failed = 0
    for name, job in jobs.items():
        log, _ = job.communicate()
        (folder / f"{name}.log").write_text(log)
        spills = [line.strip() for line in log.splitlines() if "spill" in line and " 0 bytes spill stores" not in line]
        serial = log.count("serialized")
        print(f"{name}: status {job.returncode}, spilling {len(spills)} {spills[:2]}, serialised {serial}", flush=True)
        if job.returncode != 0:
            print(log[-1500:])
            failed += 1
    return failed


def plans_of(text: str) -> tuple[tuple[int, int, int], list[tuple[int, int]]]:
    size, _, plans = text.partition(":")
    m, n, k = map(int, size.split("x"))
    pairs = [tuple(map(int, f"{plan}x1".split("x")[:2])) for plan in plans.split(",") if plan]
    return (m, n, k), pairs   # type: ignore[return-value]


def check_inside(library: Path, runs: list[str]) -> int:
    """In a process of its own: the plans of one build that are right, one per line."""
    from check_gemm import Kernel, check
    from gemm_race import Data

    kernel = Kernel("fp8_gemm", library.stem, library)
    asked = sorted({plan for run in runs for plan in plans_of(run)[1]})
    for size in CHECKED:
        data = Data(*size, seed=5, problem="fp8_gemm", plain_scales=True)
        expected = data.expected()
        for plan in (None, *asked):   # None: the one it chooses
            wrong = check(kernel, data, expected, plan)
            label = "chosen" if plan is None else f"{plan[0]}x{plan[1]}"
            print(f"{'WRONG' if wrong else 'right'} {label} {size} {wrong}", flush=True)
    return 0


def checked(folder: Path, names: list[str], runs: list[str], seconds: float) -> dict[str, set[str]]:
    """The right plans of each build."""
    right: dict[str, set[str]] = {}
    command = [sys.executable, __file__, "check"]
    jobs = {
        name: subprocess.Popen([*command, str(folder / f"{name}.so"), *runs], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        for name in names
    }
    end = time.monotonic() + seconds
    for name, job in jobs.items():
        try:
            text, _ = job.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            job.kill()
            text = job.communicate()[0] + "\nout of time"
        error = text.strip().splitlines()[-1] if text.strip() else ""
        lines = [line.split(maxsplit=2) for line in text.splitlines() if line.startswith(("right", "WRONG"))]
        wrong = {line[1] for line in lines if line[0] == "WRONG"}
        seen = [line[1] for line in lines]
        right[name] = {plan for plan in seen if seen.count(plan) == len(CHECKED)} - wrong
        print(f"{name}: {len(right[name])} plans right, wrong {sorted(wrong)}; {error[-160:]}", flush=True)
        for line in lines:
            if line[0] == "WRONG":
                print("   ", *line, flush=True)
    return right


def race_all(folder: Path, names: list[str], runs: list[str], options: argparse.Namespace) -> None:
    from check_gemm import Kernel, clocks
    from gemm_race import UNAVAILABLE, deepgemm_calls, race, rotating

    start = time.monotonic()
    also = {}   # by build: the plans, and the sizes they run on
    for text in options.also:
        name, plan, sizes = text.split(":")
        also[name] = (plans_of(f"1x1x1:{plan}")[1], {plans_of(size)[0] for size in sizes.split(",")})
    every = [*runs, *(f"1x1x1:{text.split(':')[1]}" for text in options.also)]
    right = checked(folder, names, every, options.check_seconds) if not options.unchecked else {}
    kernels = {name: Kernel("fp8_gemm", name, folder / f"{name}.so") for name in names}
    print(f"checked after {time.monotonic() - start:.1f} s | {clocks()}", flush=True)
    for run in runs:
        if time.monotonic() - start > options.seconds:
            print("out of time")
            break
        size, plans = plans_of(run)
        sets = rotating(size, "fp8_gemm")
        contestants = {}
        for name, kernel in kernels.items():
            theirs, sizes = also.get(name, (plans, {size}))
            for plan in theirs if size in sizes else ():
                label = f"{plan[0]}x{plan[1]}"
                if options.unchecked or label in right[name]:
                    contestants[f"{name}:{label}"] = [partial(kernel.call, data, plan) for data in sets]
            if options.chosen and name not in also and (options.unchecked or "chosen" in right[name]):
                contestants[f"{name}:chosen"] = [partial(kernel.call, data) for data in sets]
        contestants |= deepgemm_calls(sets)
        times = race(contestants, options.rounds, 1 if math.prod(size) > 1e11 else 24)
        peer = min((us for name, us in times.items() if name.startswith("deepgemm")), default=0.0)
        cells = " ".join(f"{name} {us:.1f}({peer / us:.3f})" for name, us in times.items())
        print(f"{'x'.join(map(str, size))}: {cells} | {clocks().split(',')[2]}", flush=True)
    print(UNAVAILABLE, f"{time.monotonic() - start:.1f} s")


def table(folder: Path, name: str, options: argparse.Namespace) -> int:
    from check_gemm import TIMED, Kernel, check, clocks
    from gemm_race import UNAVAILABLE, Data, deepgemm_calls, race, rotating, torch_calls

    start = time.monotonic()
    kernel = Kernel("fp8_gemm", name, folder / f"{name}.so")
    print(f"{clocks()}\n| M×N×K | plan | ours | DeepGEMM | cuBLASLt block | DeepGEMM / ours | block / ours |")
    print("|---" * 7 + "|")
    ratios: dict[str, list[tuple[float, float]]] = {}
    bad = 0
    for size in sorted(TIMED["fp8_gemm"], key=lambda size: (size[0] <= 128, size)):
        if time.monotonic() - start > options.seconds:
            print("out of time")
            break
        m, n, k = size
        data = Data(*size, seed=7, problem="fp8_gemm", plain_scales=True)
        # fp64 products of the largest shapes would take longer than the race
        wrong = check(kernel, data, data.expected(), None) if m * n * k < 5e10 else ""
        bad += bool(wrong)
        sets = rotating(size, "fp8_gemm")
        contestants = {"ours": [partial(kernel.call, data) for data in sets]}
        contestants |= deepgemm_calls(sets) | {"block": torch_calls(sets)["block"]}
        times = race(contestants, options.rounds, 1 if m * n * k > 1e11 else 24)
        ours, block = times["ours"], times.get("block", math.nan)
        peer = min((us for label, us in times.items() if label.startswith("deepgemm")), default=math.nan)
        shape, splits = kernel.chosen(*size)
        group = "decode" if m <= 128 else "challenge" if m in (1024, 6144) else "large"
        ratios.setdefault(group, []).append((ours, peer))
        cells = (f"{ours:.1f}", f"{peer:.1f}", f"{block:.1f}", f"{peer / ours:.2f}×", f"{block / ours:.2f}×")
        known = ("–" if cell.startswith("nan") else cell for cell in cells)
        print(f"| {m}×{n}×{k} | {shape}x{splits} |", *(f"{cell} |" for cell in known), wrong, flush=True)
    for group, pairs in ratios.items():
        ours, peer = (statistics.geometric_mean([pair[i] for pair in pairs]) for i in (0, 1))
        print(f"{group}: {len(pairs)} shapes, {ours:.2f} and DeepGEMM {peer:.2f} us, {peer / ours:.3f}")
    print(UNAVAILABLE, f"{bad} wrong, {time.monotonic() - start:.1f} s, {clocks()}")
    return int(bad > 0)


def warm(runs: list[str]) -> None:
    """Have DeepGEMM compile what a race will call."""
    from gemm_race import Data, deepgemm_calls

    for run in runs:
        data = Data(*plans_of(run)[0], seed=1, problem="fp8_gemm", plain_scales=True)
        for calls in deepgemm_calls([data]).values():
            calls[0]()


def differences(folder: Path, name: str, runs: list[str]) -> None:
    import torch
    from check_gemm import Kernel
    from gemm_race import Data, deepgemm_calls

    def difference(x: torch.Tensor, y: torch.Tensor) -> float:
        x, y = x.double(), y.double()
        return float(1 - 2 * (x * y).sum() / (x * x + y * y).sum())

    kernel = Kernel("fp8_gemm", name, folder / f"{name}.so")
    for run in runs:
        size, _ = plans_of(run)
        data = Data(*size, seed=11, problem="fp8_gemm", plain_scales=True)
        exact, _ = data.expected()
        kernel.call(data)
        row = [f"ours {difference(data.c(), exact):.3e}"]
        calls = deepgemm_calls([data])
        if "deepgemm" in calls:
            call = calls["deepgemm"][0]
            out = call.__defaults__[2]
            call()
            row.append(f"deepgemm {difference(out, exact):.3e}")
        row.append(f"rounding alone {difference(exact.bfloat16(), exact):.3e}")
        print("x".join(map(str, size)), *row, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "race", "check", "differences", "table", "warm"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--table", default="benchmarks/dev/wgmma_large.cu")
    parser.add_argument("--only", default="", help="race only these builds, separated by commas")
    parser.add_argument("--also", nargs="*", default=[], metavar="BUILD:PLANS:SIZES", help="builds for some sizes only")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=40, help="start no new size after this")
    parser.add_argument("--check-seconds", type=float, default=25, help="for all builds")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--chosen", action="store_true", help="also time the plan each build chooses by itself")
    options = parser.parse_args()
    if options.what == "build":
        builds = {name: flags.split() for name, _, flags in (text.partition("=") for text in options.arguments)}
        return compile_all(options.folder, builds, options.table)
    import gpu  # here, since it needs torch and building does not

    gpu.need()
    if options.what == "check":
        return check_inside(options.folder, options.arguments)
    names = options.only.split(",") if options.only else sorted(path.stem for path in options.folder.glob("*.so"))
    if options.what == "table":
        return table(options.folder, names[0], options)
    if options.what == "warm":
        warm(options.arguments)
    elif options.what == "differences":
        differences(options.folder, names[0], options.arguments)
    else:
        race_all(options.folder, names, options.arguments, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
