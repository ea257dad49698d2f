# SPDX-License-Identifier: MIT
"""What an emulated NVIDIA GPU counted in one launch: PTX instructions by class, tensor-core work, bytes, conflicts.

All of it is counted and none modelled: there are no times. PTX is what nvcc makes before machine code, so instructions
are not those that a profiler of the device counts; products, bytes, conflicts and sectors are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scoring.output import units

_CLASSES = 6             # shown, the most frequent ones


def summary(launch: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one launch: instructions of warps, FLOP, bytes, and fractions that are lost."""
    shared, memory, bulk = launch["shared"], launch["global"], launch["bulk"]
    return {
        "instructions": launch["instructions"], "tensor_flops": launch["tensor_flops"],
        "global_bytes": memory["requested_bytes"] + bulk["read_bytes"] + bulk["written_bytes"],
        "bulk_bytes": bulk["read_bytes"] + bulk["written_bytes"],
        "shared_bytes": shared["bytes"] + shared["tensor_bytes"] + shared["bulk_bytes"],
        "bank_conflict_fraction": shared["conflict_cycles"] / shared["cycles"] if shared["cycles"] else 0.0,
        "coalesced_fraction": (
            min(1.0, memory["requested_bytes"] / memory["sector_bytes"]) if memory["sector_bytes"] else 1.0),
    }


def rows(launch: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What the table of a launch has: a name, a figure, a remark."""
    found = summary(launch)
    classes = sorted(launch["classes"].items(), key=lambda each: -each[1])[:_CLASSES]
    return [
        ("instructions", f"{launch['instructions']}", "of warps, in PTX"),
        *((name.replace("_", " "), units.percent(count / launch["instructions"]), "of them")
          for name, count in classes if count),
        *((each["instruction"], f"{each['executed']}", f"{each['flops'] / 1e9:.3g} GFLOP")
          for each in launch["tensor"]),
        ("global memory", units.size(found["global_bytes"]), f"{units.size(found['bulk_bytes'])} by bulk copies"),
        ("shared memory", units.size(found["shared_bytes"]),
         f"{units.size(launch['shared']['tensor_bytes'])} by wgmma"),
        ("bank conflicts", units.percent(found["bank_conflict_fraction"]), "of cycles of shared memory"),
        ("used of sectors", units.percent(found["coalesced_fraction"]), "of the bytes they hold"),
    ]
