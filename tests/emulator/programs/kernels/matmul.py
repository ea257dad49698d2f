# SPDX-License-Identifier: MIT
"""Matrix products: every input format of the matrix cores, tiles, pipelines, batches, groups, split K."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.programs.program import Expected, Launch, ceil_div, integers, normal, poisoned, program


@triton.jit
def matmul_kernel(a, b, c, m, n, k, row_a, column_a, row_b, column_b, PRECISION: tl.constexpr, TILE_M: tl.constexpr,
                  TILE_N: tl.constexpr, TILE_K: tl.constexpr, SUM: tl.constexpr):
    i = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    j = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    from_a = a + i[:, None] * row_a + inner[None, :] * column_a
    from_b = b + inner[:, None] * row_b + j[None, :] * column_b
    total = tl.zeros([TILE_M, TILE_N], SUM)
    for start in range(0, k, TILE_K):
        left = tl.load(from_a, mask=(i[:, None] < m) & (inner[None, :] + start < k), other=0.0)
        right = tl.load(from_b, mask=(j[None, :] < n) & (inner[:, None] + start < k), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=SUM)
        from_a += TILE_K * column_a
        from_b += TILE_K * row_b
    tl.store(c + i[:, None] * n + j[None, :], total.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


_F16, _BF16, _F32, _F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
_FP8, _BF8, _I8 = torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int8


@program("matmul_f16", left=_F16)
@program("matmul_f16_nonkdim_16", left=_F16, options={"matrix_instr_nonkdim": 16})
@program("matmul_f16_nonkdim_32", left=_F16, options={"matrix_instr_nonkdim": 32})
@program("matmul_f16_kpack_2", left=_F16, options={"kpack": 2, "matrix_instr_nonkdim": 16})
@program("matmul_f16_one_stage", left=_F16, options={"num_stages": 1})
@program("matmul_f16_three_stages", left=_F16, options={"num_stages": 3})
@program("matmul_f16_one_warp", left=_F16, tile=(32, 32, 32), options={"num_warps": 1})
@program("matmul_f16_eight_warps", left=_F16, tile=(128, 64, 32), options={"num_warps": 8, "waves_per_eu": 2})
@program("matmul_f16_global_loads", left=_F16, buffer_ops=False)
@program("matmul_f16_transposed", left=_F16, transposed=True)
@program("matmul_f16_pingpong", left=_F16, shape=(256, 256, 128), tile=(256, 256, 64), options={"num_warps": 8})
@program("matmul_bf16", left=_BF16)
@program("matmul_bf16_nonkdim_32", left=_BF16, options={"matrix_instr_nonkdim": 32})
@program("matmul_bf16_transposed", left=_BF16, transposed=True, options={"num_warps": 8})
@program("matmul_fp8", left=_FP8)
@program("matmul_fp8_nonkdim_32", left=_FP8, options={"matrix_instr_nonkdim": 32})
@program("matmul_bf8", left=_BF8)
@program("matmul_bf8_nonkdim_16", left=_BF8, options={"matrix_instr_nonkdim": 16})
@program("matmul_fp8_bf8", left=_FP8, right=_BF8)
@program("matmul_bf8_fp8", left=_BF8, right=_FP8)
@program("matmul_fp8_kpack_2", left=_FP8, options={"kpack": 2, "matrix_instr_nonkdim": 16}, transposed=True)
@program("matmul_int8", left=_I8)
@program("matmul_int8_nonkdim_32", left=_I8, options={"matrix_instr_nonkdim": 32}, transposed=True)
@program("matmul_f32_ieee", left=_F32, rtol=1e-5)
@program("matmul_f32_ieee_nonkdim_32", left=_F32, rtol=1e-5, options={"matrix_instr_nonkdim": 32})
@program("matmul_f32_xf32", left=_F32, precision="tf32", rtol=2**-8)
@program("matmul_f32_xf32_nonkdim_32", left=_F32, precision="tf32", rtol=2**-8, options={"matrix_instr_nonkdim": 32})
@program("matmul_f32_bf16x3", left=_F32, precision="bf16x3", rtol=1e-4)
@program("matmul_f64", left=_F64, rtol=1e-13, tile=(32, 32, 16), shape=(40, 40, 48))
@program("matmul_f16_small_tile", left=_F16, tile=(16, 16, 16), shape=(20, 20, 40), options={"num_warps": 1})
@program("matmul_f16_four_rows", left=_F16, tile=(4, 64, 64), shape=(4, 70, 130), options={"num_warps": 1})
def matmul(generator, left, right=None, precision="ieee", shape=(100, 80, 150), tile=(64, 64, 32), options=None,
           rtol=1e-4, transposed=False, buffer_ops=True):
    m, n, k = shape
    right = right or left
    if left is _I8:
        a, b = integers(generator, -128, 128, m, k, dtype=left), integers(generator, -128, 128, k, n, dtype=left)
        wanted, out = (a.int() @ b.int()).int(), torch.int32
    else:
        a, b = normal(generator, m, k, dtype=left), normal(generator, k, n, dtype=right)
        out = _F64 if left is _F64 else _F32
        wanted = (a.double() @ b.double()).to(out)
    if transposed:       # the other way round in memory
        a, b = (x.view(torch.uint8).T.contiguous().T.view(x.dtype) if x.itemsize == 1 else x.T.contiguous().T
                for x in (a, b))
    exact = out is torch.int32
    return Launch(matmul_kernel, (ceil_div(m, tile[0]), ceil_div(n, tile[1])),
                  {"a": a, "b": b, "c": poisoned(m, n, dtype=out), "m": m, "n": n, "k": k, "row_a": a.stride(0),
                   "column_a": a.stride(1), "row_b": b.stride(0), "column_b": b.stride(1)},
                  {"c": Expected(wanted, rtol=0 if exact else rtol, atol=0 if exact else rtol * k ** 0.5)},
                  {"PRECISION": precision, "TILE_M": tile[0], "TILE_N": tile[1], "TILE_K": tile[2],
                   "SUM": {torch.int32: tl.int32, _F64: tl.float64}.get(out, tl.float32)}, options or {}, buffer_ops)


@triton.jit
def split_kernel(a, b, c, m, n, k, TILE: tl.constexpr, SPLITS: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    part = tl.cdiv(k, SPLITS)
    first = tl.program_id(2) * part
    total = tl.zeros([TILE, TILE], tl.float32)
    for start in range(first, min(first + part, k), TILE):
        inner = start + tl.arange(0, TILE)
        live = inner < min(first + part, k)
        left = tl.load(a + i[:, None] * k + inner[None, :], mask=(i[:, None] < m) & live[None, :], other=0.0)
        right = tl.load(b + inner[:, None] * n + j[None, :], mask=(j[None, :] < n) & live[:, None], other=0.0)
        total += tl.dot(left, right)
    tl.atomic_add(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


@program("matmul_split_k", buffer_ops=True)
@program("matmul_split_k_global", buffer_ops=False)
def split_k(generator, buffer_ops):
    m, n, k, tile, splits = 50, 60, 200, 32, 3
    a, b = normal(generator, m, k, dtype=_BF16), normal(generator, k, n, dtype=_BF16)
    return Launch(split_kernel, (ceil_div(m, tile), ceil_div(n, tile), splits),
                  {"a": a, "b": b, "c": torch.zeros(m, n), "m": m, "n": n, "k": k},
                  {"c": Expected((a.double() @ b.double()).float(), rtol=1e-4, atol=1e-3)},
                  {"TILE": tile, "SPLITS": splits}, buffer_ops=buffer_ops)


@triton.jit
def batched_kernel(a, b, bias, c, m, n, k, TILE: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, k, TILE):
        inner = start + tl.arange(0, TILE)
        left = tl.load(a + batch * m * k + i[:, None] * k + inner[None, :],
                       mask=(i[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + batch * k * n + inner[:, None] * n + j[None, :],
                        mask=(j[None, :] < n) & (inner[:, None] < k), other=0.0)
        total += tl.dot(left, right)
    total += tl.load(bias + j, mask=j < n, other=0.0)[None, :]
    total = tl.where(total > 0, total, 0.01 * total)
    tl.store(c + batch * m * n + i[:, None] * n + j[None, :], total.to(tl.float16),
             mask=(i[:, None] < m) & (j[None, :] < n))


@program("matmul_batched_bias_leaky_relu")
def batched(generator):
    batches, m, n, k, tile = 3, 40, 50, 70, 32
    a, b = normal(generator, batches, m, k, dtype=_F16), normal(generator, batches, k, n, dtype=_F16)
    bias = normal(generator, n)
    wanted = torch.nn.functional.leaky_relu(a.double() @ b.double() + bias)
    return Launch(batched_kernel, (2, 2, batches),
                  {"a": a, "b": b, "bias": bias, "c": poisoned(batches, m, n, dtype=_F16), "m": m, "n": n, "k": k},
                  {"c": Expected(wanted.half(), rtol=2**-9, atol=1e-2)}, {"TILE": tile})


@triton.jit
def grouped_kernel(tokens, weights, offsets, out, n, k, groups, TILE: tl.constexpr):
    """A persistent block walks over the tiles of all groups: rows offsets[g] to offsets[g+1] meet weights[g]."""
    tile = tl.program_id(0)
    first = 0
    across = tl.cdiv(n, TILE)
    for group in range(groups):
        begin = tl.load(offsets + group)
        end = tl.load(offsets + group + 1)
        count = tl.cdiv(end - begin, TILE) * across
        while tile >= first and tile < first + count:
            local = tile - first
            i = begin + local // across * TILE + tl.arange(0, TILE)
            j = local % across * TILE + tl.arange(0, TILE)
            total = tl.zeros([TILE, TILE], tl.float32)
            for start in range(0, k, TILE):
                inner = start + tl.arange(0, TILE)
                left = tl.load(tokens + i[:, None] * k + inner[None, :],
                               mask=(i[:, None] < end) & (inner[None, :] < k), other=0.0)
                right = tl.load(weights + group * n * k + j[None, :] * k + inner[:, None],
                                mask=(j[None, :] < n) & (inner[:, None] < k), other=0.0)
                total += tl.dot(left, right)
            tl.store(out + i[:, None] * n + j[None, :], total, mask=(i[:, None] < end) & (j[None, :] < n))
            tile += tl.num_programs(0)
        first += count


@program("matmul_grouped_persistent")
def grouped(generator):
    n, k, sizes = 40, 64, [10, 0, 45, 33]
    offsets = torch.tensor([0, *sizes]).cumsum(0).int()
    tokens, weights = normal(generator, sum(sizes), k, dtype=_BF16), normal(generator, len(sizes), n, k, dtype=_BF16)
    parts = tokens.double().split(sizes)
    wanted = torch.cat([part @ weight.T for part, weight in zip(parts, weights.double(), strict=True)])
    return Launch(grouped_kernel, (3,), {"tokens": tokens, "weights": weights, "offsets": offsets,
                                         "out": poisoned(sum(sizes), n), "n": n, "k": k, "groups": len(sizes)},
                  {"out": Expected(wanted.float(), rtol=1e-4, atol=1e-3)}, {"TILE": 32})


@triton.jit
def scaled_kernel(a, b, scales_a, scales_b, c, m, n, k, TILE: tl.constexpr, SCALED: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, k, SCALED):
        inner = start + tl.arange(0, SCALED)
        left = tl.load(a + i[:, None] * k + inner[None, :])
        right = tl.load(b + j[None, :] * k + inner[:, None])
        scale_a = tl.load(scales_a + i * (k // SCALED) + start // SCALED)
        scale_b = tl.load(scales_b + j * (k // SCALED) + start // SCALED)
        total += tl.dot(left, right) * scale_a[:, None] * scale_b[None, :]
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16))


@program("matmul_fp8_block_scaled")
def scaled(generator):
    m, n, k, tile, block = 64, 64, 256, 64, 128
    a, b = normal(generator, m, k, dtype=_FP8), normal(generator, n, k, dtype=_FP8)
    scales_a, scales_b = (torch.rand(rows, k // block, generator=generator) for rows in (m, n))
    left = a.double() * scales_a.repeat_interleave(block, 1)
    right = b.double() * scales_b.repeat_interleave(block, 1)
    return Launch(scaled_kernel, (1, 1), {"a": a, "b": b, "scales_a": scales_a, "scales_b": scales_b,
                                          "c": poisoned(m, n, dtype=_BF16), "m": m, "n": n, "k": k},
                  {"c": Expected((left @ right.T).bfloat16(), rtol=2**-7, atol=2**-7)},
                  {"TILE": tile, "SCALED": block})
