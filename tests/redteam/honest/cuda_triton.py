# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: a Triton kernel: one tile per program, fp8 codes to fp16 (exact), fp32 sums, scales per block of K
# source: patterns of accepted GPU MODE submissions
import triton
import triton.language as tl


@triton.jit
def tile(a, b, a_scale, b_scale, c, m, n, k, stride_scale, blocks, M: tl.constexpr, N: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, 128)
    row_ok, column_ok = rows < m, columns < n
    total = tl.zeros((M, N), dtype=tl.float32)
    for block in range(0, k // 128):
        at = block * 128 + depth
        left = tl.load(a + rows[:, None].to(tl.int64) * k + at[None, :], mask=row_ok[:, None], other=0.0)
        right = tl.load(b + columns[None, :].to(tl.int64) * k + at[:, None], mask=column_ok[None, :], other=0.0)
        scale_rows = tl.load(a_scale + rows + block * stride_scale, mask=row_ok, other=0.0)
        scale_columns = tl.load(b_scale + (columns // 128) * blocks + block, mask=column_ok, other=0.0)
        part = tl.dot(left.to(tl.float16), right.to(tl.float16))
        total += part * scale_rows[:, None] * scale_columns[None, :]
    place = c + rows[:, None].to(tl.int64) * n + columns[None, :]
    tl.store(place, total.to(tl.bfloat16), mask=row_ok[:, None] & column_ok[None, :])


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    m, n = c.shape
    k = a.shape[1]
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    stride = a_scale.stride(1) if k > 128 else 0
    tile[grid](a, b, a_scale, b_scale, c, m, n, k, stride, k // 128, M=64, N=64)
    return c
