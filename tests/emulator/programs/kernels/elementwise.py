# SPDX-License-Identifier: MIT
"""Element by element: additions, transcendental functions, conversions, integers, bits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from tests.emulator.programs.program import Expected, Launch, ceil_div, integers, normal, poisoned, program


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(out + at, tl.load(x + at, mask=live) + tl.load(y + at, mask=live), mask=live)


@program("vector_add_masked_tail")
@program("vector_add_one_warp", options={"num_warps": 1})
@program("vector_add_eight_warps", options={"num_warps": 8}, block=2048)
@program("vector_add_global_loads", buffer_ops=False)
@program("vector_add_f16", dtype=torch.float16)
@program("vector_add_i64", dtype=torch.int64, buffer_ops=False)
def vector_add(generator, dtype=torch.float32, block=1024, options=None, buffer_ops=True):
    n = 4 * 1024 + 333      # the last block is partly masked
    if dtype.is_floating_point:
        x, y = normal(generator, n, dtype=dtype), normal(generator, n, dtype=dtype)
    else:
        x, y = (integers(generator, -2**62, 2**62, n, dtype=dtype) for _ in range(2))
    guard = poisoned(n + 64, dtype=dtype)
    wanted = guard.clone()
    wanted[:n] = x + y      # and nothing past n
    return Launch(add_kernel, (ceil_div(n, block),), {"x": x, "y": y, "out": guard, "n": n},
                  {"out": Expected(wanted)}, {"BLOCK": block}, options or {}, buffer_ops)


@triton.jit
def axpy_kernel(a, x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    scale = tl.load(a)
    tl.store(y + at, scale * tl.load(x + at, mask=live) + tl.load(y + at, mask=live), mask=live)


@program("axpy_f64")
def axpy(generator):
    n = 1000
    a, x, y = (torch.randn(size, dtype=torch.float64, generator=generator) for size in (1, n, n))
    return Launch(axpy_kernel, (4,), {"a": a, "x": x, "y": y, "n": n}, {"y": Expected(a * x + y)}, {"BLOCK": 256},
                  {"enable_fp_fusion": False})


@triton.jit
def maths_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    v = tl.load(x + at, mask=live, other=1.0)
    size = tl.abs(v) + 0.001
    tl.store(out + at + 0 * n, tl.exp(v), mask=live)
    tl.store(out + at + 1 * n, tl.log(size), mask=live)
    tl.store(out + at + 2 * n, tl.sin(v), mask=live)
    tl.store(out + at + 3 * n, tl.cos(v), mask=live)
    tl.store(out + at + 4 * n, tl.erf(v), mask=live)
    tl.store(out + at + 5 * n, tl.sqrt(size), mask=live)
    tl.store(out + at + 6 * n, tl.rsqrt(size), mask=live)
    tl.store(out + at + 7 * n, v / size, mask=live)
    tl.store(out + at + 8 * n, tl.exp2(v), mask=live)
    tl.store(out + at + 9 * n, tl.log2(size), mask=live)
    tl.store(out + at + 10 * n, tl.floor(v), mask=live)
    tl.store(out + at + 11 * n, tl.ceil(v), mask=live)
    tl.store(out + at + 12 * n, tl.fma(v, size, v), mask=live)
    tl.store(out + at + 13 * n, tl.sqrt_rn(size), mask=live)
    tl.store(out + at + 14 * n, tl.div_rn(v, size), mask=live)
    tl.store(out + at + 15 * n, tl.sigmoid(v), mask=live)


@program("maths_f32")
def maths(generator):
    n = 1000
    x = normal(generator, n) * 4
    double, size = x.double(), x.abs() + 0.001
    exact = size.double()
    rows = [double.exp(), exact.log(), double.sin(), double.cos(), double.erf(), exact.sqrt(), exact.rsqrt(),
            double / exact, double.exp2(), exact.log2(), x.floor(), x.ceil(), double * exact + double,
            size.sqrt(), x / size, double.sigmoid()]
    return Launch(maths_kernel, (4,), {"x": x, "out": poisoned(16, n), "n": n},
                  {"out": Expected(torch.stack([row.float() for row in rows]), rtol=2e-6, atol=2e-6)}, {"BLOCK": 256})


@triton.jit
def library_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    v = tl.load(x + at, mask=live, other=1.0)
    size = tl.abs(v)
    tl.store(out + at + 0 * n, libdevice.tanh(v), mask=live)
    tl.store(out + at + 1 * n, libdevice.atan2(v, size + 0.5), mask=live)
    tl.store(out + at + 2 * n, libdevice.pow(size, v), mask=live)
    tl.store(out + at + 3 * n, libdevice.log10(size + 0.25), mask=live)
    tl.store(out + at + 4 * n, libdevice.log1p(size), mask=live)
    tl.store(out + at + 5 * n, libdevice.expm1(v), mask=live)
    tl.store(out + at + 6 * n, libdevice.erf(v), mask=live)
    tl.store(out + at + 7 * n, libdevice.sinh(v), mask=live)
    tl.store(out + at + 8 * n, libdevice.asin(v / (size + 1)), mask=live)
    tl.store(out + at + 9 * n, libdevice.rint(v), mask=live)
    tl.store(out + at + 10 * n, libdevice.tan(v), mask=live)
    tl.store(out + at + 11 * n, libdevice.exp(v), mask=live)


@program("library_f32", dtype=torch.float32, tolerance=4e-6)
@program("library_f64", dtype=torch.float64, tolerance=1e-14)
def library(generator, dtype, tolerance):
    n = 500
    x = (torch.randn(n, dtype=torch.float64, generator=generator) * 3).to(dtype)
    v = x.double()
    size = v.abs()
    rows = [v.tanh(), torch.atan2(v, size + 0.5), size ** v, (size + 0.25).log10(), size.log1p(), v.expm1(),
            v.erf(), v.sinh(), torch.asin(v / (size + 1)), v.round(), v.tan(), v.exp()]
    return Launch(library_kernel, (4,), {"x": x, "out": poisoned(12, n, dtype=dtype), "n": n},
                  {"out": Expected(torch.stack(rows).to(dtype), rtol=tolerance, atol=tolerance)}, {"BLOCK": 128})


@triton.jit
def bits_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    a = tl.load(x + at, mask=live, other=1)
    b = tl.load(y + at, mask=live, other=1)
    tl.store(out + at + 0 * n, a & b, mask=live)
    tl.store(out + at + 1 * n, a | b, mask=live)
    tl.store(out + at + 2 * n, a ^ b, mask=live)
    tl.store(out + at + 3 * n, ~a, mask=live)
    tl.store(out + at + 4 * n, a << (b & 31), mask=live)
    tl.store(out + at + 5 * n, a >> (b & 31), mask=live)
    tl.store(out + at + 6 * n, a * b, mask=live)
    tl.store(out + at + 7 * n, a - b, mask=live)
    tl.store(out + at + 8 * n, a // (b | 1), mask=live)
    tl.store(out + at + 9 * n, a % (b | 1), mask=live)
    tl.store(out + at + 10 * n, tl.minimum(a, b), mask=live)
    tl.store(out + at + 11 * n, tl.maximum(a, b), mask=live)
    tl.store(out + at + 12 * n, tl.where(a < b, a, b + 1), mask=live)


@program("bits_i64", dtype=torch.int64, bits=62)
@program("bits_i32", dtype=torch.int32, bits=30)
@program("bits_i16", dtype=torch.int16, bits=14)
def bits(generator, dtype, bits):
    n = 300
    x, y = (integers(generator, -2**bits, 2**bits, n, dtype=dtype) for _ in range(2))
    y[: n // 2] >>= bits // 2        # so that quotients are of every size
    count, odd = (y & 31), y | 1
    rows = [x & y, x | y, x ^ y, ~x, x << count, x >> count, x * y, x - y,
            torch.div(x, odd, rounding_mode="trunc"), torch.fmod(x, odd), torch.minimum(x, y), torch.maximum(x, y),
            torch.where(x < y, x, y + 1)]
    if dtype is torch.int16:         # a shift by 16 or more is undefined there
        rows[4] = rows[5] = torch.zeros_like(x)
        y &= ~16
        return bits_rows(x, y)
    return Launch(bits_kernel, (2,), {"x": x, "y": y, "out": poisoned(13, n, dtype=dtype), "n": n},
                  {"out": Expected(torch.stack(rows))}, {"BLOCK": 256})


def bits_rows(x, y):
    """The same for 16 bits, whose shift counts stay below 16."""
    n, count, odd = x.numel(), y & 31, y | 1
    rows = [x & y, x | y, x ^ y, ~x, x << count, x >> count, x * y, x - y,
            torch.div(x, odd, rounding_mode="trunc"), torch.fmod(x, odd), torch.minimum(x, y), torch.maximum(x, y),
            torch.where(x < y, x, y + 1)]
    return Launch(bits_kernel, (2,), {"x": x, "y": y, "out": poisoned(13, n, dtype=x.dtype), "n": n},
                  {"out": Expected(torch.stack(rows))}, {"BLOCK": 256})


@triton.jit
def unsigned_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    a = tl.load(x + at, mask=live, other=1)
    b = tl.load(y + at, mask=live, other=1)
    tl.store(out + at + 0 * n, a // b, mask=live)
    tl.store(out + at + 1 * n, a % b, mask=live)
    tl.store(out + at + 2 * n, a >> (b & 31), mask=live)
    tl.store(out + at + 3 * n, tl.umulhi(a, b), mask=live)
    tl.store(out + at + 4 * n, (a.to(tl.float32) * 0.5).to(tl.uint32), mask=live)


@program("unsigned_u32")
def unsigned(generator):
    n = 300
    x, y = integers(generator, 0, 2**32, n, dtype=torch.int64), integers(generator, 1, 2**20, n, dtype=torch.int64)
    rows = [x // y, x % y, x >> (y & 31), (x * y) >> 32, (x.float() * 0.5).long()]
    unsigned32 = torch.stack(rows).to(torch.uint32)
    return Launch(unsigned_kernel, (2,), {"x": x.to(torch.uint32), "y": y.to(torch.uint32),
                                          "out": poisoned(5, n, dtype=torch.uint32), "n": n},
                  {"out": Expected(unsigned32)}, {"BLOCK": 256})


@triton.jit
def swiglu_kernel(gate, up, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    g = tl.load(gate + row * columns + at, mask=live, other=0.0).to(tl.float32)
    u = tl.load(up + row * columns + at, mask=live, other=0.0).to(tl.float32)
    tl.store(out + row * columns + at, (g * tl.sigmoid(g) * u).to(out.dtype.element_ty), mask=live)


@program("swiglu_bf16", dtype=torch.bfloat16, rtol=2**-7)
@program("swiglu_f16", dtype=torch.float16, rtol=2**-10)
def swiglu(generator, dtype, rtol):
    rows, columns = 5, 700
    gate, up = normal(generator, rows, columns, dtype=dtype), normal(generator, rows, columns, dtype=dtype)
    wanted = (torch.nn.functional.silu(gate.double()) * up.double()).to(dtype)
    return Launch(swiglu_kernel, (rows,), {"gate": gate, "up": up, "out": poisoned(rows, columns, dtype=dtype),
                                           "columns": columns},
                  {"out": Expected(wanted, rtol=rtol, atol=1e-6)}, {"BLOCK": 1024})


@triton.jit
def rotary_kernel(x, cosines, sines, out, half, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < half
    low = tl.load(x + row * 2 * half + at, mask=live)
    high = tl.load(x + row * 2 * half + half + at, mask=live)
    c = tl.load(cosines + row * half + at, mask=live)
    s = tl.load(sines + row * half + at, mask=live)
    tl.store(out + row * 2 * half + at, low * c - high * s, mask=live)
    tl.store(out + row * 2 * half + half + at, high * c + low * s, mask=live)


@program("rotary_embedding")
def rotary(generator):
    rows, half = 16, 48
    x = normal(generator, rows, 2 * half)
    angle = torch.outer(torch.arange(rows), 10000 ** -(torch.arange(half) / half))
    low, high, c, s = x[:, :half], x[:, half:], angle.cos(), angle.sin()
    wanted = torch.cat([low * c - high * s, high * c + low * s], 1)
    return Launch(rotary_kernel, (rows,), {"x": x, "cosines": c, "sines": s, "out": poisoned(rows, 2 * half),
                                           "half": half},
                  {"out": Expected(wanted, rtol=1e-6, atol=1e-6)}, {"BLOCK": 64}, {"num_warps": 1})
