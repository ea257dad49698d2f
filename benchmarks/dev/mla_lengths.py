# SPDX-License-Identifier: MIT
"""Requests of different lengths: mla_decode on an NVIDIA GPU with unequal lengths, and with lengths that change.

    python benchmarks/dev/mla_lengths.py LIBRARY.so [...] [--calls 1,16] [--race-only]

1. One captured call, replayed with other lengths in the same tensor (0, 1, page edges, the longest), results checked
   each time; everything behind the new lengths is set to NaN. 16, 64 and 128 heads, one and two queries.
2. One request of 131072 tokens among 63 of 1024, and 64 nearly equal ones (46 to 50 pages), against 64 equal ones with
   the same total: median of graph replays, cold cache, in turns; all results are checked. Several builds, and FlashMLA
   where that can be imported, take part in one race.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_attention as lib
import gpu

PAGE, WIDTH = 64, 576


def batch_of(lengths: list[int], heads: int, queries: int, causal: bool, seed: int) -> Any:
    """Inputs of mla_decode with these lengths, pages in random places, NaN behind each request's end."""
    generator = torch.Generator(lib.DEVICE).manual_seed(seed)
    pages = [math.ceil(length / PAGE) for length in lengths]
    q = torch.randn(len(lengths), queries, heads, WIDTH, device=lib.DEVICE, generator=generator).bfloat16()
    cache = torch.randn(sum(pages) + 1, PAGE, 1, WIDTH, device=lib.DEVICE, generator=generator).bfloat16()
    places = torch.randperm(sum(pages), device=lib.DEVICE, generator=generator).int()
    table = torch.zeros(len(lengths), max(pages), dtype=torch.int32, device=lib.DEVICE)
    begin = 0
    for request, count in enumerate(pages):
        table[request, :count] = places[begin:begin + count]
        begin += count
    data = (q, cache, table, torch.tensor(lengths, dtype=torch.int32, device=lib.DEVICE), causal, WIDTH ** -0.5)
    hide(data, lengths)
    return data


