# SPDX-License-Identifier: MIT
"""Every recorded instruction gives the bits that an H200 gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.ptx import recorded
from tests.emulator.ptx.driver import Array, Cuda

RECORDED = recorded.load()
ELEMENTS = sorted(name for name, entry in RECORDED.items() if "shape" not in entry)
WARP = sorted(name for name in RECORDED if name.startswith("mma"))
WARPGROUP = sorted(name for name in RECORDED if name.startswith("wgmma"))
LANE = np.arange(32)
# Special functions: the hardware's tables are not public. The emulator computes them exactly; the largest differences
# seen in all recordings, as (units in the last place, absolute).
FUNCTIONS = {
    "ex2": (2, 0.0), "lg2": (4, 2.0**-21.5), "rcp": (2, 0.0), "rsqrt": (2, 0.0), "sqrt": (2, 0.0), "div": (3, 0.0),
    "sin": (4, 2.0**-20.5), "cos": (4, 2.0**-20.5), "tanh": (200, 2.0**-15.9),
}


def element(text: str, inputs: list[Array], result: Array) -> str:
    """A kernel that executes ``text`` once a thread."""
    kinds = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}
    lines = [f".visible .entry k({', '.join(f'.param .u64 a{i}' for i in range(len(inputs) + 1))}, .param .u32 n)", "{",
             ".reg .pred %p0; .reg .b32 %r<5>; .reg .b64 %rd<9>;", f".reg .{kinds[result.itemsize]} %out;"]
    lines += [f".reg .{kinds[each.itemsize]} %in{i};" for i, each in enumerate(inputs)]
    lines += ["mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r0, %r1, %r2;",
              "ld.param.u32 %r4, [n]; setp.ge.u32 %p0, %r3, %r4; @%p0 bra DONE;"]
    for i, each in enumerate(inputs):
        lines.append(f"ld.param.u64 %rd{i}, [a{i}]; mad.wide.u32 %rd{i}, %r3, {each.itemsize}, %rd{i}; "
                     f"ld.global.b{8 * each.itemsize} %in{i}, [%rd{i}];")
    body = text.replace("%0", "%out")
    for i in range(len(inputs)):
        body = body.replace(f"%{i + 1}", f"%in{i}")
    last = len(inputs)
    lines += ["{", body, "}", f"ld.param.u64 %rd{last}, [a{last}]; "
              f"mad.wide.u32 %rd{last}, %r3, {result.itemsize}, %rd{last}; "
              f"st.global.b{8 * result.itemsize} [%rd{last}], %out;", "DONE: ret;", "}"]
    return "\n".join(lines)


def as_numbers(words: Array, name: str) -> Array:
    if words.dtype == np.uint64:
        return words.view(np.float64)
    if words.dtype == np.uint32 and "x2" not in name.replace("ex2", ""):
        return words.view(np.float32).astype(np.float64)
    halves = words.view(np.uint16)
    if "bf16" in name:
        return (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return halves.view(np.float16).astype(np.float64)


@pytest.mark.parametrize("name", ELEMENTS)
def test_an_element_has_the_bits_of_the_hardware(cuda: Cuda, name: str) -> None:
    *inputs, right = RECORDED[name]["arrays"]
    inputs, out = [each.copy() for each in inputs], np.zeros_like(right)
    kernel = element(RECORDED[name]["text"], inputs, right)
    cuda.launch(kernel, [*inputs, out, len(out)], grid=-(-len(out) // 64), block=64)
    limits = next((limit for word, limit in FUNCTIONS.items() if name.startswith(f"{word}_approx")), None)
    if name.startswith("div_full"):
        limits = FUNCTIONS["div"]
    if limits is None:
        wrong = np.flatnonzero(out != right)
        assert not len(wrong), [(*(hex(each[i]) for each in inputs), hex(out[i]), hex(right[i])) for i in wrong[:3]]
        return
    got, wanted = as_numbers(out, name), as_numbers(right, name)
    assert (np.isnan(got) == np.isnan(wanted)).all()
    with np.errstate(invalid="ignore", over="ignore"):
        step = 2.0**-7 if "bf16" in name else 2.0**-10 if "f16" in name else 2.0**-20 if "f64" in name else 2.0**-23
        least = 2.0**-24 if "f16" in name and "bf16" not in name else 2.0**-149      # the place of subnormals
        near = np.abs(got - wanted) <= limits[0] * step * np.abs(wanted) + limits[1] + least
    assert (near | (got == wanted) | np.isnan(wanted)).all(), np.c_[got, wanted][~near][:5]


def fragments(words: Array, upper: int, count: int) -> Array:
    """Registers of lanes: word ``l % 4 + 4 (j / upper)`` of row ``l / 4 + 8 (j % upper)``."""
    return np.stack([words[:, LANE // 4 + 8 * (j % upper), LANE % 4 + 4 * (j // upper)] for j in range(count)], 1)


def accumulators(matrix: Array, half: bool, threads: int = 32) -> Array:
    """Registers of D or C: pairs of columns in one register if ``half``."""
    lane, warp = np.arange(threads) % 32, np.arange(threads) // 32
    rows = range(4 if matrix.shape[1] > 8 else 2)
    parts = [matrix[:, 16 * warp + lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for i in rows]
    if half:
        parts = [low.astype(np.uint32) | high.astype(np.uint32) << 16
                 for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return np.ascontiguousarray(np.stack(parts, 1))


def listed(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


@pytest.mark.parametrize("name", WARP)
def test_a_product_of_a_warp_has_the_bits_of_the_hardware(cuda: Cuda, name: str) -> None:
    entry: dict[str, Any] = RECORDED[name]
    a, b, c, d = entry["arrays"]
    m, n, _k = entry["shape"]
    word = np.uint64 if entry["types"][1] == "f64" else np.uint32
    blocks, half = len(a), entry["types"][0] == "f16"
    a_words = np.ascontiguousarray(a).view(word).reshape(blocks, m, -1)
    b_words = np.ascontiguousarray(b.transpose(0, 2, 1)).view(word).reshape(blocks, n, -1)
    operands = [fragments(a_words, m // 8, a_words.shape[2] // 4 * (m // 8)),
                fragments(b_words, 1, b_words.shape[2] // 4), accumulators(c, half)]
    operands = [np.ascontiguousarray(each) for each in operands]
    right = accumulators(d, half)
    out = np.zeros_like(right)
    lines = [".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)", "{",
             ".reg .b64 %rd<3>; .reg .b32 %r<4>; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;"]
    for i, each in enumerate([*operands, out]):
        bits = 8 * each.itemsize
        lines.append(f".reg .b{bits} %{'abcd'[i]}<{each.shape[1]}>;")
        lines.append(f"ld.param.u64 %rd0, [p{i}]; mul.lo.u32 %r2, %r0, {32 * each.shape[1]}; add.u32 %r2, %r2, %r1; "
                     f"mul.wide.u32 %rd1, %r2, {each.itemsize}; add.s64 %rd0, %rd0, %rd1;")
        if i < 3:
            lines += [f"ld.global.b{bits} %{'abc'[i]}{j}, [%rd0+{32 * j * each.itemsize}];"
                      for j in range(each.shape[1])]
    counts = [each.shape[1] for each in [out, *operands]]
    lines.append(f"{entry['text'].split(' d,')[0]} {', '.join(map(listed, 'dabc', counts))};")
    lines += [f"st.global.b{8 * out.itemsize} [%rd0+{32 * j * out.itemsize}], %d{j};" for j in range(out.shape[1])]
    cuda.launch("\n".join([*lines, "ret;", "}"]), [*operands, out], grid=blocks)
    assert np.array_equal(out, right), f"{np.count_nonzero(out != right)} of {out.size} differ"


def core_matrices(rows: Array) -> Array:
    """Operands of 32 bytes a row, not swizzled: 8 rows of 16 bytes each, 128 bytes apart along K, 256 along M or N."""
    blocks, count, _bytes = rows.shape
    return np.ascontiguousarray(rows.reshape(blocks, count // 8, 8, 2, 16).transpose(0, 1, 3, 2, 4)).reshape(blocks, -1)


@pytest.mark.parametrize("name", WARPGROUP)
def test_a_product_of_a_warpgroup_has_the_bits_of_the_hardware(cuda: Cuda, name: str) -> None:
    entry: dict[str, Any] = RECORDED[name]
    a, b, c, d = entry["arrays"]
    blocks, half = len(a), entry["types"][0] == "f16"
    left = core_matrices(np.ascontiguousarray(a).view(np.uint8).reshape(blocks, 64, 32))
    right = core_matrices(np.ascontiguousarray(b.transpose(0, 2, 1)).view(np.uint8).reshape(blocks, 8, 32))
    before, wanted = accumulators(c, half, 128), accumulators(d, half, 128)
    out, count = np.zeros_like(wanted), wanted.shape[1]
    opcode, rest = entry["text"].split(" d,")
    scales = rest.split("scale-d")[1].split(";")[0].partition(" with")[0]
    test = "ne" if "scale-d false" in entry["text"] else "eq"
    descriptor = 8 << 16 | 16 << 32
    place = "".join(f"mul.wide.u32 %rd1, {index}, {{}}; add.s64 %rd0, %rd0, %rd1; " for index in ("%r0", "%r1"))
    copy = ("ld.param.u64 %rd0, [{}]; " + place + " ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%rd0]; mov.u32 %r2, {}; "
            "mad.lo.u32 %r2, %r1, 16, %r2; st.shared.v4.u32 [%r2], {{%v0, %v1, %v2, %v3}};")
    lines = [
        ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)", "{",
        ".shared .align 1024 .b8 sa[2048]; .shared .align 1024 .b8 sb[256];",
        ".reg .pred %p<2>; .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .b32 %v<4>;", f".reg .b32 %d<{count}>;",
        "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;", copy.format("pa", 2048, 16, "sa"),
        "setp.ge.u32 %p0, %r1, 16; @%p0 bra THERE;", copy.format("pb", 256, 16, "sb"),
        "THERE: fence.proxy.async; bar.sync 0;",
        "ld.param.u64 %rd0, [pc];", place.format(512 * count, 4),
        *(f"ld.global.b32 %d{i}, [%rd0+{512 * i}];" for i in range(count)),
        *(f"mov.u32 %r2, s{x}; shr.u32 %r2, %r2, 4; cvt.u64.u32 %rd{i}, %r2; or.b64 %rd{i}, %rd{i}, {descriptor};"
          for i, x in ((2, "a"), (3, "b"))),
        f"setp.{test}.u32 %p1, 0, 0;", "wgmma.fence.sync.aligned;",
        f"{opcode} {listed('d', count)}, %rd2, %rd3, %p1{scales};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        "ld.param.u64 %rd0, [pd];", place.format(512 * count, 4),
        *(f"st.global.b32 [%rd0+{512 * i}], %d{i};" for i in range(count)), "ret;", "}",
    ]
    cuda.launch("\n".join(lines), [left, right, before, out], grid=blocks, block=128)
    assert np.array_equal(out, wanted), f"{np.count_nonzero(out != wanted)} of {out.size} differ"
