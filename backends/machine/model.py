# SPDX-License-Identifier: MIT
"""The vocabulary of this folder: places in the source, instructions, functions and their resources."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a source file, as the compiler wrote it into the binary. ``line`` counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction. ``address`` is in bytes from the start of its function.

    ``text`` is the disassembler's, with the guard (``@P0``) and with branch targets as addresses. ``opcode`` has its
    suffixes (``HGMMA.64x64x16.F32.BF16``). ``places`` starts with the innermost inlined function; it is empty where
    the binary has no line table. ``target`` is the address of a branch's target inside the function.
    """

    address: int
    text: str
    opcode: str
    unit: str
    places: tuple[Place, ...] = ()
    target: int | None = None
    guarded: bool = False

    @property
    def base(self) -> str:
        """``HGMMA`` of ``HGMMA.64x64x16.F32.BF16``."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True)
class Resources:
    """What one block of a kernel needs; None where the file does not tell it. Bytes; registers per thread.

    ``dynamic_shared`` is what a launch asks for on top: 0 where the code cannot use any, None where only the launch
    knows. ``scratch_bytes`` is local memory (stack, spilled registers) per thread.
    """

    registers: int | None = None
    agprs: int | None = None
    scalar_registers: int | None = None
    static_shared: int = 0
    dynamic_shared: int | None = None
    scratch_bytes: int | None = None
    spill_bytes: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Function:
    """One device function. ``mangled`` is its symbol, ``name`` the short form for people; ``entry`` marks kernels."""

    mangled: str
    name: str
    arch: str
    code: tuple[Instruction, ...] = field(repr=False)
    size: int                    # bytes of code
    resources: Resources = Resources()
    entry: bool = True
    raw: str = field(default="", repr=False)     # the vendor's disassembler's own text; "" if there is none

    @property
    def is_amd(self) -> bool:
        return self.arch.startswith("gfx")


@dataclass(frozen=True)
class Image:
    """All functions of one file and what its compiler said. ``origin`` names the file or the kernel for people."""

    origin: str
    functions: tuple[Function, ...]
    compiler: str = ""
    log: str = field(default="", repr=False)
    source: str = field(default="", repr=False)          # of the kernel file with its headers; "" where unknown
