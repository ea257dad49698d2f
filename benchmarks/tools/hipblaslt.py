# SPDX-License-Identifier: MIT
"""hipBLASLt's own products for gfx942, made by its own generator and launched as its host code launches them.

The library's kernels are assembly that TensileLite, a Python program in its repository, writes from "logic" files;
clang assembles it. Nothing of the checkout is committed. TensileLite needs PyYAML, msgpack, joblib and packaging:
``pip install msgpack joblib`` into this environment. Row-major c = a b, a [m, k], b [k, n]: what the library calls NN.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from emulated import Emulator
from published_programs import folder

from backends import _llvm, rocm

LOGIC = "library/src/amd_detail/rocblaslt/src/Tensile/Logic/asm_full/aquavanjaram/gfx942"
# fp16 in and out, fp32 sums, both row-major; the same in ROCm 6.3 as in the commit that published_programs.py names.
GROUPED = "FreeSize/aquavanjaram_Cijk_Ailk_Bljk_HHS_BH_GG_UserArgs.yaml"
TILE = re.compile(r"_MT(\d+)x(\d+)x(\d+)_")


@dataclass(frozen=True)
class Solution:
    """A kernel. Its tile is ``columns`` x ``rows`` of c: the library calls columns M."""

    name: str
    code_object: Path
    columns: int
    rows: int
    threads: int
    argument_bytes: int

    @property
    def tile(self) -> str:
        found = TILE.search(self.name)
        return "×".join(found.groups()) + self.name[found.end() - 1:found.end() + 9] if found else self.name


def _clang() -> _llvm.Llvm:
    compiler = rocm.find()
    if not isinstance(compiler, _llvm.Llvm):
        raise SystemExit("hipBLASLt's kernels are assembled by plain clang; this machine has hipcc")
    return compiler


def _assembled(source: Path, build: Path) -> Solution:
    text = source.read_text()
    name, tile = re.search(r"\.globl (\S+)", text), TILE.search(text)
    threads = re.search(r"max_flat_workgroup_size:\s+(\d+)", text)
    size = re.search(r"kernarg_segment_size:\s+(\d+)", text)
    if not (name and tile and threads and size):
        raise SystemExit(f"{source}: not as hipBLASLt writes it")
    code_object = build / f"hipblaslt_{hashlib.sha256(text.encode()).hexdigest()[:12]}.co"
    if not code_object.is_file():
        clang, assembled = _clang(), code_object.with_suffix(".o")
        subprocess.run([*clang.clang, "-x", "assembler", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942",
                        "-mcode-object-version=4", "-c", str(source), "-o", str(assembled)], check=True)
        subprocess.run([*clang.lld, "-shared", str(assembled), "-o", str(code_object)], check=True)
    return Solution(name[1], code_object, int(tile[1]), int(tile[2]), int(threads[1]), int(size[1]))


def _assembler(build: Path) -> Path:
    """A program that TensileLite can ask what the assembler knows: it pipes a line in, and wants no file."""
    program, clang = build / "assembler", " ".join(_clang().clang)
    program.write_text(f'#!/bin/sh\nfor last; do :; done\n[ "$last" = - ] && exec {clang} "$@" -c -o /dev/null\n'
                       f'exec {clang} "$@"\n')
    program.chmod(0o755)
    return program


def _written(sources: Path, build: Path, wanted: re.Pattern[str]) -> list[Path]:
    """TensileLite's assembly of the solutions whose names match."""
    checkout = folder(sources, "hipblaslt")
    sys.path.insert(0, str(checkout / "tensilelite"))
    os.environ["TENSILE_ROCM_ASSEMBLER_PATH"] = str(_assembler(build))
    import yaml
    from Tensile import (  # type: ignore[import-not-found]     # of the checkout
        Common,
        LibraryIO,
        TensileCreateLibrary,
        TensileInstructions,
    )
    Common.assignGlobalParameters({
        "Architecture": "gfx942", "CxxCompiler": "amdclang++", "AMDGPUArchPath": False, "PrintLevel": 0,
        "GenerateSourcesAndExit": True, "WorkingPath": str(build), "CodeObjectVersion": "V4"})
    logic = yaml.load((checkout / LOGIC / GROUPED).read_text(), yaml.CSafeLoader)
    logic[5] = [each for each in logic[5] if wanted.search(each["SolutionNameMin"])]
    for number, each in enumerate(logic[5]):
        each["SolutionIndex"] = number
    logic[7] = []
    found = LibraryIO.parseLibraryLogicData(logic, GROUPED)
    kernels, _helpers, _names = TensileCreateLibrary.generateKernelObjectsFromSolutions(found.solutions)
    writer, _naming, _ = TensileCreateLibrary.getSolutionAndKernelWriters(found.solutions, kernels)
    TensileCreateLibrary.prepAsm(writer)
    instructions = TensileInstructions.TensileInstructions()
    written = []
    for kernel in kernels:
        kernel.duplicate = False
        status, _source, _header, name, _file = TensileCreateLibrary.processKernelSource(kernel, writer, instructions)
        if status == 0:
            written.append(build / "assembly" / f"{name}.s")
    return written


