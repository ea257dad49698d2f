# SPDX-License-Identifier: MIT
"""AMD machine code: code objects through the emulator's disassembler, with the lines each instruction came from."""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from backends import _codeobject
from backends.machine import units
from backends.machine.model import Function, Instruction, Place, Resources

# amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-, or of newer LLVM amdgpu9.42-amd-amdhsa-unknown-gfx942
_ARCH = re.compile(r"-(gfx[\w-]+)")
_BRANCH = re.compile(r"s_(?:c?branch\w*|call_b64)$")
_OFFSET = re.compile(r"(\d+)$")
_TEXT_BYTES = 512

Disassembler = Callable[[bytes], tuple[str, int]]        # code -> (text, dwords; 0 for no instruction)


def disassembler(library: Path) -> Disassembler:
    """The emulator's, from its ``libamdhip64.so``: text in LLVM's syntax."""
    call = ctypes.CDLL(str(library)).warpwave_emulator_disassemble
    call.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    text = ctypes.create_string_buffer(_TEXT_BYTES)

    def disassemble(code: bytes) -> tuple[str, int]:
        words = call(code, len(code) // 4, text, _TEXT_BYTES)
        return text.value.decode(), words

    return disassemble


def functions(code_object: bytes, disassemble: Disassembler, lines: bool = True) -> list[Function]:
    """All device functions of a code object, without short names; ``lines`` reads the line table, too.

    Raises ``ValueError`` if it is no AMD code object.
    """
    from elftools.elf.elffile import ELFFile

    metadata = _codeobject.metadata(code_object)
    match = _ARCH.search(str(metadata.get("amdhsa.target", "")))
    arch = match[1] if match else ""
    kernels = {kernel.name: kernel for kernel in _codeobject.kernels(code_object)}
    elf: Any = ELFFile(BytesIO(code_object))
    text = elf.get_section_by_name(".text")
    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    places = _places(elf) if lines and elf.has_dwarf_info() else None
    words = text.data()
    found = []
    for symbol in table.iter_symbols():
        if symbol["st_info"]["type"] != "STT_FUNC" or not symbol["st_size"]:
            continue
        start = symbol["st_value"]
        at = start - text["sh_addr"]
        code = tuple(_instructions(words[at : at + symbol["st_size"]], start, disassemble, places))
        kernel = kernels.get(symbol.name)
        found.append(Function(
            symbol.name, symbol.name, arch, code, int(symbol["st_size"]),
            _resources(kernel) if kernel else Resources(), kernel is not None))
    return found


def _resources(kernel: _codeobject.KernelMetadata) -> Resources:
    return Resources(
        registers=kernel.vgprs, agprs=kernel.agprs, scalar_registers=kernel.sgprs, static_shared=kernel.lds_bytes,
        scratch_bytes=kernel.scratch_bytes, spill_bytes=4 * (kernel.vgpr_spills + kernel.sgpr_spills),
        threads=kernel.max_threads)


def _instructions(
    code: bytes, start: int, disassemble: Disassembler, places: Callable[[int], tuple[Place, ...]] | None
) -> Iterator[Instruction]:
    at = 0
    while at + 4 <= len(code):
        text, words = disassemble(code[at : at + 20])
        if not words:
            text, words = f".long 0x{int.from_bytes(code[at : at + 4], 'little'):08x}", 1
        opcode = text.partition(" ")[0]
        target = None
        if _BRANCH.match(opcode) and (match := _OFFSET.search(text)):
            target = at + 4 * words + 4 * ((int(match[1]) & 0xFFFF ^ 0x8000) - 0x8000)
            text = f"{text[: match.start()]}{target:#x}"
        elif opcode == "s_waitcnt" and text.split()[1].startswith("0x"):
            text = f"{opcode} {_counters(int(text.split()[1], 0))}"
        yield Instruction(at, text, opcode, units.gfx(opcode), places(start + at) if places else (), target,
                          opcode.startswith("s_cbranch"))
        at += 4 * words
        if opcode == "s_endpgm" and not any(code[at:].strip(b"\0")):
            return


def _counters(value: int) -> str:
    """The operand of s_waitcnt as LLVM writes it: the counters that are waited for."""
    fields = (("vmcnt", value & 15 | value >> 10 & 48, 63), ("expcnt", value >> 4 & 7, 7),
              ("lgkmcnt", value >> 8 & 15, 15))
    return " ".join(f"{name}({count})" for name, count, most in fields if count != most) or f"{value:#x}"


# Line tables ---------------------------------------------------------------------------------------------------------

def _places(elf: Any) -> Callable[[int], tuple[Place, ...]]:
    """Where an address came from, innermost first: the line table, then the calls that were put inline around it."""
    dwarf = elf.get_dwarf_info()
    rows: list[tuple[int, Place | None]] = []
    calls: list[tuple[int, int, int, Place]] = []         # first, behind the last, depth, place of the call
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        names = _file_names(program)
        for entry in program.get_entries():
            if (state := entry.state) is not None:
                place = Place(names.get(state.file, "?"), state.line) if state.line and not state.end_sequence else None
                rows.append((state.address, place))
        calls += _inlined(dwarf, unit.get_top_DIE(), names, 0)
    rows.sort(key=lambda row: row[0])
    addresses = [address for address, _ in rows]
    around = _around(calls)

    def places(address: int) -> tuple[Place, ...]:
        at = bisect_right(addresses, address) - 1
        own = rows[at][1] if at >= 0 else None
        return (own, *around(address)) if own else ()

    return places


def _around(calls: Sequence[tuple[int, int, int, Place]]) -> Callable[[int], tuple[Place, ...]]:
    """The places of the ``calls`` that an address lies in, innermost first. There are thousands of either in a kernel:
    what holds between two of their ends is put together once."""
    ordered = sorted(calls, key=lambda call: -call[2])
    starting: dict[int, list[int]] = {}
    for number, (first, end, _, _) in enumerate(ordered):
        if first < end:
            starting.setdefault(first, []).append(number)
    bounds = sorted({bound for first, end, _, _ in ordered for bound in (first, end)})
    inside: list[tuple[Place, ...]] = []
    active: list[int] = []
    for bound in bounds:
        active = sorted([*(number for number in active if ordered[number][1] > bound), *starting.get(bound, ())])
        inside.append(tuple(ordered[number][3] for number in active))

    def around(address: int) -> tuple[Place, ...]:
        at = bisect_right(bounds, address) - 1
        return inside[at] if at >= 0 else ()

    return around


def _file_names(program: Any) -> Mapping[int, str]:
    """Names of a line program's files by number; relative where the compiler made them so."""
    header = program.header
    old = header["version"] < 5
    folders = [_text(folder) for folder in header["include_directory"]]

    def name(entry: Any) -> str:
        folder = entry.dir_index - 1 if old else entry.dir_index
        path = Path(_text(entry.name))
        return str(path if path.is_absolute() or not 0 <= folder < len(folders) else Path(folders[folder]) / path)

    return {number + (1 if old else 0): name(entry) for number, entry in enumerate(header["file_entry"])}


def _text(value: Any) -> str:
    value = getattr(value, "name", value)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _inlined(dwarf: Any, die: Any, names: Mapping[int, str], depth: int) -> Iterator[tuple[int, int, int, Place]]:
    for child in die.iter_children():
        inside = depth
        if child.tag == "DW_TAG_inlined_subroutine":
            inside += 1
            attributes = child.attributes
            place = Place(names.get(attributes["DW_AT_call_file"].value, "?"), attributes["DW_AT_call_line"].value)
            for first, end in _ranges(dwarf, child):
                yield first, end, inside, place
        if child.has_children:
            yield from _inlined(dwarf, child, names, inside)


def _ranges(dwarf: Any, die: Any) -> Sequence[tuple[int, int]]:
    attributes = die.attributes
    if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
        first, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        return [(first, high.value if high.form == "DW_FORM_addr" else first + high.value)]
    if "DW_AT_ranges" not in attributes:
        return []
    entries = dwarf.range_lists().get_range_list_at_offset(attributes["DW_AT_ranges"].value, die.cu)
    return _resolved(entries, die)


def _resolved(entries: Sequence[Any], die: Any) -> list[tuple[int, int]]:
    base = die.cu.get_top_DIE().attributes
    start = base["DW_AT_low_pc"].value if "DW_AT_low_pc" in base else 0
    found = []
    for entry in entries:
        if hasattr(entry, "base_address"):
            start = entry.base_address
        else:
            add = 0 if getattr(entry, "is_absolute", False) else start
            found.append((entry.begin_offset + add, entry.end_offset + add))
    return found
