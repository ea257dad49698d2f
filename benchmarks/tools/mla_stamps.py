# SPDX-License-Identifier: MIT
"""Where the microseconds of mla_decode with 16 or 32 rows go, in graphs of many calls, on an NVIDIA GPU.

    python benchmarks/tools/mla_stamps.py [KEY=VALUE ...] [--cases 32,16,8192 ...]

The build is of a copy of kernels/ with stamps of the global timer (PATCHES). All times are microseconds since the
median block's wait for the kernel before has ended, medians over the inner calls of a graph that rotates over six
inputs. A line has the first block, one in ten, the median one, nine in ten and the last one.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import race
import race_cases

from backends.source import KernelSource, parse_define
from scoring.problem import Problem
from scoring.record import Case

ROOT = Path(__file__).resolve().parents[2]
CALLS, BLOCKS, STAMPS, PAGES, MERGES = 64, 160, 8, 128, 1024
PAGE_BYTES = 64 * 576 * 2
NAMES = ("block starts", "wait has ended", "first page asked for", "first scores", "last page asked for",
         "last products", "block ends")
MERGE_NAMES = ("merge: block starts", "merge: wait has ended", "merge: block ends")

STATE = f"""
__device__ unsigned long long stamps_of[{CALLS}][{BLOCKS}][{STAMPS}], pages_of[{CALLS}][{BLOCKS}][{PAGES}];
__device__ unsigned long long merges_of[{CALLS}][{MERGES}][3];
extern "C" void read_stamps(void* a, void* b, void* c) {{
    cudaMemcpyFromSymbol(a, stamps_of, sizeof stamps_of);
    cudaMemcpyFromSymbol(b, pages_of, sizeof pages_of);
    cudaMemcpyFromSymbol(c, merges_of, sizeof merges_of);
}}
__device__ __forceinline__ unsigned long long stamp_now() {{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}}
__device__ __forceinline__ unsigned stamp_place() {{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}}
__device__ __forceinline__ void stamp(int call, int i) {{
    if (blockIdx.x < {BLOCKS}) stamps_of[call][blockIdx.x][i] = stamp_now();
}}
__device__ __forceinline__ void stamp_page(int call, unsigned page) {{
    if (threadIdx.x % 128 == 0 && blockIdx.x < {BLOCKS} && page < {PAGES}) {{
        pages_of[call][blockIdx.x][page] = stamp_now();
    }}
}}
struct StampedBlock {{
    int call;
    __device__ __forceinline__ StampedBlock(int call) : call(call) {{ if (threadIdx.x == 0) stamp(call, 0); }}
    __device__ __forceinline__ ~StampedBlock() {{
        if (threadIdx.x != 0) return;
        stamp(call, 6);
        if (blockIdx.x < {BLOCKS}) stamps_of[call][blockIdx.x][7] = stamp_place() + 1;
    }}
}};
struct StampedMerge {{
    int call;
    __device__ __forceinline__ void at(int i) const {{
        if (threadIdx.x == 0 && blockIdx.x < {MERGES}) merges_of[call][blockIdx.x][i] = stamp_now();
    }}
    __device__ __forceinline__ StampedMerge(int call) : call(call) {{ at(0); }}
    __device__ __forceinline__ ~StampedMerge() {{ at(2); }}
}};
"""

# (file, what stands there, what stands in front of it, behind it)
SMALL_M, LOOP, COMBINE = "mla/small_m.h", "mla/small_m_mainloop.h", "mla/combine.h"
PATCHES = [
    ("mla/wgmma_shape.h", "template <class Schedule>\nstruct LatentArgumentsOf {", STATE, ""),
    ("mla/wgmma_shape.h", "    bool causal;\n    float scale;", "    int stamp;\n", ""),
    (COMBINE, "    bool paired = false;", "    int stamp = 0;\n", ""),
    (COMBINE, "    grid_dependency_release();\n", "    const StampedMerge stamped(a.stamp);\n", ""),
    (COMBINE, "        grid_dependency_wait();\n        merge_few", "        stamped.at(1);\n", ""),
    (SMALL_M, "    uint8_t* const start = swizzled_shared();\n", "    const StampedBlock stamped(a.stamp);\n", ""),
    (SMALL_M, "        wait();\n", "", "        if (threadIdx.x == 0) stamp(a.stamp, 1);\n"),   # the products' warps
    (SMALL_M, "                tma_load_3d(memory.tokens(stage, first), cache, full, 0, token, first);\n",
     "                if (part == 0) stamp(a.stamp, tile == 0 ? 2 : 4);\n", ""),
    (LOOP, "            multiply_keys(scores, stage, parity, buffer);\n",
     "", "            if (at == 0 && threadIdx.x == 0) stamp(a.stamp, 3);\n"),
    (LOOP, "            multiply_values(out, stage);\n", "", "            stamp_page(a.stamp, at);\n"),
    (LOOP, "        tile += pages;\n", "", "        if (threadIdx.x == 0) stamp(a.stamp, 5);\n"),
    ("mla_decode/wgmma_tma.cu", "    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;\n",
     "", f"    static int calls = 0;\n    a.stamp = calls++ % {CALLS};\n"),
    ("mla_decode/wgmma_tma.cu", "a.paired}, multiprocessors", "a.stamp, ", ""),
]


def patch(kernels: Path) -> None:
    """Put a copy of kernels/ with stamps there."""
    shutil.copytree(ROOT / "kernels", kernels)
    for name, there, before, behind in PATCHES:
        path = kernels / "cuda" / name
        text = path.read_text()
        if there not in text:
            raise SystemExit(f"{name} has changed: {there!r} is not there")
        path.write_text(text.replace(there, before + there + behind, 1))


def build(defines: Mapping[str, str]) -> race.Build:
    """The patched kernel, with values of its tunables."""
    with tempfile.TemporaryDirectory() as temporary:
        patch(Path(temporary) / "kernels")
        shutil.copytree(ROOT / "problems", Path(temporary) / "problems")
        source = KernelSource.read(Path(temporary) / "kernels/cuda/mla_decode/wgmma_tma.cu", Path(temporary))
        kernel = race.Build("mla_decode/wgmma_tma with stamps", source, defines)
    kernel.problem = Problem(ROOT / "problems/mla_decode")      # its files are read when they are needed
    return kernel


def five(values: list[float]) -> tuple[float, ...]:
    values = sorted(values)
    n = len(values)
    return values[0], values[n // 10], values[n // 2], values[n * 9 // 10], values[-1]


def stamps_of(library: ctypes.CDLL) -> list[Any]:
    """All stamps of all calls: of blocks, of their pages, of the merge's blocks; nanoseconds, 0 where there is none."""
    shapes = ((CALLS, BLOCKS, STAMPS), (CALLS, BLOCKS, PAGES), (CALLS, MERGES, 3))
    tables = [torch.zeros(shape, dtype=torch.int64) for shape in shapes]
    library.read_stamps(*(ctypes.c_void_p(table.data_ptr()) for table in tables))
    return tables


