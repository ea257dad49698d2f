# SPDX-License-Identifier: MIT
"""NVIDIA Nsight Compute's ``ncu``: its command lines, and its raw page as launches.

Sources: NVIDIA's "Nsight Compute CLI" and "Kernel Profiling Guide". The report is written to a file first and then
printed from it (``--import``), so that the file can be kept.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends import cuda
from backends.errors import BackendError, ToolchainMissing
from backends.toolchain import which

PROGRAM = "ncu"
SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "WarpStateStats", "LaunchStats")
_TIME = "gpu__time_duration.sum"
_TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
_DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
_L2_HIT = "lts__t_sector_hit_rate.pct"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
METRICS = (_TIME, _TENSOR, _DRAM, _L2, _L2_HIT, _CONFLICTS, _WAVEFRONTS, _OCCUPANCY)
PERMISSION = "ERR_NVGPUCTRPERM"
NO_PERMISSION = (
    f"this user may not read the GPU's counters ({PERMISSION}): run as root, in a container with --cap-add=SYS_ADMIN, "
    "or let all users read them (`options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d, then load "
    "the driver anew)")

_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active(?:\.ratio)?")
_NO_STALL = ("selected",)            # the warp that issued
_SECONDS = {"s": 1.0, "second": 1.0, "ms": 1e-3, "msecond": 1e-3, "us": 1e-6, "usecond": 1e-6, "ns": 1e-9,
            "nsecond": 1e-9}


def find() -> Path:
    """The program: on PATH, or beside nvcc. Raises ``ToolchainMissing``."""
    places = [*filter(None, [which(PROGRAM)]), *(home / "bin" / PROGRAM for home in cuda.toolkits())]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ToolchainMissing(PROGRAM, [f"PATH: {PROGRAM}", *map(str, places)],
                               "install NVIDIA Nsight Compute, which a CUDA toolkit brings")
    return found


def command(program: Path, report: Path, watched: Sequence[str]) -> list[str]:
    """The command line that profiles ``watched`` between its calls of cudaProfilerStart and Stop, into ``report``."""
    sections = [word for section in SECTIONS for word in ("--section", section)]
    return [str(program), "--profile-from-start", "off", "--target-processes", "all", *sections,
            "--metrics", ",".join(METRICS), "--force-overwrite", "--export", str(report), *watched]


def printing(program: Path, report: Path) -> list[str]:
    """The command line that prints ``report`` as ``parse`` reads it; it needs no GPU."""
    return [str(program), "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]


def refusal(printed: str) -> str:
    """Why ``ncu`` profiled nothing, with what to do; "" if it says nothing of the kind."""
    if PERMISSION in printed:
        return NO_PERMISSION
    errors = [line.removeprefix("==ERROR==").strip() for line in printed.splitlines() if line.startswith("==ERROR==")]
    if errors:
        return f"ncu: {errors[0]}"
    return "ncu: no kernel was launched" if "No kernels were profiled" in printed else ""


def parse(text: str) -> list[dict[str, Any]]:
    """The launches of the raw page in CSV, in their order: ``name``, ``grid``, ``block``, ``seconds``, fractions
    (``tensor_active``, ``dram``, ``l2``, ``l2_hit``, ``occupancy``), ``bank_conflicts``, ``conflict_fraction``, and
    the three largest ``stalls`` as (reason, share of the warps' time). None where the page has no figure.

    Raises ``BackendError`` for anything else.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if not rows or "Kernel Name" not in rows[0]:
        raise BackendError("ncu printed no table of launches")
    head, units, *values = rows
    if len(units) != len(head) or units[0].strip():
        raise BackendError("ncu's table has no row of units")
    unit = dict(zip(head, units, strict=True))
    return [_launch(dict(zip(head, row, strict=True)), unit) for row in values if len(row) == len(head)]


def _launch(row: Mapping[str, str], units: Mapping[str, str]) -> dict[str, Any]:
    def number(name: str) -> float | None:
        try:
            return float(row.get(name, "").replace(",", ""))
        except ValueError:
            return None

    def fraction(name: str) -> float | None:
        value = number(name)
        return None if value is None else value / 100

    time, conflicts, wavefronts = number(_TIME), number(_CONFLICTS), number(_WAVEFRONTS)
    stalls = {match[1]: value for name in row if (match := _STALL.fullmatch(name)) and match[1] not in _NO_STALL
              and not match[1].endswith("_not_issued") and (value := number(name))}
    own = next((number(name) for name in row if (match := _STALL.fullmatch(name)) and match[1] in _NO_STALL), None)
    whole = sum(stalls.values()) + (own or 0.0)
    largest = sorted(stalls.items(), key=lambda stall: -stall[1])[:3]
    return {
        "name": row["Kernel Name"], "grid": row.get("Grid Size", ""), "block": row.get("Block Size", ""),
        "seconds": None if time is None else time * _SECONDS.get(units.get(_TIME, "ns"), 1e-9),
        "tensor_active": fraction(_TENSOR), "dram": fraction(_DRAM), "l2": fraction(_L2), "l2_hit": fraction(_L2_HIT),
        "occupancy": fraction(_OCCUPANCY), "bank_conflicts": conflicts,
        "conflict_fraction": conflicts / wavefronts if conflicts is not None and wavefronts else None,
        "stalls": [[reason.replace("_", " "), value / whole] for reason, value in largest],
    }
