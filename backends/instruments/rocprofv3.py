# SPDX-License-Identifier: MIT
"""AMD's ``rocprofv3``: its command line, and its table of counters as launches.

Sources: ROCprofiler-SDK's pages "Using rocprofv3" and "MI300 and MI200 performance counters and metrics". Counters that
do not fit into one pass of the hardware are refused, so a call is made for each of ``GROUPS``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends.errors import BackendError, ToolchainMissing
from backends.toolchain import which

PROGRAM = "rocprofv3"
PREFIX = Path("/opt/rocm/bin")
GROUPS = (("MfmaUtil",), ("OccupancyPercent",), ("L2CacheHit",), ("LDSBankConflict",), ("FETCH_SIZE",), ("WRITE_SIZE",),
          ("MemUnitStalled",), ("WriteUnitStalled",), ("ALUStalledByLDS",))
_FRACTIONS = {"MfmaUtil": "tensor_active", "OccupancyPercent": "occupancy", "L2CacheHit": "l2_hit",
              "LDSBankConflict": "conflict_fraction"}
_STALLS = {"MemUnitStalled": "memory unit", "WriteUnitStalled": "write unit", "ALUStalledByLDS": "vector units by LDS"}
_KIBIBYTES = ("FETCH_SIZE", "WRITE_SIZE")


def find() -> Path:
    """The program: on PATH or in /opt/rocm. Raises ``ToolchainMissing``."""
    places = [*filter(None, [which(PROGRAM)]), PREFIX / PROGRAM]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ToolchainMissing(PROGRAM, [f"PATH: {PROGRAM}", str(PREFIX / PROGRAM)],
                               "install ROCm 6.2 or newer, which brings it (package rocprofiler-sdk)")
    return found


def command(
    program: Path, folder: Path, counters: Sequence[str], watched: Sequence[str], kernels: Sequence[str] = (),
) -> list[str]:
    """The command line that counts ``counters`` in the launches of ``watched`` and writes tables below ``folder``.

    ``kernels``: identifiers of the device functions to count (all, if there are none).
    """
    names = "|".join(map(re.escape, kernels))
    chosen = ["--kernel-include-regex", names] if names else []
    return [str(program), "--pmc", *counters, *chosen, "--output-format", "csv", "--output-directory", str(folder),
            "--output-file", "launches", "--", *watched]


def tables(folder: Path) -> list[str]:
    """The tables of counters below ``folder``."""
    return [path.read_text(errors="replace") for path in sorted(folder.rglob("*counter_collection.csv"))]


def parse(texts: Sequence[str], bytes_per_second: float | None = None) -> list[dict[str, Any]]:
    """The launches of tables of counters, as ``ncu.parse`` has them; those of several calls of the same launches are
    put together. ``bytes_per_second``: the memory's peak, which ``dram`` is a part of.

    Raises ``BackendError`` for a table that is none of counters.
    """
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for text in texts:
        rows = list(csv.DictReader(io.StringIO(text)))
        if rows and not {"Kernel_Name", "Counter_Name", "Counter_Value", "Dispatch_Id"} <= rows[0].keys():
            raise BackendError("rocprofv3 wrote no table of counters")
        order = sorted({int(row["Dispatch_Id"]) for row in rows})
        for row in rows:
            key = order.index(int(row["Dispatch_Id"])), row["Kernel_Name"]
            launch = found.setdefault(key, {
                "name": row["Kernel_Name"], "grid": row.get("Grid_Size", ""), "block": row.get("Workgroup_Size", ""),
                "seconds": None, "counters": {}})
            time = (int(row.get("End_Timestamp") or 0) - int(row.get("Start_Timestamp") or 0)) * 1e-9
            launch["seconds"] = min(filter(None, (launch["seconds"], time)), default=None)
            launch["counters"][row["Counter_Name"]] = float(row["Counter_Value"])
    return [_figures(launch, bytes_per_second) for _, launch in sorted(found.items())]


def _figures(launch: dict[str, Any], bytes_per_second: float | None) -> dict[str, Any]:
    counters, seconds = launch.pop("counters"), launch["seconds"]
    fractions = {key: counters[name] / 100 if name in counters else None for name, key in _FRACTIONS.items()}
    moved = sum(counters[name] * 1024 for name in _KIBIBYTES) if all(name in counters for name in _KIBIBYTES) else None
    stalls = sorted(((text, counters[name] / 100) for name, text in _STALLS.items() if counters.get(name)),
                    key=lambda stall: -stall[1])
    return {
        **launch, "l2": None, "bank_conflicts": None, **fractions, "dram_bytes": moved,
        "dram": moved / seconds / bytes_per_second if moved is not None and seconds and bytes_per_second else None,
        "stalls": [list(stall) for stall in stalls[:3]],
    }
