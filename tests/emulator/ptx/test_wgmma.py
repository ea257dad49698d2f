# SPDX-License-Identifier: MIT
"""wgmma beyond what has been recorded: every layout of the matrices in shared memory, integers, bits.

Layouts are those of PTX ISA 9.0, section 9.7.15.5.1.2.1.3, table "Canonical Layouts", taken word for word: where number
(m, k) of a matrix lies, before and after its swizzle. Products of small integers are exact.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.emulator.ptx.driver import Array, Cuda

IMAGE = 16384            # bytes of shared memory for a matrix
MODES = {0: 0, 32: 3, 64: 2, 128: 1}
# Each of 128 threads copies its share of both images, then issues the product; columns of D are stored by registers.
KERNEL = """.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .u64 pin, .param .u64 pdescriptors, .param .u64 pa, .param .u64 pout) {{
.reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<12>; .reg .b32 %v<4>; .reg .b32 %a<4>; .reg .b32 %d<{registers}>;
ld.param.u64 %rd0, [pin]; ld.param.u64 %rd1, [pdescriptors]; ld.param.u64 %rd2, [pa]; ld.param.u64 %rd3, [pout];
mov.u32 %r0, %tid.x; mov.u32 %r1, dynamic; mul.lo.u32 %r2, %r0, 16; mov.u32 %r3, 0;
COPY: add.u32 %r4, %r2, %r3; cvt.u64.u32 %rd4, %r4; add.s64 %rd4, %rd0, %rd4;
ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%rd4]; add.u32 %r4, %r4, %r1; st.shared.v4.u32 [%r4], {{%v0, %v1, %v2, %v3}};
add.u32 %r3, %r3, 2048; setp.lt.u32 %p0, %r3, {images}; @%p0 bra COPY;
fence.proxy.async; bar.sync 0;
shr.u32 %r5, %r1, 4; cvt.u64.u32 %rd5, %r5; ld.global.u64 %rd6, [%rd1]; ld.global.u64 %rd7, [%rd1+8];
add.s64 %rd6, %rd6, %rd5; add.s64 %rd7, %rd7, %rd5;
mul.wide.u32 %rd8, %r0, 16; add.s64 %rd8, %rd2, %rd8; ld.global.v4.u32 {{%a0, %a1, %a2, %a3}}, [%rd8];
setp.ne.u32 %p1, 0, 0; wgmma.fence.sync.aligned;
{opcode} {{{list}}}, {left}, %rd7, %p1{rest};
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mul.wide.u32 %rd9, %r0, 4; add.s64 %rd9, %rd3, %rd9;
{stores} ret; }}"""


def place(row: Array, k: Array, size: int, transposed: bool, swizzle: int, leading: int, stride: int) -> Array:
    """Bytes from the matrix's start to number (row, k) of ``size`` bytes."""
    t = 16 // size
    atom = max(swizzle, 16) // 16        # 16-byte pieces of a row of the swizzle's atom
    if transposed:        # ((T, atom, m), (8, k)) : ((1, T, X), (atom T, Y))
        outer, inner = (stride, leading) if not swizzle else (leading, stride)
        at = (row % t + row // t % atom * t + k % 8 * atom * t) * size + row // (t * atom) * outer + k // 8 * inner
    elif swizzle:         # ((8, m), (T, 2k)) : ((atom T, SBO), (1, T))
        at = (row % 8 * atom * t + k % t + k // t * t) * size + row // 8 * stride
    else:                 # ((8, m), (T, 2k)) : ((T, SBO), (1, LBO))
        at = (row % 8 * t + k % t) * size + row // 8 * stride + k // t * leading
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[swizzle]
    return at ^ (at >> 7 & (1 << bits) - 1) << 4        # Swizzle<bits, 4, 3>


def image(matrix: Array, transposed: bool, swizzle: int) -> tuple[bytes, int]:
    """Shared memory with the matrix in it, and its descriptor but for the start. The two offsets differ, and neither is
    the least that would do."""
    size, (rows, count) = matrix.itemsize, matrix.shape
    leading, stride = (1024, 1024) if swizzle else (144, 640)
    if transposed and swizzle:
        per_row = swizzle // size
        stride = 8 * swizzle
        leading = 2 * stride * 2 if rows > per_row else 16
    elif swizzle:
        leading = 16
    words = np.full(IMAGE, 0xFF, np.uint8)
    row, k = (each.ravel() for each in np.indices((rows, count)))
    at = place(row, k, size, transposed, swizzle, leading, stride)
    assert len(np.unique(at)) == len(at)
    assert at.max() + size <= IMAGE
    for byte in range(size):
        words[at + byte] = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, count, size)[row, k, byte]
    return words.tobytes(), leading >> 4 << 16 | stride >> 4 << 32 | MODES[swizzle] << 62


def multiplied(
    cuda: Cuda, opcode: str, a: tuple[bytes, int], b: tuple[bytes, int], columns: int, rest: str,
    registers: Array | None = None,
) -> Array:
    """D of one product, 64 rows, as 32-bit words."""
    given = np.frombuffer(a[0] + b[0], np.uint8).copy()
    descriptors = np.array([a[1], b[1] + (IMAGE >> 4)], np.uint64)
    count = columns // 2
    out = np.zeros((count, 128), np.uint32)
    kernel = KERNEL.format(
        registers=count, images=2 * IMAGE, opcode=opcode, list=", ".join(f"%d{i}" for i in range(count)), rest=rest,
        left="%rd6" if registers is None else "{%a0, %a1, %a2, %a3}",
        stores=" ".join(f"st.global.b32 [%rd9+{512 * i}], %d{i};" for i in range(count)))
    cuda.launch(kernel, [given, descriptors, np.zeros((128, 4), np.uint32) if registers is None else registers, out],
                block=128, shared=2 * IMAGE)
    lane, warp = np.arange(128) % 32, np.arange(128) // 32
    result = np.zeros((64, columns), np.uint32)
    for i in range(count):
        result[16 * warp + lane // 4 + 8 * (i % 4 // 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2] = out[i]
    return result


@pytest.mark.parametrize(("left", "right", "swizzle"), list(product([False, True], [False, True], MODES)))
def test_a_matrix_lies_as_the_manual_says(cuda: Cuda, left: bool, right: bool, swizzle: int) -> None:
    random = np.random.default_rng(swizzle)
    a, b = (random.integers(-8, 9, (rows, 16)).astype(np.float16) for rows in (64, 128))
    got = multiplied(cuda, "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", image(a, left, swizzle),
                     image(b, right, swizzle), 128, f", 1, 1, {int(left)}, {int(right)}")
    assert np.array_equal(got.view(np.float32), a.astype(np.float32) @ b.astype(np.float32).T)


def words_of(a: Array) -> Array:
    """A in registers: of each thread four words, of its rows and along K."""
    lane, warp = np.arange(128) % 32, np.arange(128) // 32
    words = np.ascontiguousarray(a).view(np.uint32)
    return np.ascontiguousarray(np.stack(
        [words[16 * warp + lane // 4 + 8 * (j % 2), lane % 4 + 4 * (j // 2)] for j in range(4)], 1))


@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize(("kind_a", "kind_b"), list(product("su", repeat=2)))
def test_integers_of_more_columns(cuda: Cuda, kind_a: str, kind_b: str, in_registers: bool) -> None:
    random = np.random.default_rng(1)
    types = {"s": np.int8, "u": np.uint8}
    a, b = (random.integers(np.iinfo(types[kind]).min, np.iinfo(types[kind]).max + 1, (rows, 32)).astype(types[kind])
            for kind, rows in ((kind_a, 64), (kind_b, 48)))
    got = multiplied(cuda, f"wgmma.mma_async.sync.aligned.m64n48k32.s32.{kind_a}8.{kind_b}8", image(a, False, 32),
                     image(b, False, 0), 48, "", words_of(a) if in_registers else None)
    assert np.array_equal(got.view(np.int32), a.astype(np.int32) @ b.astype(np.int32).T)


def test_bits(cuda: Cuda) -> None:
    """Ones that both rows have, of 256 bits. No hardware has confirmed it; the arithmetic leaves no choice."""
    a, b = (np.random.default_rng(rows).integers(0, 256, (rows, 32)).astype(np.uint8) for rows in (64, 16))
    got = multiplied(cuda, "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc", image(a, False, 32),
                     image(b, False, 32), 16, "")
    left, right = (np.unpackbits(each, axis=1).astype(np.int32) for each in (a, b))
    assert np.array_equal(got.view(np.int32), left @ right.T)
