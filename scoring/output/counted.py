# SPDX-License-Identifier: MIT
"""What an emulated NVIDIA GPU counted in one launch: PTX instructions by class, tensor-core work, bytes, conflicts.

All of it is counted and none modelled: there are no times. What bounds a kernel is the unit that the counts keep busy
longest. PTX is what nvcc makes before machine code, so instructions are not those that a profiler of the device counts;
products, bytes, conflicts and sectors are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scoring.output import units

_CLASSES = 6             # shown, the most frequent ones
# Dense FLOP that a multiprocessor's tensor cores do in a cycle with operands of 16 bits: the data sheets' 989.4 TFLOP/s
# at 132 x 1830 MHz and 121 TFLOP/s at 58 x 2040 MHz. Of other types so many times as much.
_TENSOR_FLOPS = {"H100": 4096, "H200": 4096, "L4": 1024}
_OF_TYPE = (("e4m3", 2.0), ("e5m2", 2.0), ("s8", 2.0), ("u8", 2.0), ("tf32", 0.5))
# CUDA C++ Programming Guide, 8.9 and 9.0: four schedulers, 32 banks of 4 bytes, 16 special functions a cycle.
_SCHEDULERS, _SHARED_BYTES, _SPECIAL = 4, 128, 16


def summary(launch: Mapping[str, Any], gpu: str) -> dict[str, Any]:
    """The figures of one launch: instructions of warps, FLOP, bytes, fractions that are lost, what bounds it.

    ``least_cycles`` of multiprocessors, summed over all of them, are what each unit needs if it never waits.
    """
    shared, memory, bulk = launch["shared"], launch["global"], launch["bulk"]
    cycles = least_cycles(launch, gpu)
    return {
        "least_cycles": cycles, "bound": max(cycles, key=lambda unit: cycles[unit]),
        "instructions": launch["instructions"], "tensor_flops": launch["tensor_flops"],
        "global_bytes": memory["requested_bytes"] + bulk["read_bytes"] + bulk["written_bytes"],
        "bulk_bytes": bulk["read_bytes"] + bulk["written_bytes"],
        "shared_bytes": shared["bytes"] + shared["tensor_bytes"] + shared["bulk_bytes"],
        "bank_conflict_fraction": shared["conflict_cycles"] / shared["cycles"] if shared["cycles"] else 0.0,
        "coalesced_fraction": (
            min(1.0, memory["requested_bytes"] / memory["sector_bytes"]) if memory["sector_bytes"] else 1.0),
    }


def least_cycles(launch: Mapping[str, Any], gpu: str) -> dict[str, float]:
    """Cycles of multiprocessors that each unit of ``gpu`` (H100, H200, L4) needs at least for a launch's counts.

    Caches and device memory are not among them, as they are not counted. `mma.sync` is taken at wgmma's rate.
    """
    shared = launch["shared"]
    return {
        "tensor cores": sum(each["flops"] / (_TENSOR_FLOPS[gpu] * _factor(each["instruction"]))
                            for each in launch["tensor"]),
        "shared memory": shared["cycles"] + (shared["tensor_bytes"] + shared["bulk_bytes"]) / _SHARED_BYTES,
        "issue": launch["instructions"] / _SCHEDULERS,
        "special functions": launch["classes"].get("special", 0) * 32 / _SPECIAL,
    }


def _factor(instruction: str) -> float:
    return next((factor for name, factor in _OF_TYPE if f".{name}" in instruction), 1.0)


def rows(launch: Mapping[str, Any], gpu: str) -> list[tuple[str, str, str]]:
    """What the table of a launch has: a name, a figure, a remark."""
    found = summary(launch, gpu)
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
        *((f"least: {unit}", f"{cycles:.0f}",
           "cycles of multiprocessors" + (", bounds" if unit == found["bound"] else ""))
          for unit, cycles in found["least_cycles"].items()),
        ("bank conflicts", units.percent(found["bank_conflict_fraction"]), "of cycles of shared memory"),
        ("used of sectors", units.percent(found["coalesced_fraction"]), "of the bytes they hold"),
    ]
