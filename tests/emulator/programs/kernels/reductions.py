# SPDX-License-Identifier: MIT
"""Rows: normalisations, losses, scans, sorts, extrema."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.programs.program import Expected, Launch, integers, normal, poisoned, program


@triton.jit
def softmax_kernel(x, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    v = tl.load(x + row * stride + at, mask=live, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + at, e / tl.sum(e, 0), mask=live)


@program("softmax_four_warps")
@program("softmax_one_warp", columns=200, block=256, options={"num_warps": 1})
@program("softmax_eight_warps", columns=2000, block=2048, options={"num_warps": 8})
@program("softmax_two_per_unit", options={"waves_per_eu": 2})
def softmax(generator, columns=781, block=1024, options=None):
    rows = 7
    x = normal(generator, rows, columns) * 3
    return Launch(softmax_kernel, (rows,), {"x": x, "out": poisoned(rows, columns), "stride": columns,
                                            "columns": columns},
                  {"out": Expected(x.double().softmax(1).float(), rtol=5e-6, atol=1e-8)}, {"BLOCK": block},
                  options or {})


@triton.jit
def layernorm_kernel(x, weight, bias, out, means, deviations, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        d = tl.where(at < columns, v - mean, 0.0)
        squares += d * d
    inverse = 1 / tl.sqrt(tl.sum(squares, 0) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(deviations + row, inverse)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        live = at < columns
        v = tl.load(x + row * columns + at, mask=live, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=live).to(tl.float32)
        b = tl.load(bias + at, mask=live).to(tl.float32)
        tl.store(out + row * columns + at, ((v - mean) * inverse * w + b).to(out.dtype.element_ty), mask=live)


@program("layernorm_f16", dtype=torch.float16, rtol=2**-9)
@program("layernorm_f32", dtype=torch.float32, rtol=1e-5, options={"num_warps": 8})
def layernorm(generator, dtype, rtol, options=None):
    rows, columns, epsilon = 6, 1151, 1e-5
    x, w, b = (normal(generator, *shape, dtype=dtype) for shape in ((rows, columns), (columns,), (columns,)))
    double = x.double()
    mean, inverse = double.mean(1), (double.var(1, correction=0) + epsilon).rsqrt()
    wanted = torch.nn.functional.layer_norm(double, (columns,), w.double(), b.double(), epsilon)
    return Launch(layernorm_kernel, (rows,),
                  {"x": x, "weight": w, "bias": b, "out": poisoned(rows, columns, dtype=dtype), "means": poisoned(rows),
                   "deviations": poisoned(rows), "columns": columns, "epsilon": epsilon},
                  {"out": Expected(wanted.to(dtype), rtol=rtol, atol=rtol),
                   "means": Expected(mean.float(), rtol=1e-5, atol=1e-6),
                   "deviations": Expected(inverse.float(), rtol=1e-5)}, {"BLOCK": 256}, options or {})


@triton.jit
def rmsnorm_kernel(x, weight, out, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    v = tl.load(x + row * columns + at, mask=live, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / columns + epsilon)
    w = tl.load(weight + at, mask=live).to(tl.float32)
    tl.store(out + row * columns + at, (v * scale * w).to(out.dtype.element_ty), mask=live)


@program("rmsnorm_bf16")
def rmsnorm(generator):
    rows, columns = 5, 1000
    x, w = normal(generator, rows, columns, dtype=torch.bfloat16), normal(generator, columns, dtype=torch.bfloat16)
    double = x.double()
    wanted = double * (double.square().mean(1, keepdim=True) + 1e-6).rsqrt() * w.double()
    return Launch(rmsnorm_kernel, (rows,), {"x": x, "weight": w, "out": poisoned(rows, columns, dtype=torch.bfloat16),
                                            "columns": columns, "epsilon": 1e-6},
                  {"out": Expected(wanted.bfloat16(), rtol=2**-7)}, {"BLOCK": 1024})


@triton.jit
def cross_entropy_kernel(logits, labels, losses, columns, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels + row)
    if label == ignore:
        tl.store(losses + row, 0.0)
        return
    largest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(logits + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        new = tl.maximum(largest, tl.max(v, 0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(v - new), 0)
        largest = new
    picked = tl.load(logits + row * columns + label).to(tl.float32)
    tl.store(losses + row, largest + tl.log(total) - picked)


@program("cross_entropy")
def cross_entropy(generator):
    rows, columns = 9, 1500
    logits, labels = normal(generator, rows, columns, dtype=torch.bfloat16) * 4, integers(
        generator, 0, columns, rows, dtype=torch.int64)
    labels[3] = -100
    wanted = torch.nn.functional.cross_entropy(logits.double(), labels, reduction="none", ignore_index=-100)
    return Launch(cross_entropy_kernel, (rows,), {"logits": logits, "labels": labels, "losses": poisoned(rows),
                                                  "columns": columns, "ignore": -100},
                  {"losses": Expected(wanted.float(), rtol=1e-5)}, {"BLOCK": 512})


@triton.jit
def extrema_kernel(x, largest, smallest, most, least, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    w = tl.load(x + row * columns + at, mask=at < columns, other=float("inf"))
    tl.store(largest + row, tl.argmax(v, 0))
    tl.store(smallest + row, tl.argmin(w, 0))
    tl.store(most + row, tl.max(v, 0))
    tl.store(least + row, tl.min(w, 0))


@program("argmax_argmin")
def extrema(generator):
    rows, columns = 5, 900
    x = integers(generator, -50, 50, rows, columns).float()       # with ties: the first counts
    return Launch(extrema_kernel, (rows,),
                  {"x": x, "largest": poisoned(rows, dtype=torch.int32), "smallest": poisoned(rows, dtype=torch.int32),
                   "most": poisoned(rows), "least": poisoned(rows), "columns": columns},
                  {"largest": Expected((x == x.amax(1, keepdim=True)).int().argmax(1).int()),
                   "smallest": Expected((x == x.amin(1, keepdim=True)).int().argmax(1).int()),
                   "most": Expected(x.amax(1)), "least": Expected(x.amin(1))}, {"BLOCK": 1024})


@triton.jit
def cumsum_kernel(x, out, columns, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    v = tl.load(x + row * columns + at, mask=live, other=0)
    tl.store(out + row * columns + at, tl.cumsum(v, 0, reverse=REVERSE), mask=live)


@program("cumsum_i32", dtype=torch.int32)
@program("cumsum_reversed_i64", dtype=torch.int64, reverse=True)
@program("cumsum_f32", dtype=torch.float32)
def cumsum(generator, dtype, reverse=False):
    rows, columns = 3, 700
    x = integers(generator, -1000, 1000, rows, columns, dtype=dtype)
    wanted = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
    return Launch(cumsum_kernel, (rows,), {"x": x, "out": poisoned(rows, columns, dtype=dtype), "columns": columns},
                  {"out": Expected(wanted.to(dtype))}, {"REVERSE": reverse, "BLOCK": 1024})


@triton.jit
def linear(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, decay_b * value_a + value_b


@triton.jit
def recurrence_kernel(decays, values, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    decay = tl.load(decays + row * columns + at, mask=live, other=1.0)
    value = tl.load(values + row * columns + at, mask=live, other=0.0)
    _, state = tl.associative_scan((decay, value), 0, linear)
    tl.store(out + row * columns + at, state, mask=live)


@program("associative_scan_recurrence")
def recurrence(generator):
    rows, columns = 3, 500
    decays, values = torch.rand(rows, columns, generator=generator), normal(generator, rows, columns)
    state, states = torch.zeros(rows, dtype=torch.float64), []
    for column in range(columns):
        state = decays[:, column].double() * state + values[:, column].double()
        states.append(state)
    return Launch(recurrence_kernel, (rows,), {"decays": decays, "values": values, "out": poisoned(rows, columns),
                                               "columns": columns},
                  {"out": Expected(torch.stack(states, 1).float(), rtol=1e-5, atol=1e-5)}, {"BLOCK": 512})


@triton.jit
def sort_kernel(x, out, descending: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), descending=descending))


@program("sort_f32", dtype=torch.float32, descending=False)
@program("sort_descending_i32", dtype=torch.int32, descending=True)
def sort(generator, dtype, descending):
    rows, block = 4, 256
    x = integers(generator, -10**6, 10**6, rows, block, dtype=dtype)
    return Launch(sort_kernel, (1,), {"x": x, "out": poisoned(rows, block, dtype=dtype)},
                  {"out": Expected(x.sort(1, descending=descending).values)},
                  {"descending": descending, "ROWS": rows, "BLOCK": block})


@triton.jit
def topk_kernel(x, out, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = tl.topk(tl.load(x + row * BLOCK + tl.arange(0, BLOCK))[None, :], K)
    tl.store(out + row * K + tl.arange(0, K)[None, :], top)


@program("topk")
def topk(generator):
    rows, block, k = 3, 512, 8
    x = normal(generator, rows, block)
    return Launch(topk_kernel, (rows,), {"x": x, "out": poisoned(rows, k)},
                  {"out": Expected(x.topk(k, 1).values)}, {"K": k, "BLOCK": block})


@triton.jit
def combine_moments(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def moments_kernel(x, means, variances, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    v = tl.load(x + row * columns + at, mask=live, other=0.0)
    mean, m2, weight = tl.reduce((v, tl.zeros_like(v), live.to(tl.float32)), 0, combine_moments)
    tl.store(means + row, mean)
    tl.store(variances + row, m2 / weight)


@program("welford_reduction")
def moments(generator):
    rows, columns = 4, 750
    x = normal(generator, rows, columns) + 5
    return Launch(moments_kernel, (rows,), {"x": x, "means": poisoned(rows), "variances": poisoned(rows),
                                            "columns": columns},
                  {"means": Expected(x.double().mean(1).float(), rtol=1e-5),
                   "variances": Expected(x.double().var(1, correction=0).float(), rtol=1e-5)}, {"BLOCK": 1024})


@triton.jit
def column_sum_kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    v = tl.load(x + at)
    tl.store(out + tl.arange(0, COLUMNS), tl.sum(v, 0))
    tl.store(out + COLUMNS + tl.arange(0, ROWS), tl.sum(v, 1))
    tl.store(out + COLUMNS + ROWS + tl.arange(0, COLUMNS), tl.xor_sum(v, 0))


@program("sums_of_both_axes")
def both_axes(generator):
    rows, columns = 64, 32
    x = integers(generator, -2**20, 2**20, rows, columns)
    exclusive = x[0].clone()
    for row in x[1:]:
        exclusive ^= row
    wanted = torch.cat([x.sum(0), x.sum(1), exclusive]).int()
    return Launch(column_sum_kernel, (1,), {"x": x, "out": poisoned(2 * columns + rows, dtype=torch.int32)},
                  {"out": Expected(wanted)}, {"ROWS": rows, "COLUMNS": columns})
