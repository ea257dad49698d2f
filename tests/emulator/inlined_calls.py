# SPDX-License-Identifier: MIT
"""What pyelftools says about calls that the compiler put inline: the oracle of the loader's own reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile

Place = list[Any]           # file, line, column


def expected_calls(elf: ELFFile, text: range) -> dict[int, list[Place]]:
    """Call sites by address, innermost first, for each instruction word that has them."""
    if not elf.has_dwarf_info():
        return {}
    dwarf = elf.get_dwarf_info()
    found: dict[int, list[tuple[int, Place]]] = {}
    for unit in dwarf.iter_CUs():
        lines = dwarf.line_program_for_CU(unit)
        for entry in unit.iter_DIEs():
            if entry.tag != "DW_TAG_inlined_subroutine":
                continue
            column = entry.attributes.get("DW_AT_call_column")
            place = [_path(lines, entry.attributes["DW_AT_call_file"].value),
                     entry.attributes["DW_AT_call_line"].value, column.value if column else 0]
            depth = _depth(entry)
            for begin, end in _ranges(dwarf, unit, entry.attributes):
                for address in range(begin, end, 4):
                    if address in text:
                        found.setdefault(address, []).append((depth, place))
    return {address: [place for _, place in sorted(calls, key=lambda call: -call[0])]
            for address, calls in found.items()}


def _depth(entry: Any) -> int:
    depth = 0
    while (entry := entry.get_parent()) is not None:
        depth += 1
    return depth


def _path(lines: Any, number: int) -> str:
    old = lines.header.version < 5
    entry = lines.header.file_entry[number - old]
    folders = ["", *lines.header.include_directory] if old else list(lines.header.include_directory)
    names = [folder.decode() if isinstance(folder, bytes) else folder for folder in folders]
    return str(Path(names[0], names[entry.dir_index], entry.name.decode()))


def _ranges(dwarf: Any, unit: Any, attributes: Any) -> Iterator[tuple[int, int]]:
    if "DW_AT_ranges" in attributes:
        base = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
        start = base.value if base else 0
        for each in dwarf.range_lists().get_range_list_at_offset(attributes["DW_AT_ranges"].value, unit):
            if isinstance(each, BaseAddressEntry):
                start = each.base_address
            elif getattr(each, "is_absolute", False):
                yield each.begin_offset, each.end_offset
            else:
                yield start + each.begin_offset, start + each.end_offset
    elif "DW_AT_low_pc" in attributes:
        begin, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        yield begin, high.value if high.form.startswith("DW_FORM_addr") else begin + high.value