def hide(data: Any, lengths: list[int]) -> None:
    """NaN in all slots of each request from its length on."""
    _, cache, table, before, *_ = data
    for request, length in enumerate(lengths):
        last = math.ceil(int(before[request]) / PAGE)
        cache[table[request, math.ceil(length / PAGE):last].long()] = math.nan
        if length % PAGE:
            cache[int(table[request, length // PAGE]), length % PAGE:] = math.nan


def bound(kernel: lib.Kernel, case: dict[str, Any], data: Any) -> tuple[Any, dict[str, torch.Tensor], Any]:
    """(call, outputs, what must stay alive) of a kernel on these inputs, with the workspace the problem offers."""
    binding = kernel.problem.binding
    outputs = {name: torch.empty(shape, dtype=lib.dtype_of(dtype), device=lib.DEVICE)
               for name, (shape, dtype) in binding.outputs(case).items()}
    space = torch.empty(binding.workspace_bytes(case) // 4, device=lib.DEVICE)
    return kernel.bind(binding.arguments(case, data), outputs, space), outputs, space


def wrong(kernel: lib.Kernel, data: Any, outputs: dict[str, torch.Tensor]) -> str:
    """Empty, or what is wrong first among a sample of rows."""
    expected = kernel.problem.reference.expected(data, sample=2000)
    passed, message = kernel.problem.reference.check_outputs(expected, tuple(outputs.values()))
    return "" if passed else str(message)


def unequal(kernels: list[lib.Kernel], heads: int, calls: list[int], count: int) -> list[str]:
    """The builds whose results are wrong. ``calls``: how many a graph has at least; one race for each number.

    ``count`` inputs take turns. Of few of them some stays in L2 where that is told to drop pages first.
    """
    equal = (131072 + 63 * 1024) // 64
    lengths = {"one long": [131072] + [1024] * 63, "near": [equal + 64 * (i * 3 % 5 - 2) for i in range(64)],
               "equal": [equal] * 64}
    sets = {label: [batch_of(each, heads, 1, False, seed) for seed in range(count)] for label, each in lengths.items()}
    contestants: dict[str, list[Any]] = {}
    keep: list[Any] = []
    bad: list[str] = []
    for kernel in kernels:
        for label, each in lengths.items():
            bound_calls = [bound(kernel, lib.mla(64, heads, max(each)), data) for data in sets[label]]
            keep.append((kernel, label, bound_calls))
            contestants[f"{kernel.label} {label}"] = [call for call, _, _ in bound_calls]
    names = [kernel.label for kernel in kernels]
    try:
        peers = {f"flash_mla {label}": lib.flash_mla_calls(data) for label, data in sets.items()}
        if all(peers.values()):
            contestants |= peers
            names.append("flash_mla")
    except Exception as error:  # noqa: BLE001 - a peer that fails is left out
        lib.say(f"flash_mla: {error}")
    for least in calls:
        times = lib.race(contestants, 300, least)
        lib.say(f"64 requests, {heads} heads, {sum(lengths['equal'])} tokens, "
                f"{count} inputs, {max(least, count)} calls a graph: one of 131072 us, nearly equal us / equal us")
        for name in names:
            long, near, same = (times.get(f"{name} {label}", math.nan) for label in lengths)
            ratios = f"{long / same:.3f}, {near / same:.3f}"
            lib.say(f"    {name:12s} {long:6.1f}, {near:6.1f} / {same:6.1f}  ratios {ratios}")
    for label, several in sets.items():
        for number, data in enumerate(several[:2]):
            expected = kernels[0].problem.reference.expected(data, sample=2000)
            for kernel, outputs in ((k, c[number][1]) for k, of, c in keep if of == label):
                passed, message = kernel.problem.reference.check_outputs(expected, tuple(outputs.values()))
                if not passed:
                    lib.say(f"WRONG {kernel.label}, {heads} heads, {label}: {str(message)[:300]}")
                    bad.append(kernel.label)
    return bad


def changing(kernel: lib.Kernel, heads: int, queries: int) -> bool:
    """A captured call is replayed with shorter and shorter requests (what is hidden stays so)."""
    longest, good = 2048, True
    steps = ([2048] * 9, [2048, 2047, 1985, 1984, 1500, 65, 64, 1, 0], [900, 1, 640, 641, 0, 63, 2, 1, 0])
    data = batch_of(steps[0], heads, queries, queries > 1, seed=heads + queries)
    call, outputs, _space = bound(kernel, lib.mla(9, heads, longest, "uniform", queries, int(queries > 1)), data)
    graph = lib.capture([call])
    for lengths in steps:
        hide(data, lengths)
        data[3].copy_(torch.tensor(lengths, dtype=torch.int32))
        for buffer in outputs.values():
            buffer.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        if message := wrong(kernel, data, outputs):
            lib.say(f"WRONG after capture, {kernel.label}, {heads} heads, {queries} queries, lengths {lengths}: "
                    f"{message[:300]}")
            good = False
    lib.say(f"{kernel.label}, one capture, {len(steps)} sets of lengths, {heads} heads, {queries} queries: "
            f"{'right' if good else 'wrong'}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", type=Path)
    parser.add_argument("--calls", default="1", help="a graph has so many calls at least: one race for each number")
    parser.add_argument("--heads", default="16,128", help="whose races are run")
    parser.add_argument("--sets", type=int, default=2, help="so many inputs take turns")
    parser.add_argument("--race-only", action="store_true", help="without lengths that change")
    options = parser.parse_args()
    gpu.need()
    problem = lib.Problem("mla_decode")
    kernels = [lib.Kernel(problem, path.stem, path) for path in options.libraries]
    good = options.race_only or all(
        changing(kernel, heads, queries) for kernel in kernels for heads in (16, 64, 128) for queries in (1, 2))
    for heads in map(int, options.heads.split(",")):
        if unequal(kernels, heads, [int(least) for least in options.calls.split(",")], options.sets):
            good = False
    lib.say(f"{lib.clocks()} | {lib.elapsed():.1f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
