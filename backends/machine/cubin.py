# SPDX-License-Identifier: MIT
"""What a cubin says about its kernels without disassembling it: registers, stack, shared memory, launch bounds.

NVIDIA documents neither the sections nor the records; numbers are as seen in what ptxas writes, and a test compares
them with what ``ptxas -v`` reports.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from backends import _ptxas
from backends.machine.model import Resources

_MAX_THREADS, _REQUIRED_THREADS, _FRAME, _REGISTERS = 0x05, 0x10, 0x11, 0x2F
_RESERVED = 1024           # of every block on sm_90 and later, at the start of its shared memory


@dataclass(frozen=True)
class Entry:
    """One code section: the kernel's symbol, its index for ``nvdisasm -fun``, and its resources."""

    name: str
    symbol: int
    size: int                  # bytes of code, with padding
    resources: Resources


def entries(cubin: bytes) -> list[Entry]:
    """All kernels of a cubin in its order. Raises ``ValueError`` if it is no ELF file of CUDA's."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(BytesIO(cubin))
        if elf.header.e_machine != "EM_CUDA":
            raise ValueError("not CUDA machine code")
        return _entries(elf)
    except ELFError as error:
        raise ValueError(f"not an ELF file: {error}") from error


def _entries(elf: Any) -> list[Entry]:
    symbols = {symbol.name: index for index, symbol in enumerate(elf.get_section_by_name(".symtab").iter_symbols())
               if symbol["st_info"]["type"] == "STT_FUNC"}
    info = elf.get_section_by_name(".nv.info")
    facts: dict[tuple[int, int], int] = {}
    for attribute, value in _ptxas.info_records(info.data()) if info else ():
        if attribute in (_FRAME, _REGISTERS) and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            facts[attribute, symbol] = number
    found = []
    for section in elf.iter_sections():
        name = section.name.removeprefix(".text.")
        if name == section.name or name not in symbols:
            continue
        symbol = symbols[name]
        shared = elf.get_section_by_name(f".nv.shared.{name}")
        size = int(shared["sh_size"]) if shared else 0
        own = elf.get_section_by_name(f".nv.info.{name}")
        found.append(Entry(name, symbol, int(section["sh_size"]), Resources(
            registers=facts.get((_REGISTERS, symbol)), scratch_bytes=facts.get((_FRAME, symbol)),
            static_shared=size - _RESERVED if elf.get_section_by_name(".nv.shared.reserved.0") and size else size,
            threads=_threads(own.data()) if own else None)))
    return found


def _threads(records: bytes) -> int | None:
    for attribute, value in _ptxas.info_records(records):
        if attribute in (_MAX_THREADS, _REQUIRED_THREADS) and len(value) >= 12:
            x, y, z = struct.unpack_from("<III", value)
            return int(x * y * z)
    return None
