# SPDX-License-Identifier: MIT
"""Between number formats: every pair of float formats, int8 and FP8 quantisation."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.programs.program import Expected, Launch, normal, poisoned, program


@triton.jit
def cast_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(out + at, tl.load(x + at, mask=live).to(out.dtype.element_ty), mask=live)


def _edges(dtype: torch.dtype) -> torch.Tensor:
    """Infinities, NaN, both zeros, denormals of each narrow format, ties."""
    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-8, 2**-14, 2**-15, 2**-24, 2**-25, 2**-26, 1.0,
              1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 65504.0, 65519.9, 65520.0, 3.4e38, -65536.0]
    return torch.tensor(values, dtype=torch.float64).to(dtype)


_CASTS = {
    "f32_f16": (torch.float32, torch.float16), "f32_bf16": (torch.float32, torch.bfloat16),
    "f64_f32": (torch.float64, torch.float32), "f32_f64": (torch.float32, torch.float64),
    "f16_f32": (torch.float16, torch.float32), "bf16_f32": (torch.bfloat16, torch.float32),
    "f16_bf16": (torch.float16, torch.bfloat16),
    "fp8_f32": (torch.float8_e4m3fnuz, torch.float32), "bf8_f32": (torch.float8_e5m2fnuz, torch.float32),
    "fp8_f16": (torch.float8_e4m3fnuz, torch.float16), "bf8_bf16": (torch.float8_e5m2fnuz, torch.bfloat16),
}


def cast(generator, source, to):
    if source.itemsize == 1:        # all 256 codes
        x = torch.arange(256, dtype=torch.uint8).view(source)
    else:
        x = torch.cat([_edges(source), (torch.randn(491, generator=generator, dtype=torch.float64) * 100).to(source)])
    n = x.numel()
    return Launch(cast_kernel, (2,), {"x": x, "out": poisoned(n, dtype=to), "n": n},
                  {"out": Expected(x.to(to))}, {"BLOCK": 256})


for _name, (_source, _to) in _CASTS.items():
    program(f"cast_{_name}", source=_source, to=_to)(cast)


@program("cast_f32_fp8", to=torch.float8_e4m3fnuz, limit=240.0)
@program("cast_f32_bf8", to=torch.float8_e5m2fnuz, limit=57344.0)
def cast_fp8(generator, to, limit):
    """Finite values within range: beyond it torch and the instruction saturate differently by design."""
    x = torch.cat([normal(generator, 400) * 16, torch.logspace(-20, 0, 112, base=2.0) * 64]).clamp(-limit, limit)
    x[:8] = torch.tensor([0.0, limit, -limit, 2**-10, 2**-11, 3 * 2**-11, 1.0625, 1.1875])
    n = x.numel()
    return Launch(cast_kernel, (2,), {"x": x, "out": poisoned(n, dtype=to), "n": n},
                  {"out": Expected(x.to(to))}, {"BLOCK": 256})


@triton.jit
def quantize_kernel(x, out, scales, columns, LIMIT: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    v = tl.load(x + row * columns + at, mask=live, other=0.0)
    scale = tl.max(tl.abs(v), 0) / LIMIT
    tl.store(scales + row, scale)
    q = tl.div_rn(v, scale)
    if ROUND:
        q = tl.floor(q + 0.5)
    tl.store(out + row * columns + at, q.to(out.dtype.element_ty), mask=live)


@program("quantize_int8", dtype=torch.int8, limit=127.0)
@program("quantize_fp8", dtype=torch.float8_e4m3fnuz, limit=240.0)
@program("quantize_bf8", dtype=torch.float8_e5m2fnuz, limit=57344.0)
def quantize(generator, dtype, limit):
    rows, columns = 6, 300
    x = normal(generator, rows, columns)
    scales = x.abs().amax(1) / limit
    q = (x / scales[:, None]).clamp(-limit, limit)
    wanted = ((q + 0.5).floor() if dtype is torch.int8 else q).to(dtype)
    return Launch(quantize_kernel, (rows,),
                  {"x": x, "out": poisoned(rows, columns, dtype=dtype), "scales": poisoned(rows), "columns": columns},
                  {"out": Expected(wanted), "scales": Expected(scales, rtol=1e-6)},
                  {"LIMIT": limit, "ROUND": dtype is torch.int8, "BLOCK": 512})
