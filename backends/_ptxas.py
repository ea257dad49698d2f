# SPDX-License-Identifier: MIT
"""What ``ptxas -v`` says about the resources of each function, and the launch bounds a cubin carries."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_PROPERTIES = re.compile(r"ptxas info\s*: Function properties for '?(?P<name>[^'\s]+)'?")
_SPILLS = re.compile(r"\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
                     r"(?P<loads>\d+) bytes spill loads")
_USED = re.compile(r"ptxas info\s*: Used (?P<registers>\d+) registers(?P<rest>.*)")
_SHARED = re.compile(r"(?P<static>\d+)(?:\+\d+)? bytes smem")

_PTX_LINE = re.compile(r"\(PTX line (\d+)\)|around line (\d+)")
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]+)"')

# Fat binaries: a header and, per architecture, an entry header and its payload. Numbers as seen in nvcc's output.
_FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
_FATBIN_HEADER = struct.Struct("<IHHQ")     # magic, version, size of this header, size of what follows
_FATBIN_ENTRY = struct.Struct("<HHIQ")      # kind, version, size of this header, size of the payload
_KIND_ELF = 2
# .nv.info records: format, attribute, then a size and that many bytes (format 4) or a value of two bytes.
_INFO_RECORD = struct.Struct("<BBH")
_FORMAT_SIZED = 4
_MAX_THREADS = 0x05


@dataclass(frozen=True)
class FunctionReport:
    """One function as ptxas reports it; bytes per thread, ``shared_bytes`` per block. Not an entry: 0 registers."""

    name: str
    arch: str = ""
    entry: bool = True
    registers: int = 0
    stack_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0


def functions(log: str) -> list[FunctionReport]:
    """All functions of a log, in its order."""
    found: dict[tuple[str, str], dict[str, int | bool]] = {}
    arch = entry = current = ""
    for line in log.splitlines():
        if match := _ENTRY.match(line):
            entry = current = match["name"]
            arch = match["arch"]
            found[current, arch] = {"entry": True}
        elif match := _PROPERTIES.match(line):
            current = match["name"]
            found.setdefault((current, arch), {"entry": False})
        elif (match := _SPILLS.match(line)) and current:
            found[current, arch] |= {"stack_bytes": int(match["stack"]), "spill_stores": int(match["stores"]),
                                     "spill_loads": int(match["loads"])}
        elif (match := _USED.match(line)) and entry:
            shared = _SHARED.search(match["rest"])
            found[entry, arch] |= {"registers": int(match["registers"]),
                                   "shared_bytes": int(shared["static"]) if shared else 0}
    return [FunctionReport(name, of, **facts) for (name, of), facts in found.items()]   # type: ignore[arg-type]


def ptx_line(message: str) -> int | None:
    """The line of the PTX that a message of ptxas names, if it names one."""
    match = _PTX_LINE.search(message)
    return int(match[1] or match[2]) if match else None


def source_place(ptx: str, line: int) -> tuple[str, int] | None:
    """(file, line) of the source that line ``line`` of ``ptx`` came from, by the line table that -lineinfo adds."""
    location = None
    for text in ptx.splitlines()[:line]:
        if match := _LOC.match(text):
            location = match
    if location is None:
        return None
    files = {match[1]: match[2] for match in map(_FILE.match, ptx.splitlines()) if match}
    name = files.get(location[1])
    return (name, int(location[2])) if name else None


def launch_bounds(library: Path) -> dict[str, int]:
    """Most threads per block by (mangled) kernel name, for the kernels that declare it.

    Reads the uncompressed cubins inside a shared library (nvcc ``--no-compress``).
    """
    bounds: dict[str, int] = {}
    for cubin in cubins(library.read_bytes()):
        bounds |= _bounds_of(cubin)
    return bounds


def cubins(library: bytes) -> Iterator[bytes]:
    """The uncompressed cubins (ELF files) in the fat binaries of a shared library."""
    at = library.find(_FATBIN_MAGIC)
    while at >= 0:
        try:
            _, _, header, size = _FATBIN_HEADER.unpack_from(library, at)
            entry, end = at + header, at + header + size
            while entry < end <= len(library):
                kind, _, header, size = _FATBIN_ENTRY.unpack_from(library, entry)
                payload = library[entry + header : entry + header + size]
                if kind == _KIND_ELF and payload.startswith(b"\x7fELF"):
                    yield payload
                entry += max(header + size, 1)
        except struct.error:
            pass   # the four bytes of the magic by chance, at the end of the file
        at = library.find(_FATBIN_MAGIC, at + 1)


def _bounds_of(cubin: bytes) -> dict[str, int]:
    from elftools.elf.elffile import ELFFile

    bounds = {}
    for section in ELFFile(BytesIO(cubin)).iter_sections():
        kernel = section.name.removeprefix(".nv.info.")
        if kernel != section.name:
            for attribute, value in info_records(section.data()):
                if attribute == _MAX_THREADS and len(value) >= 12:
                    x, y, z = struct.unpack_from("<III", value)
                    bounds[kernel] = x * y * z
    return bounds


def info_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of the sized records in an .nv.info section."""
    at = 0
    while at + _INFO_RECORD.size <= len(data):
        form, attribute, size = _INFO_RECORD.unpack_from(data, at)
        at += _INFO_RECORD.size
        if form == _FORMAT_SIZED:
            yield attribute, data[at : at + size]
            at += size
