# SPDX-License-Identifier: MIT
"""Division and square root as compilers emit them: the whole sequence gives what IEEE 754 asks for.

Sequences: LLVM's AMDGPU back end (LowerFDIV16, LowerFDIV32, LowerFDIV64, lowerFSQRTF32, lowerFSQRTF64). The
instructions in them are approximations or have rules of their own; only together do they mean something.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.isa import sources
from tests.emulator.isa.floats import F16, F32, F64, Format
from tests.emulator.isa.snippets import Snippets
from tests.emulator.isa.values import Array
from tests.emulator.isa.wave import Emulator, random_wave

pytestmark = pytest.mark.toolchain("rocm")

DIVIDE_F32 = """v_div_scale_f32 v12, s[20:21], v6, v6, v4
v_div_scale_f32 v13, vcc, v4, v6, v4
v_rcp_f32 v14, v12
v_fma_f32 v15, -v12, v14, 1.0
v_fma_f32 v14, v15, v14, v14
v_mul_f32 v15, v13, v14
v_fma_f32 v16, -v12, v15, v13
v_fma_f32 v15, v16, v14, v15
v_fma_f32 v12, -v12, v15, v13
v_div_fmas_f32 v12, v12, v14, v15
v_div_fixup_f32 v20, v12, v6, v4"""
DIVIDE_F64 = """v_div_scale_f64 v[12:13], s[20:21], v[6:7], v[6:7], v[4:5]
v_rcp_f64 v[14:15], v[12:13]
v_fma_f64 v[16:17], -v[12:13], v[14:15], 1.0
v_fma_f64 v[14:15], v[14:15], v[16:17], v[14:15]
v_fma_f64 v[16:17], -v[12:13], v[14:15], 1.0
v_fma_f64 v[14:15], v[14:15], v[16:17], v[14:15]
v_div_scale_f64 v[16:17], vcc, v[4:5], v[6:7], v[4:5]
v_mul_f64 v[18:19], v[16:17], v[14:15]
v_fma_f64 v[12:13], -v[12:13], v[18:19], v[16:17]
s_nop 1
v_div_fmas_f64 v[12:13], v[12:13], v[14:15], v[18:19]
v_div_fixup_f64 v[20:21], v[12:13], v[6:7], v[4:5]"""
DIVIDE_F16 = """v_cvt_f32_f16 v12, v4
v_cvt_f32_f16 v13, v6
v_rcp_f32 v14, v13
v_mul_f32 v15, v12, v14
v_fma_f32 v16, -v13, v15, v12
v_fma_f32 v15, v16, v14, v15
v_fma_f32 v16, -v13, v15, v12
v_mul_f32 v16, v16, v14
v_and_b32 v16, 0xff800000, v16
v_add_f32 v15, v16, v15
v_cvt_f16_f32 v15, v15
v_div_fixup_f16 v20, v15, v6, v4"""
# What LLVM before 20 emits; not always the nearest number.
DIVIDE_F16_SHORT = """v_cvt_f32_f16 v12, v4
v_cvt_f32_f16 v13, v6
v_rcp_f32 v13, v13
v_mul_f32 v12, v12, v13
v_cvt_f16_f32 v12, v12
v_div_fixup_f16 v20, v12, v6, v4"""
ROOT_F32 = """s_mov_b32 s20, 0xf800000
v_cmp_gt_f32 vcc, s20, v4
v_mul_f32 v12, 0x4f800000, v4
v_cndmask_b32 v12, v4, v12, vcc
v_sqrt_f32 v13, v12
v_add_u32 v14, -1, v13
v_fma_f32 v15, -v14, v13, v12
v_add_u32 v16, 1, v13
v_fma_f32 v17, -v16, v13, v12
v_cmp_ge_f32_e64 s[20:21], 0, v15
v_cndmask_b32_e64 v13, v13, v14, s[20:21]
v_cmp_lt_f32_e64 s[20:21], 0, v17
v_cndmask_b32_e64 v13, v13, v16, s[20:21]
v_mul_f32 v14, 0x37800000, v13
v_cndmask_b32 v13, v13, v14, vcc
v_mov_b32 v14, 0x260
v_cmp_class_f32 vcc, v12, v14
v_cndmask_b32 v20, v13, v12, vcc"""
ROOT_F64 = """s_mov_b32 s20, 0
s_brev_b32 s21, 8
v_cmp_gt_f64 vcc, s[20:21], v[4:5]
v_mov_b32 v30, 0x100
v_cndmask_b32 v30, 0, v30, vcc
v_ldexp_f64 v[12:13], v[4:5], v30
v_rsq_f64 v[14:15], v[12:13]
v_mul_f64 v[16:17], v[12:13], v[14:15]
v_mul_f64 v[14:15], v[14:15], 0.5
v_fma_f64 v[18:19], -v[14:15], v[16:17], 0.5
v_fma_f64 v[14:15], v[14:15], v[18:19], v[14:15]
v_fma_f64 v[16:17], v[16:17], v[18:19], v[16:17]
v_fma_f64 v[18:19], -v[16:17], v[16:17], v[12:13]
v_fma_f64 v[16:17], v[18:19], v[14:15], v[16:17]
v_fma_f64 v[18:19], -v[16:17], v[16:17], v[12:13]
v_fma_f64 v[14:15], v[18:19], v[14:15], v[16:17]
v_mov_b32 v16, 0xffffff80
v_cndmask_b32 v16, 0, v16, vcc
v_ldexp_f64 v[14:15], v[14:15], v16
v_mov_b32 v16, 0x260
v_cmp_class_f64 vcc, v[12:13], v16
v_cndmask_b32 v20, v14, v12, vcc
v_cndmask_b32 v21, v15, v13, vcc"""
SNIPPETS = Snippets([DIVIDE_F32, DIVIDE_F64, DIVIDE_F16, DIVIDE_F16_SHORT, ROOT_F32, ROOT_F64])
NUMPY = {F16: (np.uint16, np.float16), F32: (np.uint32, np.float32), F64: (np.uint64, np.float64)}


def _numbers(fmt: Format, random: int) -> Array:
    """Edges, and random numbers of every size."""
    rng = np.random.default_rng(fmt.width)
    edges = np.array(sources.float_edges(fmt), dtype=np.uint64)
    drawn = rng.integers(0, 1 << 64, random, dtype=np.uint64, endpoint=False) >> np.uint64(64 - fmt.width)
    return np.concatenate([edges, drawn])


def _pairs(fmt: Format) -> tuple[Array, Array]:
    """Every edge with every edge, random numbers with random ones and with numbers near them."""
    edges = np.array(sources.float_edges(fmt), dtype=np.uint64)
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    rng = np.random.default_rng(fmt.width + 1)
    drawn = rng.integers(0, 1 << 64, (2, 64 * 60), dtype=np.uint64, endpoint=False) >> np.uint64(64 - fmt.width)
    # Quotients around 1 and with the same exponent are where rounding goes wrong first.
    near = drawn[0] ^ (drawn[1] & np.uint64((1 << (fmt.mbits // 2)) - 1))
    scaled = drawn[1] & np.uint64((1 << fmt.mbits) - 1) | drawn[0] & ~np.uint64((1 << fmt.mbits) - 1)
    first = np.concatenate([a, drawn[0], drawn[0], drawn[0]])
    second = np.concatenate([b, drawn[1], near, scaled])
    count = len(first) // 64 * 64
    return first[:count], second[:count]


def _run(text: str, fmt: Format, operands: list[Array], emulator: Emulator) -> Array:
    found = []
    wave = random_wave(np.random.default_rng(1))
    for at in range(0, len(operands[0]), 64):
        for register, bits in zip((4, 6), operands, strict=False):
            part = bits[at:at + 64]
            wave.vgprs[register] = (part & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            wave.vgprs[register + 1] = (part >> np.uint64(32)).astype(np.uint32)
        after = SNIPPETS.run(text, wave, emulator)
        high = after.vgprs[21].astype(np.uint64) << np.uint64(32) if fmt is F64 else np.uint64(0)
        found.append(after.vgprs[20].astype(np.uint64) & np.uint64(0xFFFF if fmt is F16 else 0xFFFFFFFF) | high)
    return np.concatenate(found)


def _differences(fmt: Format, right: Array, found: Array, operands: list[Array], ulps: int = 0) -> list[str]:
    integers, floating = NUMPY[fmt]
    numbers = [x.astype(integers).view(floating) for x in (right, found)]
    nan = np.isnan(numbers[0])
    quiet = np.isnan(numbers[1]) & ((found & np.uint64(fmt.quiet)) != 0)
    near = np.abs(right.astype(np.int64) - found.astype(np.int64)) <= ulps
    bad = np.flatnonzero(~np.where(nan, quiet, near))
    shown = [f"{[hex(int(o[i])) for o in operands]}: {int(found[i]):#x}, right is {int(right[i]):#x}" for i in bad[:10]]
    return [f"{len(bad)} of {len(right)}", *shown] if len(bad) else []


@pytest.mark.parametrize(("text", "fmt", "ulps"), [(DIVIDE_F32, F32, 0), (DIVIDE_F64, F64, 0), (DIVIDE_F16, F16, 0),
                                                   (DIVIDE_F16_SHORT, F16, 1)], ids=["f32", "f64", "f16", "f16-short"])
def test_division(text: str, fmt: Format, ulps: int, emulator: Emulator) -> None:
    integers, floating = NUMPY[fmt]
    pairs = _pairs(fmt)
    a, b = (x.astype(integers).view(floating) for x in pairs)
    with np.errstate(all="ignore"):
        right = (a / b).view(integers).astype(np.uint64)
    assert _differences(fmt, right, _run(text, fmt, list(pairs), emulator), list(pairs), ulps) == []


@pytest.mark.parametrize(("text", "fmt"), [(ROOT_F32, F32), (ROOT_F64, F64)], ids=["f32", "f64"])
def test_square_root(text: str, fmt: Format, emulator: Emulator) -> None:
    integers, floating = NUMPY[fmt]
    numbers = _numbers(fmt, 64 * 100)
    numbers = numbers[:len(numbers) // 64 * 64]
    with np.errstate(all="ignore"):
        right = np.sqrt(numbers.astype(integers).view(floating)).view(integers).astype(np.uint64)
    assert _differences(fmt, right, _run(text, fmt, [numbers], emulator), [numbers]) == []
