# SPDX-License-Identifier: MIT
"""Ways to write a kernel: calls, joins and splits, loops of unknown length, inline assembly, persistent blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.programs.program import Expected, Launch, integers, normal, poisoned, program


@triton.jit(noinline=True)
def polynomial(x, n):
    total = x
    for power in range(n):
        total = total * x + power
    return total


@triton.jit
def calling_kernel(x, out, degree):
    at = tl.program_id(0)
    v = tl.load(x + at)
    tl.store(out + at, polynomial(v, degree) - polynomial(v + 1, degree + 1))


@program("function_calls")
def calling(generator):
    n, degree = 20, 5
    x = integers(generator, -9, 10, n)

    def value(v, count):
        total = v
        for power in range(count):
            total = total * v + power
        return total

    return Launch(calling_kernel, (n,), {"x": x, "out": poisoned(n, dtype=torch.int32), "degree": degree},
                  {"out": Expected(value(x, degree) - value(x + 1, degree + 1))})


@triton.jit
def pairs_kernel(x, even, odd, swapped, summed, BLOCK: tl.constexpr):
    at = tl.arange(0, 2 * BLOCK)
    v = tl.load(x + at)
    first, second = tl.split(tl.reshape(v, [BLOCK, 2]))
    half = tl.arange(0, BLOCK)
    tl.store(even + half, first)
    tl.store(odd + half, second)
    tl.store(swapped + at, tl.interleave(second, first))
    both = tl.permute(tl.join(first, second), [1, 0])
    tl.store(summed + half, tl.sum(both, 0))


@program("join_split_interleave", dtype=torch.int32)
@program("join_split_interleave_i8", dtype=torch.int8)
@program("join_split_interleave_i64", dtype=torch.int64, options={"num_warps": 1})
def pairs(generator, dtype, options=None):
    block = 256
    x = integers(generator, -60, 60, 2 * block, dtype=dtype)
    table = x.view(block, 2)
    arguments = {"x": x, "even": poisoned(block, dtype=dtype), "odd": poisoned(block, dtype=dtype),
                 "swapped": poisoned(2 * block, dtype=dtype), "summed": poisoned(block, dtype=dtype)}
    expected = {"even": Expected(table[:, 0].clone()), "odd": Expected(table[:, 1].clone()),
                "swapped": Expected(table.flip(1).flatten()), "summed": Expected((table[:, 0] + table[:, 1]).to(dtype))}
    return Launch(pairs_kernel, (1,), arguments, expected, {"BLOCK": block}, options or {})


@triton.jit
def hadamard_kernel(x, out, SIZE: tl.constexpr, LOG: tl.constexpr):
    row = tl.program_id(0)
    v = tl.load(x + row * SIZE + tl.arange(0, SIZE))
    for _ in tl.static_range(LOG):
        first, second = tl.split(tl.reshape(v, [SIZE // 2, 2]))
        v = tl.reshape(tl.permute(tl.join(first + second, first - second), [1, 0]), [SIZE])
    tl.store(out + row * SIZE + tl.arange(0, SIZE), v)


@program("hadamard_transform")
def hadamard(generator):
    rows, log = 3, 8
    x = integers(generator, -100, 100, rows, 2**log).float()      # sums are exact
    matrix = torch.ones(1, 1)
    for _ in range(log):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return Launch(hadamard_kernel, (rows,), {"x": x, "out": poisoned(rows, 2**log)},
                  {"out": Expected(x @ matrix)}, {"SIZE": 2**log, "LOG": log})


@triton.jit
def search_kernel(keys, wanted, out, n, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(wanted + at, mask=at < count, other=0)
    low = tl.zeros([BLOCK], tl.int32)
    high = tl.zeros([BLOCK], tl.int32) + n
    while tl.max((high - low), 0) > 0:
        middle = (low + high) // 2
        open_ = low < high
        right = tl.load(keys + middle, mask=open_, other=0) < target
        low = tl.where(open_ & right, middle + 1, low)
        high = tl.where(open_ & ~right, middle, high)
    tl.store(out + at, low, mask=at < count)


@program("binary_search_while")
def search(generator):
    n, count = 777, 400
    keys, wanted = integers(generator, 0, 5000, n).sort().values, integers(generator, -10, 5010, count)
    return Launch(search_kernel, (4,), {"keys": keys, "wanted": wanted, "out": poisoned(count, dtype=torch.int32),
                                        "n": n, "count": count},
                  {"out": Expected(torch.searchsorted(keys, wanted).int())}, {"BLOCK": 128}, {"num_warps": 2})


@triton.jit
def assembly_kernel(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise("v_sad_u8 $0, $1, $2, 7", "=v,v,v", [tl.load(x + at), tl.load(y + at)],
                                  dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + at, v)


@program("inline_assembly")
def assembly(generator):
    block = 256
    x, y = (integers(generator, 0, 256, 4 * block, dtype=torch.uint8) for _ in range(2))
    wanted = (x.int() - y.int()).abs().view(block, 4).sum(1).int() + 7
    return Launch(assembly_kernel, (1,), {"x": x.view(torch.int32), "y": y.view(torch.int32),
                                          "out": poisoned(block, dtype=torch.int32)},
                  {"out": Expected(wanted)}, {"BLOCK": block})


@triton.jit
def routing_kernel(logits, weights, experts, counts, EXPERTS: tl.constexpr, CHOSEN: tl.constexpr):
    token = tl.program_id(0)
    at = tl.arange(0, EXPERTS)
    v = tl.load(logits + token * EXPERTS + at)
    v = tl.exp(v - tl.max(v, 0))
    p = v / tl.sum(v, 0)
    total = 0.0
    for k in tl.static_range(CHOSEN):
        best, index = tl.max(p, 0, return_indices=True)
        total += best
        tl.store(weights + token * CHOSEN + k, best)
        tl.store(experts + token * CHOSEN + k, index)
        tl.atomic_add(counts + index, 1)
        p = tl.where(at == index, -1.0, p)


@program("expert_routing")
def routing(generator):
    tokens, experts, chosen = 13, 64, 4
    logits = normal(generator, tokens, experts)
    top = logits.double().softmax(1).topk(chosen, 1)
    return Launch(routing_kernel, (tokens,),
                  {"logits": logits, "weights": poisoned(tokens, chosen),
                   "experts": poisoned(tokens, chosen, dtype=torch.int32),
                   "counts": torch.zeros(experts, dtype=torch.int32)},
                  {"weights": Expected(top.values.float(), rtol=1e-5), "experts": Expected(top.indices.int()),
                   "counts": Expected(top.indices.flatten().bincount(minlength=experts).int())},
                  {"EXPERTS": experts, "CHOSEN": chosen}, {"num_warps": 1})


@triton.jit
def grid_kernel(out, x, y, z):
    i, j, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + (k * y + j) * x + i, i + 100 * j + 10000 * k + 1000000 * tl.num_programs(0) * tl.num_programs(2))


@program("grid_of_three_dimensions")
def grid(generator):
    x, y, z = 5, 3, 4
    k, j, i = torch.meshgrid(torch.arange(z), torch.arange(y), torch.arange(x), indexing="ij")
    return Launch(grid_kernel, (x, y, z), {"out": poisoned(z, y, x, dtype=torch.int32), "x": x, "y": y, "z": z},
                  {"out": Expected((i + 100 * j + 10000 * k + 1000000 * x * z).int())}, {}, {"num_warps": 1})