def solutions(sources: Path, build: Path, wanted: str) -> Iterator[Solution]:
    """Those of the library's grouped fp16 products whose names match the pattern ``wanted``."""
    place = build / f"hipblaslt_{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    listed = place / "written"
    if not listed.is_file():
        place.mkdir(parents=True, exist_ok=True)
        listed.write_text("\n".join(map(str, _written(sources, place, re.compile(wanted)))))
    for source in listed.read_text().split():
        yield _assembled(Path(source), build)


@dataclass(frozen=True)
class Product:
    """c = a b by addresses: a [m, k], b [k, n], c [m, n], all row-major."""

    a: int
    b: int
    c: int
    m: int
    n: int
    k: int

    def arguments(self) -> bytes:
        """As the library lays them out; it thinks of transposed matrices with columns innermost."""
        m, n, k = self.m, self.n, self.k
        return struct.pack("<4I4Q8I2f", n, m, 1, k, self.c, self.c, self.b, self.a, n, n * m, n, n * m, n, n * k, k,
                           m * k, 1.0, 0.0)


class Kernel:
    """A solution, loaded into the emulator."""

    def __init__(self, emulator: Emulator, solution: Solution):
        self.solution, self._emulator, self._hip = solution, emulator, emulator.library
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        path, name = str(solution.code_object).encode(), solution.name.encode()
        if (self._hip.hipModuleLoad(ctypes.byref(module), path)
                or self._hip.hipModuleGetFunction(ctypes.byref(self._function), module, name)):
            raise SystemExit(f"{solution.name}: cannot be loaded")

    def _tiles(self, product: Product) -> int:
        return -(-product.n // self.solution.columns) * -(-product.m // self.solution.rows)

    def _launch(self, kind_and_count: int, bands: int, workgroups: int, arguments: bytes) -> None:
        """``bands``: rows of tiles that are gone through together. No stagger, K in one part, no order by dies."""
        head = struct.pack("<4I", kind_and_count, 1, 0x3FF << 22 | 1 << 16 | bands, workgroups)
        packed = ctypes.create_string_buffer((head + arguments).ljust(self.solution.argument_bytes + 64, b"\0"))
        size = ctypes.c_size_t(len(packed))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 3)
        status = self._hip.hipModuleLaunchKernel(self._function, workgroups, 1, 1, self.solution.threads, 1, 1, 0, None,
                                                 None, extra)
        if status:
            raise SystemExit(f"{self.solution.name}: status {status}")

    def single(self, product: Product, bands: int = 1) -> None:
        self._launch(1, bands, self._tiles(product), product.arguments())

    def grouped(self, products: Sequence[Product], bands: int = 1) -> None:
        """One launch; where each product's arguments lie is the kernel's only one."""
        begins = [sum(map(self._tiles, products[:number])) for number in range(len(products) + 1)]
        table = struct.pack(f"<{len(products)}I", *begins[:-1]) + b"".join(each.arguments() for each in products)
        room = torch.frombuffer(bytearray(table), dtype=torch.uint8)
        self._emulator.register({"arguments": room})
        self._launch(1 << 30 | len(products), bands, begins[-1], struct.pack("<3Q", room.data_ptr(), 0, 0))
        self._emulator.unregister({"arguments": room})
