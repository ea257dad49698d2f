# SPDX-License-Identifier: MIT
"""The instructions that a built library knows, as text for the documentation."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FORMATS = {
    "sop1": "SOP1", "sop2": "SOP2", "sopk": "SOPK", "sopc": "SOPC", "sopp": "SOPP", "smem": "SMEM",
    "vop1": "VOP1", "vop2": "VOP2", "vopc": "VOPC", "vop3": "VOP3 only", "vop3p": "VOP3P", "mai": "MFMA, SMFMAC",
    "ds": "DS", "flat": "FLAT", "global": "GLOBAL", "scratch": "SCRATCH", "mubuf": "MUBUF", "mtbuf": "MTBUF",
}
_TITLE = """# Instructions of the emulator

`python -m backends.emulator --instructions` prints this page: the {count} gfx942 instructions that the emulator
executes, by encoding format. VOP1, VOP2 and VOPC instructions also have their 64-bit (VOP3) forms, and SDWA and DPP
where the ISA has them. Any other instruction stops the kernel. The message has its encoding, the program counter and
the source line ([emulator](emulator.md)).
"""


def known(library: Path) -> list[dict[str, Any]]:
    """Rows of the library's table: ``name``, ``formats``, ``opcode``, ``signature``, ``passes``.

    Loads the library beside whatever HIP runtime the process has; nothing of it becomes visible to others.
    """
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
    loaded.warpwave_emulator_instructions.restype = ctypes.c_void_p
    loaded.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
    text = loaded.warpwave_emulator_instructions()
    try:
        rows: list[dict[str, Any]] = json.loads(ctypes.string_at(text))
    finally:
        loaded.warpwave_emulator_free(text)
    return rows


def markdown(rows: Iterable[Mapping[str, Any]]) -> str:
    """A table with a line a format."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row["formats"][0], []).append(row["name"])
    lines = [_TITLE.format(count=sum(map(len, names.values()))), "| format | | instructions |", "|---|---:|---|"]
    lines += [f"| {title} | {len(names[key])} | {', '.join(f'`{name}`' for name in sorted(names[key]))} |"
              for key, title in FORMATS.items() if key in names]
    return "\n".join(lines) + "\n"
