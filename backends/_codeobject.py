# SPDX-License-Identifier: MIT
"""AMD code objects: the metadata in their ELF note, and the bundles that carry them inside a host library.

Formats: LLVM's "User Guide for AMDGPU Backend" (code object V3 and later: note ``AMDGPU``, type 32, msgpack) and
clang's "Offload Bundler" page.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

_NOTE_OWNER = b"AMDGPU"
_NT_AMDGPU_METADATA = 32
_NOTE = struct.Struct("<III")      # sizes of owner and description, type
_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
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
    data = library.read_bytes()
    at = data.find(_BUNDLE_MAGIC)
    while at >= 0:
        if (found := _from_bundle(data, at, arch)) is not None:
            return found
        at = data.find(_BUNDLE_MAGIC, at + 1)
    raise ValueError(f"{library}: no code object for {arch} in it")


def _from_bundle(data: bytes, start: int, arch: str) -> bytes | None:
    try:
        at = start + len(_BUNDLE_MAGIC)
        (count,) = struct.unpack_from("<Q", data, at)
        at += 8
        for _ in range(min(count, 64)):
            offset, size, length = _BUNDLE_ENTRY.unpack_from(data, at)
            at += _BUNDLE_ENTRY.size
            name = data[at : at + length].decode(errors="replace")
            at += length
            # "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-": kind, triple, arch with its features
            if name.startswith("hip") and re.search(rf"-{re.escape(arch)}(?::|$)", name):
                return data[start + offset : start + offset + size]
    except struct.error:
        pass   # the magic by chance near the end of the file
    return None


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
