# SPDX-License-Identifier: MIT
"""Build, check and time the steps of a ladder (benchmarks/ladder), with the tree's kernels as further steps.

    python benchmarks/dev/ladder.py [flash_attention] [fp8_gemm] [mla_decode] [--seconds 60] [--folder DIR]

Every step is checked against the problem's fp64 reference, with poisoned outputs and guard bands, then all that are
right are timed in turns: graph replays that rotate over more than twice the L2 cache, random normal data. A step that
does not take a case has no figure. ``--folder`` keeps the builds, and takes what is there. Exit status 1 if any check
fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import check_attention as lib
import gpu
import torch

ROOT = Path(__file__).resolve().parents[2]
LADDER = ROOT / "benchmarks/ladder"
TREE = {   # the place of the tree's kernels among the steps; "uncut" ones get no workspace, so that nothing is split
    "flash_attention": {"5_mma_sync": "mma_sync", "8_wgmma_tma": "wgmma_tma"},
    "fp8_gemm": {"1_mma_sync": "mma_sync", "8_wgmma_tma": "wgmma_tma"},
    "mla_decode": {"2_mma_sync_uncut": "mma_sync", "3_mma_sync": "mma_sync", "4_wgmma_tma_uncut": "wgmma_tma",
                   "5_wgmma_tma": "wgmma_tma"},
}


def gemm(m: int, n: int, k: int) -> dict[str, Any]:
    return {"m": m, "n": n, "k": k}


CHECKS = {
    "flash_attention": [lib.flash(1, 512, 512, 8, 8, 64, 0), lib.flash(2, 300, 300, 4, 2, 64, 1),
                        lib.flash(1, 100, 333, 2, 2, 64, 1), lib.flash(1, 333, 100, 2, 2, 64, 1)],
    "fp8_gemm": [gemm(1024, 576, 7168), gemm(7, 577, 256), gemm(300, 2112, 1536)],
    "mla_decode": [lib.mla(3, 16, 1000), lib.mla(2, 128, 500, "mixed", sq=2, causal=1)],
}
TIMED = {
    "flash_attention": [lib.flash(1, 512, 512, 8, 8, 64, 0), lib.flash(8, 2048, 2048, 32, 32, 64, 0),
                        lib.flash(8, 2048, 2048, 32, 32, 64, 1)],
    "fp8_gemm": [gemm(1024, 1536, 7168), gemm(4096, 4096, 7168), gemm(64, 7168, 2048), gemm(64, 2112, 7168)],
    "mla_decode": [lib.mla(128, 16, 4096), lib.mla(1, 16, 32768), lib.mla(128, 128, 4096)],
}
CACHE = 120 << 20           # bytes to rotate over: more than twice an H200's L2


def build(name: str, folder: Path) -> dict[str, Path]:
    """step -> library, in the order of the ladder; nvcc's processes run side by side."""
    sources = {path.stem: path for path in (LADDER / name).glob("*.cu")}
    sources |= {step: ROOT / f"kernels/cuda/{name}/{variant}.cu" for step, variant in TREE[name].items()}
    jobs = {}
    for step, source in sorted(sources.items()):
        if (folder / f"{name}_{step}.so").exists():
            continue
        library = folder / f"{name}_{step}.so"
        jobs[step] = library, subprocess.Popen(
            ["nvcc", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared",
             "-cudart", "static", "-gencode", "arch=compute_90a,code=sm_90a",
             *(f"-I{ROOT / path}" for path in (f"problems/{name}", "kernels/cuda", "kernels/common")), str(source),
             "-o", str(library)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for step, (_, job) in jobs.items():
        log, _ = job.communicate(timeout=240)
        if job.returncode != 0:
            sys.exit(f"nvcc failed on {name} {step}:\n{log[-3000:]}")
    return {step: folder / f"{name}_{step}.so" for step in sorted(sources)}


def space_for(problem: lib.Problem, kernel: lib.Kernel, case: dict[str, Any]) -> int:
    """Bytes of workspace a step gets."""
    return 0 if kernel.label.endswith("uncut") else problem.binding.workspace_bytes(case)


def checked(problem: lib.Problem, kernels: list[lib.Kernel]) -> list[lib.Kernel]:
    """Those that are right in every case they take."""
    wrong: set[str] = set()
    for number, case in enumerate(CHECKS[problem.name]):
        data = problem.data(case, 100 + number)
        answer = problem.reference.expected(data)
        for kernel in kernels:
            message = lib.check(kernel, case, data, answer, space_for(problem, kernel, case))
            if message:
                print(f"WRONG {problem.name} {kernel.label} {case}: {message[:400]}", flush=True)
                wrong.add(kernel.label)
    print(f"{problem.name}: {len(kernels) - len(wrong)} of {len(kernels)} steps right", flush=True)
    return [kernel for kernel in kernels if kernel.label not in wrong]


def timed(problem: lib.Problem, kernels: list[lib.Kernel], seconds: float) -> None:
    for case in TIMED[problem.name]:
        if lib.elapsed() > seconds:
            print(f"out of time before {case}")
            return
        first = problem.data(case, 1)
        size = sum(part.numel() * part.element_size() for part in first if isinstance(part, torch.Tensor))
        sets = [first, *(problem.data(case, seed) for seed in range(2, min(18, 2 + CACHE // size)))]
        contestants, held = {}, []
        for kernel in kernels:
            calls = []
            for data in sets:
                outputs = {name: torch.empty(shape, dtype=lib.dtype_of(dtype), device="cuda")
                           for name, (shape, dtype) in problem.binding.outputs(case).items()}
                size = space_for(problem, kernel, case)
                space = torch.empty(size // 4, device="cuda") if size else None
                held += [outputs, space]
                calls.append(kernel.bind(problem.binding.arguments(case, data), outputs, space))
            contestants[kernel.label] = calls
        times = lib.race(contestants, 600)
        flops = problem.binding.flops(case)
        what = ",".join(f"{key}={value}" for key, value in case.items())
        for label, us in times.items():
            print(f"{problem.name} {what} | {label} | {us:.1f} us | {flops / us / 1e6:.0f} TFLOP/s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=sorted(TREE))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--folder", type=Path, help="where to build; default: a temporary folder")
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    if not options.build_only:
        gpu.need()
    good = True
    with tempfile.TemporaryDirectory() as home:
        folder = options.folder or Path(home)
        folder.mkdir(parents=True, exist_ok=True)
        built = {name: build(name, folder) for name in options.problems}
        if options.build_only:
            return 0
        print(f"built after {lib.elapsed():.0f} s", flush=True)
        for name in options.problems:
            problem = lib.Problem(name)
            kernels = [lib.Kernel(problem, step, library) for step, library in built[name].items()]
            right = checked(problem, kernels)
            good &= len(right) == len(kernels)
            timed(problem, right, options.seconds)
            print(lib.clocks(), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
