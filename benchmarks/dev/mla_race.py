# SPDX-License-Identifier: MIT
"""Race builds of mla_decode with each other and with FlashMLA, where that can be imported, on an NVIDIA GPU.

    python benchmarks/dev/mla_race.py LABEL=VARIANT,KEY=VALUE,... [...] [--seconds 80] [--cases REGEX]

Builds all labels at once. Each first runs three small cases in a process of its own under a time limit, so that a
kernel that hangs costs only itself. Then the checks of check_attention.py, its races (median of graph replays that
rotate over more than twice L2, contestants in turns), and per build 1 - 2 sum(xy) / sum(x^2 + y^2) and the LSE's
largest error. A variant may come from another tree (ROOT:VARIANT).
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_attention as lib
import gpu
from energy import sustained

PROBES = [lib.mla(4, 16, 330, "mixed"), lib.mla(4, 64, 900, "mixed"), lib.mla(3, 128, 900, "ragged", 2, 1)]
TIMED = [*lib.TIMED["mla_decode"], lib.mla(128, 128, 8192), lib.mla(128, 64, 8192), lib.mla(1, 64, 32768),
         lib.mla(32, 64, 8192), lib.mla(8, 16, 8192), lib.mla(16, 16, 8192), lib.mla(32, 16, 8192, "ragged"),
         lib.mla(64, 16, 8192, "ragged")]
# 64 heads: no more than a request for each multiprocessor, one for each, few, half a request for each; unequal lengths.
TIMED += [lib.mla(batch, 64, tokens, lengths) for batch, tokens, lengths in (
    (4, 4096, "uniform"), (130, 4096, "uniform"), (132, 4096, "uniform"), (64, 8192, "uniform"), (128, 4096, "ragged"),
    (128, 8192, "ragged"), (64, 8192, "ragged"), (128, 4096, "mixed"), (64, 4096, "mixed"))]


def builds(folder: Path, specs: list[str], nvcc: str) -> dict[str, Path]:
    """Compile every label; those that fail are reported and left out."""
    jobs = []
    for spec in specs:
        label, _, rest = spec.partition("=")
        variant, *defines = rest.split(",")
        root = lib.ROOT
        if ":" in variant:
            place, _, variant = variant.partition(":")
            root = Path(place)
        library = folder / f"{label}.so"
        command = [
            nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-Xcompiler",
            "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode", "arch=compute_90a,code=sm_90a",
            *(f"-D{define}" for define in defines), f"-I{lib.ROOT / 'problems/mla_decode'}",
            f"-I{root / 'kernels/cuda'}", f"-I{root / 'kernels/common'}",
            str(root / f"kernels/cuda/mla_decode/{variant}.cu"), "-o", str(library)]
        jobs.append((label, library, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    made = {}
    for label, library, process in jobs:
        log, _ = process.communicate(timeout=200)
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", log))
        noted = [line for line in log.splitlines() if "Performance Loss" in line or "warning" in line]
        if process.returncode != 0:
            lib.say(f"NOT BUILT {label}: {log[-1500:]}")
            continue
        if spills or noted:
            lib.say(f"note: {label} spills {spills} bytes {noted[:2]}")
        made[label] = library
    return made


def probe(library: str) -> int:
    """Three small cases; the exit status says whether they were right."""
    problem = lib.Problem("mla_decode")
    kernel = lib.Kernel(problem, "probe", Path(library))
    for number, case in enumerate(PROBES):
        data = problem.data(case, seed=7 + number)
        expected = problem.reference.expected(data)
        for space in (0, problem.binding.workspace_bytes(case)):
            wrong = lib.check(kernel, case, data, expected, space)
            if wrong:
                lib.say(f"{case} workspace {space}: {wrong[:500]}")
                if wrong.startswith("status"):
                    return 3
    return 0


def probed(made: dict[str, Path]) -> list[str]:
    """Labels whose probe ended at all; wrong results are left to the checks."""
    running = {
        label: subprocess.Popen(
            [sys.executable, __file__, "--probe", str(library)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        for label, library in made.items()}
    alive = []
    for label, process in running.items():
        try:
            log, _ = process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            lib.say(f"HANGS {label}")
            continue
        if log.strip():
            lib.say(f"probe {label} [{process.returncode}]: {log.strip()[-900:]}")
        if process.returncode == 0:
            alive.append(label)
    return alive


def accuracy(kernels: list[lib.Kernel]) -> None:
    """FlashMLA's own gates: cos_diff <= 5e-6, and the largest error of the LSE."""
    problem = kernels[0].problem
    for case in (lib.mla(8, 16, 4096), lib.mla(4, 64, 3001, "mixed", 2, 1), lib.mla(2, 128, 8192)):
        data = problem.data(case, seed=3)
        expected = problem.reference.expected(data, sample=2000)
        found = []
        for kernel in kernels:
            outputs = {name: torch.empty(shape, dtype=lib.dtype_of(dtype), device=lib.DEVICE)
                       for name, (shape, dtype) in problem.binding.outputs(case).items()}
            space = torch.empty(problem.binding.workspace_bytes(case) // 4, device=lib.DEVICE)
            kernel.bind(problem.binding.arguments(case, data), outputs, space)()
            o, lse = (outputs[e.name][e.index] if e.index is not None else outputs[e.name] for e in expected)
            x, y = o.double(), expected[0].values.double()
            cosine = float(1 - 2 * (x * y).sum() / (x * x + y * y).sum())
            finite = expected[1].values.isfinite()
            error = float((lse.double() - expected[1].values)[finite].abs().max())
            found.append(f"{kernel.label} {cosine:.1e}/{error:.1e}")
        lib.say(f"cos_diff/lse {' '.join(str(v) for v in case.values())}: " + "  ".join(found))


def cool(contestants: dict[str, list[Callable[[], Any]]], pause: float) -> None:
    """Each alone, behind a pause in seconds: the first calls, at the highest clock, and those after 0.3 s."""
    for name, calls in contestants.items():
        graph = lib.capture(calls)
        torch.cuda.synchronize()
        time.sleep(pause)
        events, begin = [torch.cuda.Event(enable_timing=True)], time.monotonic()
        events[0].record()
        while time.monotonic() - begin < 0.3:
            for _ in range(8):
                graph.replay()
                events.append(torch.cuda.Event(enable_timing=True))
                events[-1].record()
            torch.cuda.synchronize()
        us = [a.elapsed_time(b) * 1e3 / len(calls) for a, b in itertools.pairwise(events)]
        first, later = statistics.median(us[:8]), statistics.median(us[-24:])
        lib.say(f"    behind a pause, {name}: {first:.1f} us, later {later:.1f}")


def race(
    kernels: list[lib.Kernel], cases: str, deadline: float, least_sets: int, least_calls: int, milliseconds: float,
    power: float, powered: str, pause: float,
) -> None:
    problem = kernels[0].problem
    binding = problem.binding
    for case in TIMED:
        text = f"{case['batch']},{case['hq']},{case['sk']}" + ("" if case["lens"] == "uniform" else " " + case["lens"])
        text += " causal2" if case["sq"] == 2 else ""
        if not re.search(cases, text):
            continue
        if lib.elapsed() > deadline:
            lib.say("out of time")
            return
        moved, flops = binding.bytes_moved(case), binding.flops(case)
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        sets = [problem.data(case, seed=i) for i in range(max(least_sets, min(16, math.ceil(2.2 * cache / moved))))]
        contestants: dict[str, list[Callable[[], Any]]] = {}
        keep = []
        for kernel in kernels:
            calls = []
            for data in sets:
                outputs = {name: torch.empty(shape, dtype=lib.dtype_of(dtype), device=lib.DEVICE)
                           for name, (shape, dtype) in binding.outputs(case).items()}
                space = torch.empty(binding.workspace_bytes(case) // 4, device=lib.DEVICE)
                keep.append((outputs, space))
                calls.append(kernel.bind(binding.arguments(case, data), outputs, space))
            contestants[kernel.label] = calls
        try:
            if peer := lib.flash_mla_calls(sets):
                contestants["flash_mla"] = peer
        except Exception as error:  # noqa: BLE001 - a peer that fails is left out
            lib.say(f"flash_mla: {error}")
        result = lib.race(contestants, milliseconds, least_calls)
        reference = result.get("flash_mla")
        best = min(result.values())
        say = f"{text}: {moved * 1e-3 / best:.0f} GB/s {flops * 1e-6 / best:.0f} TF | "
        lib.say(say + "  ".join(
            f"{name} {us:.1f}" + (f" x{reference / us:.2f}" if reference else "") for name, us in result.items()))
        if pause:
            cool(contestants, pause)
        if power:
            chosen = {name: calls for name, calls in contestants.items() if re.search(powered, f"{text} {name}")}
            for name, e in sustained(chosen, power).items():
                lib.say(f"    alone, {name}: {e.us:.1f} us {e.joules * 1e3:.1f} mJ {e.watts:.0f} W {e.mhz:.0f} MHz")
        del sets, contestants, keep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", metavar="LABEL=[ROOT:]VARIANT,KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--cases", default=".*", help="a pattern of batch,heads,tokens to time")
    parser.add_argument("--power", type=float, default=0, help="run each contestant alone for so many seconds, too")
    parser.add_argument("--powered", default=".*", help="which of them: a pattern of 'batch,heads,tokens LABEL'")
    parser.add_argument("--pause", type=float, default=0, help="time first calls behind so many seconds' pause, too")
    parser.add_argument("--sets", type=int, default=2, help="so many inputs take turns at least")
    parser.add_argument("--calls", type=int, default=1, help="a graph has so many calls at least")
    parser.add_argument("--milliseconds", type=float, default=200, help="of a row, in five rounds or more")
    parser.add_argument("--checked", default="", help="check these labels only (a pattern); default all")
    parser.add_argument("--folder", help="where builds go, or come from when no specs are given")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--no-probe", action="store_true")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    parser.add_argument("--nvcc", default=os.environ.get("NVCC", "nvcc"))
    options = parser.parse_args()
    if options.probe:
        return probe(options.probe)
    if not options.build_only:
        gpu.need()
    lib.say(lib.clocks())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(exist_ok=True)
        made = builds(folder, options.specs, options.nvcc)
        made = made or {path.stem: path for path in sorted(folder.glob("*.so"))}
        lib.say(f"built after {lib.elapsed():.1f} s")
        if options.build_only:
            return 0
        alive = sorted(made) if options.no_probe else probed(made)
        lib.say(f"probed after {lib.elapsed():.1f} s")
        problem = lib.Problem("mla_decode")
        kernels = [lib.Kernel(problem, label, made[label]) for label in alive]
        if not kernels:
            return 1
        rows = lib.check_all(
            [k for k in kernels if re.search(options.checked or ".*", k.label)], options.seconds * 0.5)
        wrong = {row["build"] for row in rows if row["wrong"]}
        lib.say(f"wrong: {sorted(wrong)}")
        accuracy(kernels)
        race(kernels, options.cases, options.seconds, options.sets, options.calls, options.milliseconds, options.power,
             options.powered, options.pause)
        lib.say(f"{lib.clocks()} | {lib.elapsed():.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
