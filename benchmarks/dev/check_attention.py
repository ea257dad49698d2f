# SPDX-License-Identifier: MIT
"""Check and time the attention kernels on a machine with an NVIDIA GPU, torch and nvcc.

    python benchmarks/dev/check_attention.py [--seconds 80] [--only flash_attention] [--no-variants] [--no-time]
        [--build LABEL=VARIANT,KEY=VALUE,...] [--labels REGEX]

Builds each kernel for the GPU's own arch, as sm_89 PTX that the driver translates at load time (so that the code of the
L4 build runs, too) and, for flash_attention, with other tile shapes. Checks every build against the problem's own fp64
reference and bounds, with poisoned outputs and workspaces, guard bands and a second run that must give the same bits;
each case runs with no workspace, a small one and the problem's. Then times by CUDA-graph replays that rotate over more
than twice the L2 cache, in turns with torch's cuDNN and FlashAttention-2 backends, or with the absorbed products in
plain torch and, where `flash_mla` can be imported, FlashMLA. Exit status 1 if any check fails. With $OUT set, all that
is written to $OUT/check_attention.json, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpu
import torch
from attention_cases import BUILDS, CHECKS, TIMED, flash, mla
from attention_harness import (
    DEVICE,
    REFUSED,
    ROOT,
    Kernel,
    Problem,
    capture,
    check,
    clocks,
    dtype_of,
    elapsed,
    module,
    race,
    say,
    torch_calls,
)

# The scripts beside this one take all of these from here.
__all__ = [
    "BUILDS", "CHECKS", "DEVICE", "REFUSED", "ROOT", "TIMED", "Kernel", "Problem", "build", "capture", "check",
    "check_all", "clocks", "dtype_of", "elapsed", "flash", "flash_mla_calls", "in_order", "mla", "module", "race",
    "say", "torch_calls",
]


def build(folder: Path, nvcc: str, problems: list[Problem], variants: bool, labels: str) -> list[Kernel]:
    major, minor = torch.cuda.get_device_capability()
    native = f"{major}{minor}{'a' if major == 9 else ''}"
    gencodes = {"native": f"arch=compute_{native},code=sm_{native}", "sm_89 ptx": "arch=compute_89,code=compute_89"}
    jobs = []
    for problem in problems:
        for label, (variant, arch, defines) in BUILDS[problem.name].items():
            if (label.startswith("tiles") and not variants) or not re.fullmatch(labels, label):
                continue
            library = folder / f"{problem.name}_{label}.so"
            command = [
                nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
                "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode", gencodes[arch],
                *(f"-D{key}={value}" for key, value in defines.items()),
                *(f"-I{ROOT / path}" for path in (f"problems/{problem.name}", "kernels/cuda", "kernels/common")),
                str(ROOT / f"kernels/cuda/{problem.name}/{variant}.cu"), "-o", str(library),
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            jobs.append((problem, label, library, process))
    kernels = []
    for problem, label, library, process in jobs:
        log, _ = process.communicate(timeout=150)
        if process.returncode != 0:
            sys.exit(f"nvcc failed on {problem.name} {label}:\n{log[-4000:]}")
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", log))
        if spills:
            say(f"note: {problem.name} [{label}] spills {spills} bytes")
        kernels.append(Kernel(problem, label, library))
    return kernels


def check_all(kernels: list[Kernel], deadline: float) -> list[dict[str, Any]]:
    rows = []
    for problem in dict.fromkeys(kernel.problem for kernel in kernels):
        for number, case in enumerate(CHECKS[problem.name]):
            if elapsed() > deadline:
                say(f"out of time: checks of {problem.name} end before {case}")
                break
            data = problem.data(case, seed=100 + number)
            sample = None if max(case["sk"] * case["sq"] * case["hq"], 1) * case["batch"] < 3e7 else 3000
            expected = problem.reference.expected(data, sample=sample)
            full = problem.binding.workspace_bytes(case)
            for kernel in (k for k in kernels if k.problem is problem):
                for space in (0, full) if kernel.label.startswith("tiles") else (0, full // 16 // 256 * 256, full):
                    wrong = check(kernel, case, data, expected, space)
                    rows.append({"problem": problem.name, "build": kernel.label, "case": case, "workspace": space,
                                 "wrong": wrong})
                    if wrong:
                        say(f"WRONG {problem.name} [{kernel.label}] {case} workspace {space}: {wrong[:700]}")
                        if wrong.startswith("status"):
                            return rows
    bad = sum(bool(row["wrong"]) for row in rows)
    say(f"checked {len(rows)} runs, {bad} wrong, {elapsed():.1f} s")
    return rows


def flash_mla_calls(sets: list[Any]) -> list[Callable[[], Any]]:
    """FlashMLA on mla_decode's inputs, its schedule computed beforehand; none where the package is missing."""
    try:
        import flash_mla
    except ImportError:
        return []
    calls: list[Callable[[], Any]] = []
    for q, cache, table, lengths, causal, scale in sets:
        schedule, _ = flash_mla.get_mla_metadata()
        calls.append(partial(
            flash_mla.flash_mla_with_kvcache, q, cache, table, lengths, 512, schedule, softmax_scale=scale,
            causal=causal))
        calls[-1]()     # computes the schedule
    return calls