def run(kernel: race.Build, batch: int, heads: int, tokens: int, count: int) -> None:
    case = Case(race_cases.mla(batch, heads, tokens), "benchmarks")
    calls = [race.Call(kernel.problem, case, seed, "cuda") for seed in range(6)]
    runs = [kernel.bind(call, kernel.workspace(case)) for call in calls]
    graph = race.capture(runs * (count // 6))
    for _ in range(20):
        graph.replay()
    seconds = statistics.mean(race.replayed(graph) for _ in range(8))
    wrong = calls[0].wrong()
    race.say(f"## {batch},{heads},{tokens}: {seconds * 1e6 / count:.1f} us a call" + f", WRONG: {wrong}" * bool(wrong))
    report(stamps_of(kernel.library), count, race.say)


def report(tables: list[Any], count: int, say: Any) -> None:
    """What the last ``count`` calls did, but for the first and the last of them."""
    blocks, pages, merges = tables
    used = sorted((c for c in range(CALLS) if blocks[c, 0, 1] > 0), key=lambda c: int(blocks[c, 0, 1]))[-count:]
    lines: dict[str, list[tuple[float, ...]]] = {}
    rates: list[list[float]] = []
    ends: dict[int, list[float]] = {}
    for this, following in itertools.pairwise(used[1:]):
        rows, after = (blocks[call][blocks[call, :, 1] > 0] for call in (this, following))
        start = int(rows[:, 1].median())
        values = {name: rows[:, i] for i, name in enumerate(NAMES)}
        values |= {name: merges[this][:, i] for i, name in enumerate(MERGE_NAMES)}
        values |= {f"next: {name}": after[:, i] for i, name in enumerate(NAMES[:2])}
        for name, column in values.items():
            since = ((column[column > 0] - start) * 1e-3).tolist()
            if since:
                lines.setdefault(name, []).append(five(since))
        bins = [0.0] * 80
        for at in ((pages[this][pages[this] > start] - start) * 1e-3 / 5).long().clamp(0, 79).tolist():
            bins[at] += PAGE_BYTES / 5e-6 * 1e-12
        rates.append(bins)
        for row in rows[rows[:, 5] > 0]:
            ends.setdefault(int(row[7]) - 1, []).append(int(row[5] - start) * 1e-3)
    for name, several in lines.items():
        say(f"  {name:22s}" + "".join(f"{statistics.median(column):8.1f}" for column in zip(*several, strict=True)))
    columns = [column for column in zip(*rates, strict=True) if any(column)]
    say("  TB/s of pages done, 5 us each: " + " ".join(f"{statistics.mean(column):.2f}" for column in columns))
    means = five([statistics.mean(times) for times in ends.values()])
    spread = statistics.mean(statistics.pstdev(times) for times in ends.values())
    say("  last products, a multiprocessor's mean: " + " ".join(f"{mean:.1f}" for mean in means)
        + f"; one of them from call to call: {spread:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("defines", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--cases", nargs="+", default=["32,16,8192", "64,16,8192", "128,16,4096"])
    parser.add_argument("--calls", type=int, default=12, help="of a graph; a multiple of 6, no more than 48")
    options = parser.parse_args()
    race.need_gpu()
    kernel = build(dict(parse_define(text) for text in options.defines))
    for case in options.cases:
        run(kernel, *map(int, case.split(",")), options.calls)


if __name__ == "__main__":
    main()
