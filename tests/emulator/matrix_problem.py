# SPDX-License-Identifier: MIT
"""Matrix instructions to try on the emulator: how they are written, and problems laid out in registers."""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from backends.emulator import build
from tests.emulator import matrix_model as model
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.wave import WaveImage
from tests.emulator.runtime import built

Words = np.ndarray[Any, np.dtype[np.uint32]]

_FP8 = [f"{a}_{b}" for a in ("bf8", "fp8") for b in ("bf8", "fp8")]
DENSE = [
    *(f"v_mfma_f32_{shape}_xf32" for shape in ("16x16x8", "32x32x4")),
    *(f"v_mfma_f32_{shape}_f32" for shape in ("32x32x1_2b", "16x16x1_4b", "4x4x1_16b", "32x32x2", "16x16x4")),
    *(f"v_mfma_f32_{shape}_{kind}" for kind in ("f16", "bf16")
      for shape in ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x8", "16x16x16")),
    *(f"v_mfma_i32_{shape}_i8" for shape in ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b", "32x32x16", "16x16x32")),
    *(f"v_mfma_f32_{shape}_{kinds}" for shape in ("16x16x32", "32x32x16") for kinds in _FP8),
    "v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64",
]
SPARSE = [
    *(f"v_smfmac_f32_{shape}_{kind}" for kind in ("f16", "bf16") for shape in ("16x16x32", "32x32x16")),
    *(f"v_smfmac_i32_{shape}_i8" for shape in ("16x16x64", "32x32x32")),
    *(f"v_smfmac_f32_{shape}_{kinds}" for shape in ("16x16x64", "32x32x32") for kinds in _FP8),
]
A_AT, B_AT, C_AT, INDEX_AT, REGISTERS = 64, 68, 32, 80, 96      # D at 0, in vector and in accumulation registers
FILES = ("vvv", "avv", "vav", "vva", "aaa")                     # register files of D (and C), A and B
CONSTANTS = {"0": 0, "-4.0": -4, "2.0": 2, "-7": -7, "1.0": 1}  # inline, as accumulators


@dataclass(frozen=True)
class Instruction:
    name: str
    m: int
    k: int
    blocks: int
    a: str
    b: str
    result: str

    @staticmethod
    def parse(name: str) -> Instruction:
        found = re.fullmatch(r"v_s?mfma\w?c?_(\w\d\d)_(\d+)x\d+x(\d+)(?:_(\d+)b)?_([a-z0-9]+)(?:_([a-z0-9]+))?", name)
        assert found, name
        m, k, blocks = int(found[2]), int(found[3]), int(found[4] or 1)
        return Instruction(name, m, k, blocks, found[5], found[6] or found[5], found[1])

    @property
    def sparse(self) -> bool:
        return "smfmac" in self.name

    @property
    def stored(self) -> int:
        """Elements of A in a row."""
        return self.k // 2 if self.sparse else self.k

    @property
    def each_a(self) -> int:
        return self.m * self.stored * self.blocks // 64

    @property
    def each_b(self) -> int:
        return self.m * self.k * self.blocks // 64

    @property
    def words(self) -> int:
        return self.m * self.m * self.blocks * (2 if self.result == "f64" else 1) // 64


@functools.cache
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(built(build.library)))
    loaded.warpwave_emulator_execute.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return loaded


@dataclass
class Wave:
    vgprs: Words
    agprs: Words
    exec: int = 0

    @staticmethod
    def make(rng: np.random.Generator) -> Wave:
        return Wave(*(rng.integers(0, 1 << 32, (REGISTERS, 64), dtype=np.uint32) for _ in range(2)))

    def run(self, code: bytes) -> str:
        """What went wrong, or nothing."""
        words, message = np.frombuffer(code, np.uint32).copy(), ctypes.create_string_buffer(512)
        image = WaveImage(1, REGISTERS, REGISTERS, 0, (ctypes.c_uint32 * 128)(), 0, 0x3F0, 0, 0, self.vgprs.ctypes.data,
                          self.agprs.ctypes.data, None, ctypes.cast(message, ctypes.c_char_p))
        image.sgpr[126], image.sgpr[127] = self.exec & 0xFFFFFFFF, self.exec >> 32
        failed = library().warpwave_emulator_execute(words.ctypes.data, len(words), ctypes.byref(image))
        return message.value.decode() if failed else ""


def span(file: str, first: int, count: int) -> str:
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def text(one: Instruction, files: str = "vvv", c: str = "", modifiers: str = "", c_at: int = C_AT) -> str:
    """``files``: register files of D (and C), A and B."""
    registers = {"f64": 2, "f32": 1}.get(one.a) or max(one.each_a * _bits(one.a) // 32, 1)
    registers_b = {"f64": 2, "f32": 1}.get(one.b) or max(one.each_b * _bits(one.b) // 32, 1)
    third = f"v{INDEX_AT}" if one.sparse else c or span(files[0], c_at, one.words)
    return (f"{one.name} {span(files[0], 0, one.words)}, {span(files[1], A_AT, registers)}, "
            f"{span(files[2], B_AT, registers_b)}, {third} {modifiers}").strip()


def _bits(kind: str) -> int:
    return 8 if kind == "i8" else model.FORMATS[kind].bits


Places = tuple[Any, Any, Any]       # arrays of registers, lowest bits and lanes


def _arrays(places: list[model.Place], shape: tuple[int, ...]) -> Places:
    register, low, lane = (np.array(each).reshape(shape) for each in zip(*places, strict=True))
    return register, low, lane


@functools.cache
def factor_places(one: Instruction, kind: str, count: int, each: int) -> Places:
    """Of A [block, row, k], or B [block, column, k]; ``count``: k's in a row, ``each``: in a lane."""
    shape = (one.blocks, one.m, count)
    return _arrays([model.factor_place(one.m, one.blocks, kind, i, k, block, each)
                    for block, i, k in np.ndindex(shape)], shape)


@functools.cache
def result_places(one: Instruction) -> Places:
    shape = (one.blocks, one.m, one.m)
    return _arrays([model.result_place(one.m, one.result, i, j, block) for block, i, j in np.ndindex(shape)], shape)


def put(registers: Words, at: int, places: Places, bits: int, codes: Any) -> None:
    register, low, lane = places
    codes = np.broadcast_to(codes, register.shape).astype(np.uint64)
    mask = np.uint32((1 << min(bits, 32)) - 1)
    for word in range(max(1, bits // 32)):
        part = (codes >> np.uint64(32 * word)).astype(np.uint32) & mask
        where = (at + register + word, lane)
        np.bitwise_and.at(registers, where, ~(mask << low.astype(np.uint32)))
        np.bitwise_or.at(registers, where, part << low.astype(np.uint32))


def get(registers: Words, at: int, places: Places, bits: int) -> Any:
    register, _, lane = places
    words = [registers[at + register + word, lane].astype(object) << 32 * word for word in range(bits // 32)]
    return sum(words[1:], words[0])


@dataclass
class Problem:
    """Codes of A [block, row, stored k], B [block, k, column], C [block, row, column], and which k A's elements are."""

    one: Instruction
    a: Any
    b: Any
    c: Any
    position: Any

    @staticmethod
    def make(one: Instruction, rng: np.random.Generator, element: Any, accumulator: Any) -> Problem:
        codes = [np.array([make(kind) for _ in range(int(np.prod(shape)))], dtype=object).reshape(shape)
                 for make, kind, shape in ((element, one.a, (one.blocks, one.m, one.stored)),
                                           (element, one.b, (one.blocks, one.k, one.m)),
                                           (accumulator, one.result, (one.blocks, one.m, one.m)))]
        position = np.broadcast_to(np.arange(one.k), (one.m, one.k))
        if one.sparse:
            pairs = np.array(list(itertools.combinations(range(4), 2)))
            chosen = pairs[rng.integers(0, len(pairs), (one.m, one.k // 4))]
            position = (chosen + 4 * np.arange(one.k // 4)[None, :, None]).reshape(one.m, one.stored)
        return Problem(one, *codes, position)

    def place(self, wave: Wave, files: str = "vvv", part: int = 0) -> None:
        """``part``: of the index register."""
        one, file = self.one, {"v": wave.vgprs, "a": wave.agprs}
        at_a = factor_places(one, one.a, one.stored, one.each_a)
        put(file[files[1]], A_AT, at_a, _bits(one.a), self.a)
        if one.sparse:
            low = np.broadcast_to(part * 2 * one.each_a + np.arange(one.stored) % one.each_a * 2, at_a[1].shape)
            put(wave.vgprs, INDEX_AT, (np.zeros_like(at_a[0]), low, at_a[2]), 2, self.position % 4)
        put(file[files[2]], B_AT, factor_places(one, one.b, one.k, one.each_b), _bits(one.b), self.b.swapaxes(1, 2))
        put(file[files[0]], 0 if one.sparse else C_AT, result_places(one), int(one.result[1:]), self.c)

    def result(self, wave: Wave, file: str = "v") -> Any:
        return get({"v": wave.vgprs, "a": wave.agprs}[file], 0, result_places(self.one), int(self.one.result[1:]))

    def plain(self) -> Any:
        """D as codes, of operands that make every sum exact."""
        dense = np.zeros((self.one.blocks, self.one.m, self.one.k), dtype=object)
        for block, row in itertools.product(range(self.one.blocks), range(self.one.m)):
            dense[block, row, self.position[row]] = [_value(self.one.a, code) for code in self.a[block, row]]
        b, c = np.vectorize(_value)(self.one.b, self.b), np.vectorize(_value)(self.one.result, self.c)
        exact = np.array([dense[block] @ b[block] + c[block] for block in range(self.one.blocks)])
        return np.vectorize(code_of, otypes=[object])(self.one.result, exact)


@functools.lru_cache(1 << 16)
def _value(kind: str, code: int) -> int:
    if kind[0] == "i":
        bits = int(kind[1:])
        return (code ^ 1 << (bits - 1)) - (1 << (bits - 1))
    value = model.FORMATS[kind].decode(code)[0]
    assert isinstance(value, Fraction)
    assert value.denominator == 1
    return int(value)


@functools.lru_cache(1 << 16)
def code_of(kind: str, number: int) -> int:
    """The bits of a whole number."""
    return number & ((1 << int(kind[1:])) - 1) if kind[0] == "i" else model.FORMATS[kind].encode(Fraction(int(number)))


def modified(name: str) -> list[str]:
    """The modifiers that tests try on an instruction."""
    one = Instruction.parse(name)
    if one.sparse:
        return [*(f"abid:{part}" for part in range(16 // one.each_a + 1)), "cbsz:1 abid:1"]
    if one.a == "f64":
        return ["neg:[{},{},{}]".format(*signs) for signs in itertools.product((0, 1), repeat=3) if any(signs)]
    found = [f"blgp:{group}" for group in range(1, 8)]
    if one.blocks > 1:
        sizes = range(one.blocks.bit_length())
        found += [f"cbsz:{size} abid:{which}" for size in sizes for which in sorted({0, (1 << size) - 1})]
    return [*found, "cbsz:1"]


@functools.cache
def _encodings() -> dict[str, bytes | None]:
    """Everything the tests may ask for, in one run of the assembler."""
    lines = []
    for name in [*DENSE, *SPARSE]:
        one = Instruction.parse(name)
        lines += [text(one, files) for files in FILES] + [text(one, modifiers=each) for each in modified(name)]
        lines += [text(one, c=constant) for constant in CONSTANTS] + [text(one, c_at=2)]
    with tempfile.TemporaryDirectory() as folder:
        return dict(zip(lines, assemble(lines, Path(folder)), strict=True))


def encoded(one: Instruction, *words: str, **more: Any) -> bytes:
    """The code of ``text(one, ...)``."""
    line = text(one, *words, **more)
    code = _encodings()[line]
    assert code, f"gfx942 has not: {line}"
    return code


def small_problem(one: Instruction, rng: np.random.Generator) -> Problem:
    return Problem.make(one, rng, lambda kind: code_of(kind, int(rng.integers(-4, 5))),
                        lambda kind: code_of(kind, int(rng.integers(-500, 500))))


def random_code(rng: np.random.Generator, kind: str, spread: int) -> int:
    """Any bits (spread 0), or exponents at most ``spread`` from the middle, and some zeros."""
    form = model.FORMATS[kind]
    bits = int(rng.integers(0, 1 << form.bits, dtype=np.uint64))
    if not spread:
        return bits
    if rng.random() < 0.15:
        return 0
    field = int(np.clip(form.largest_field // 2 + rng.integers(-spread, spread + 1), 0, form.largest_field - 1))
    kept = bits & ~(form.largest_field << form.mantissa)
    code = kept | field << form.mantissa
    return 0 if form.nuz and code == 1 << (form.bits - 1) else code