def in_order(data: Any) -> Any:
    """The same mla_decode input with pages one behind the other: what random places cost is the difference."""
    q, cache, table, *rest = data
    return (q, cache, torch.arange(table.numel(), dtype=table.dtype, device=DEVICE).view(table.shape), *rest)


def time_all(kernels: list[Kernel], deadline: float) -> list[dict[str, Any]]:
    rows = []
    for problem in dict.fromkeys(kernel.problem for kernel in kernels):
        say(f"\n{problem.name}: us (" + ("TFLOP/s" if problem.name == "flash_attention" else "GB/s") + ")")
        for case in TIMED[problem.name]:
            if elapsed() > deadline:
                say("out of time")
                return rows
            binding = problem.binding
            moved, flops = binding.bytes_moved(case), binding.flops(case)
            cache = torch.cuda.get_device_properties(0).L2_cache_size
            count = max(2, min(16, math.ceil(2.2 * cache / moved)))
            sets = [problem.data(case, seed=i) for i in range(count)]
            keep: list[Any] = []
            contestants: dict[str, list[Callable[[], Any]]] = {}
            full = binding.workspace_bytes(case)
            for kernel in (k for k in kernels if k.problem is problem):
                variants = {"": (full, sets)}
                if kernel.label in ("ours", "wgmma"):
                    variants[" nosplit"] = (0, sets)
                    if kernel.label == "ours" and problem.name == "mla_decode" and case["lens"] == "uniform":
                        variants[" inorder"] = (full, [in_order(data) for data in sets])
                for suffix, (size, inputs) in variants.items():
                    calls = []
                    for data in inputs:
                        outputs = {
                            name: torch.empty(shape, dtype=dtype_of(dtype), device=DEVICE)
                            for name, (shape, dtype) in binding.outputs(case).items()}
                        space = torch.empty(size // 4, device=DEVICE) if size else None
                        keep.append((data, outputs, space))
                        calls.append(kernel.bind(binding.arguments(case, data), outputs, space))
                    contestants[kernel.label + suffix] = calls
            contestants.update(torch_calls(problem, sets))
            if problem.name == "mla_decode" and (calls := flash_mla_calls(sets)):
                contestants["flash_mla"] = calls
            result = race(contestants)
            rate = flops * 1e-6 if problem.name == "flash_attention" else moved * 1e-3
            short = " ".join(str(value) for value in case.values())
            say(f"{short}: " + "  ".join(f"{name} {us:.1f} ({rate / us:.0f})" for name, us in result.items()))
            rows.append({"problem": problem.name, "case": case, "flops": flops, "bytes": moved, "us": result})
            del sets, contestants, keep
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=80, help="start nothing new after this long")
    parser.add_argument("--only", choices=sorted(BUILDS), help="one problem")
    parser.add_argument("--no-time", action="store_true", help="checks only")
    parser.add_argument("--no-variants", action="store_true", help="the shipped tile shapes only")
    parser.add_argument(
        "--build", action="append", default=[], metavar="LABEL=VARIANT,KEY=VALUE",
        help="one more, of the problem of --only")
    parser.add_argument("--labels", default=".*", help="a pattern: only builds whose labels match")
    parser.add_argument("--nvcc", default=os.environ.get("NVCC", "nvcc"))
    options = parser.parse_args()
    gpu.need()
    say(f"{clocks()} | torch {torch.__version__}")
    report: dict[str, Any] = {"machine": clocks()}
    for text in options.build:
        label, _, rest = text.partition("=")
        variant, *defines = rest.split(",")
        BUILDS[options.only][label] = (
            variant, "native", {key: int(value) for key, value in (define.split("=") for define in defines)})
    problems = [Problem(name) for name in BUILDS if options.only in (None, name)]
    with tempfile.TemporaryDirectory() as folder:
        kernels = build(Path(folder), options.nvcc, problems, not options.no_variants, options.labels)
        say(f"built after {elapsed():.1f} s")
        report["checks"] = check_all(kernels, options.seconds * 0.5)
        wrong = {(row["problem"], row["build"]) for row in report["checks"] if row["wrong"]}
        crashed = any(row["wrong"].startswith("status") for row in report["checks"])
        if not options.no_time and not crashed:
            right = [kernel for kernel in kernels if (kernel.problem.name, kernel.label) not in wrong]
            report["times"] = time_all(right, options.seconds)
        for name, reason in REFUSED.items():
            say(f"at least once refused: {name}: {reason}")
        report["clocks_after"] = clocks()
        say(f"{report['clocks_after']} | {elapsed():.1f} s")
    if out := os.environ.get("OUT"):
        Path(out, "check_attention.json").write_text(json.dumps(report))
    return 1 if wrong or not report["checks"] else 0


if __name__ == "__main__":
    sys.exit(main())
