# SPDX-License-Identifier: MIT
"""Requests of different lengths: mla_decode on an NVIDIA GPU with unequal lengths, and with lengths that change.

    python benchmarks/dev/mla_lengths.py LIBRARY.so

1. One captured call, replayed with other lengths in the same tensor (0, 1, page edges, the longest), results checked
   each time; everything behind the new lengths is set to NaN. 16, 64 and 128 heads, one and two queries.
2. One request of 131072 tokens among 63 of 1024, against 64 equal ones with the same total: median of graph replays,
   cold cache, in turns; both results are checked.
"""

from __future__ import annotations

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


def unequal(kernel: lib.Kernel, heads: int) -> bool:
    lengths = {"one long": [131072] + [1024] * 63, "equal": [(131072 + 63 * 1024) // 64] * 64}
    contestants, keep, good = {}, [], True
    for label, each in lengths.items():
        calls = []
        for seed in range(2):
            data = batch_of(each, heads, 1, False, seed)
            call, outputs, space = bound(kernel, lib.mla(64, heads, max(each)), data)
            keep.append((data, space, outputs))
            calls.append(call)
        contestants[label] = calls
    times = lib.race(contestants, 300)
    for data, _, outputs in keep[::2]:
        if message := wrong(kernel, data, outputs):
            lib.say(f"WRONG: {message[:300]}")
            good = False
    ratio = times["one long"] / times["equal"]
    lib.say(f"64 requests, {heads} heads, {sum(lengths['equal'])} tokens: one of 131072 {times['one long']:.1f} us, "
            f"equal {times['equal']:.1f} us, ratio {ratio:.3f}")
    return good


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
            lib.say(f"WRONG after capture, {heads} heads, {queries} queries, lengths {lengths}: {message[:300]}")
            good = False
    lib.say(f"one capture, {len(steps)} sets of lengths, {heads} heads, {queries} queries: "
            f"{'right' if good else 'wrong'}")
    return good


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if "--help" in sys.argv or "-h" in sys.argv else 2
    gpu.need()
    kernel = lib.Kernel(lib.Problem("mla_decode"), "lengths", Path(sys.argv[1]))
    good = [changing(kernel, heads, queries) for heads in (16, 64, 128) for queries in (1, 2)]
    good += [unequal(kernel, heads) for heads in (16, 128)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
