# SPDX-License-Identifier: MIT
"""AMD code objects: the metadata in their ELF note, and the bundles that carry them inside a host library.

Formats: LLVM's "User Guide for AMDGPU Backend" (code object V3 and later: note ``AMDGPU``, type 32, msgpack), clang's
"Offload Bundler" page, and for compressed bundles the description of LLVM's ``CompressedOffloadBundle``.
"""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

_NOTE_OWNER = b"AMDGPU"
_NT_AMDGPU_METADATA = 32
_NOTE = struct.Struct("<III")      # sizes of owner and description, type
_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
# Behind the magic, by version: version, method, [size of the file,] size unpacked, hash.
_COMPRESSED = {1: struct.Struct("<HHIQ"), 2: struct.Struct("<HHIIQ"), 3: struct.Struct("<HHQQQ")}
_ZLIB, _ZSTD = 0, 1
_ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
_ELF = b"\x7fELF"
_HSA_ELF = _ELF + bytes((2, 1, 1, 64))     # 64 bits, little endian, for the HSA runtime
_AMDGPU = 224                              # e_machine
_BUNDLE_ENTRY = struct.Struct("<QQQ")   # offset, size, length of the target's name


@dataclass(frozen=True)
class KernelMetadata:
    """One kernel of a code object. ``vgprs`` is the total per lane, ``agprs`` the accumulation registers in it."""

    name: str                    # mangled
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int             # registers
    sgpr_spills: int
    lds_bytes: int               # static
    scratch_bytes: int           # per lane
    max_threads: int             # per workgroup
    kernarg_bytes: int
    wavefront_size: int


def metadata(code_object: bytes) -> dict[str, Any]:
    """The metadata map of a code object.

    Raises ``ValueError`` if ``code_object`` is no ELF file or has no such note.
    """
    import msgpack
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import NoteSegment

    try:
        elf = ELFFile(BytesIO(code_object))
        notes = [segment.data() for segment in elf.iter_segments() if isinstance(segment, NoteSegment)]
    except ELFError as error:
        raise ValueError(f"not an ELF file: {error}") from error
    for data in notes:
        description = _description(data)
        if description is not None:
            found = msgpack.unpackb(description, strict_map_key=False)
            if isinstance(found, dict):
                return found
    raise ValueError("no AMDGPU metadata note")


def kernels(code_object: bytes) -> list[KernelMetadata]:
    """All kernels of a code object, in its order. Raises ``ValueError`` as ``metadata`` does."""
    return [
        KernelMetadata(
            name=kernel[".name"], vgprs=kernel[".vgpr_count"], agprs=kernel.get(".agpr_count", 0),
            sgprs=kernel[".sgpr_count"], vgpr_spills=kernel.get(".vgpr_spill_count", 0),
            sgpr_spills=kernel.get(".sgpr_spill_count", 0), lds_bytes=kernel[".group_segment_fixed_size"],
            scratch_bytes=kernel[".private_segment_fixed_size"], max_threads=kernel[".max_flat_workgroup_size"],
            kernarg_bytes=kernel[".kernarg_segment_size"], wavefront_size=kernel[".wavefront_size"],
        )
        for kernel in metadata(code_object).get("amdhsa.kernels", [])
    ]


def extract(library: Path, arch: str) -> bytes:
    """The code object for ``arch`` from the clang offload bundle inside a host library.

    Raises ``ValueError`` if there is none.
    """
    # "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-": kind, triple, arch with its features
    for name, code in _bundled(library.read_bytes()):
        if name.startswith("hip") and re.search(rf"-{re.escape(arch)}(?::|$)", name):
            return code
    raise ValueError(f"{library}: no code object for {arch} in it")


def carried(data: bytes) -> list[bytes]:
    """All code objects in a library or program, once each: in offload bundles, or embedded as they are."""
    found = {code: None for name, code in _bundled(data) if name.startswith("hip") and code.startswith(_ELF)}
    at = data.find(_HSA_ELF, 1)
    while at >= 0 and not found:
        if code := _embedded(data[at:]):
            found[code] = None
        at = data.find(_HSA_ELF, at + 1)
    return list(found)


def _embedded(data: bytes) -> bytes:
    """The ELF file at the start of ``data``, whose table of sections comes last; nothing if it is not AMD's."""
    if len(data) < 64 or struct.unpack_from("<H", data, 18)[0] != _AMDGPU:
        return b""
    (sections,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return data[: sections + size * count]


def _bundled(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The entries of all bundles, plain and compressed. Raises ``ValueError`` for one that cannot be unpacked."""
    for whole in itertools.chain([data], _unpacked(data)):
        at = whole.find(_BUNDLE_MAGIC)
        while at >= 0:
            yield from _bundle_entries(whole, at)
            at = whole.find(_BUNDLE_MAGIC, at + 1)


def _unpacked(data: bytes) -> Iterator[bytes]:
    """The contents of all compressed bundles. Raises ``ValueError`` without the package that unpacks one."""
    at = data.find(_COMPRESSED_MAGIC)
    while at >= 0:
        version = int.from_bytes(data[at + 4 : at + 6], "little")
        method = int.from_bytes(data[at + 6 : at + 8], "little")
        header = _COMPRESSED.get(version)
        start = at + 4 + header.size if header else len(data)
        if header and method in (_ZLIB, _ZSTD) and start < len(data):
            size = header.unpack_from(data, at + 4)[-2]
            content = _zlib(data[start:], size) if method == _ZLIB else _zstd(data[start:], size)
            if len(content) == size:         # else four letters by chance
                yield content
        at = data.find(_COMPRESSED_MAGIC, at + 4)


def _zlib(packed: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, size)
    except zlib.error:
        return b""


def _zstd(packed: bytes, size: int) -> bytes:
    if not packed.startswith(_ZSTD_FRAME):
        return b""
    try:
        import zstandard
    except ImportError as error:
        raise ValueError("a compressed offload bundle (zstd) needs the package zstandard: pip install zstandard, or "
                         "build with --no-offload-compress") from error
    try:
        return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(packed))[:size]
    except zstandard.ZstdError:
        return b""


def _bundle_entries(data: bytes, start: int) -> Iterator[tuple[str, bytes]]:
    try:
        at = start + len(_BUNDLE_MAGIC)
        (count,) = struct.unpack_from("<Q", data, at)
        at += 8
        for _ in range(min(count, 64)):
            offset, size, length = _BUNDLE_ENTRY.unpack_from(data, at)
            at += _BUNDLE_ENTRY.size
            name = data[at : at + length].decode(errors="replace")
            at += length
            yield name, data[start + offset : start + offset + size]
    except struct.error:
        pass   # the magic by chance near the end of the file


def _description(data: bytes) -> bytes | None:
    """The description of the AMDGPU metadata note in a note segment."""
    at = 0
    while at + _NOTE.size <= len(data):
        owner_size, size, kind = _NOTE.unpack_from(data, at)
        owner = at + _NOTE.size
        start = owner + _align(owner_size)
        if kind == _NT_AMDGPU_METADATA and data[owner : owner + owner_size].rstrip(b"\0") == _NOTE_OWNER:
            return data[start : start + size]
        at = start + _align(size)
    return None


def _align(size: int) -> int:
    return (size + 3) & ~3
