# SPDX-License-Identifier: MIT
"""An image as a JSON-ready dict: what ``inspect --json`` prints, and what its other outputs are drawn from. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from backends import _occupancy
from backends.machine import overlap, units
from backends.machine.loops import Loop, loops
from backends.machine.model import Function, Image, Instruction, Resources
from backends.machine.warnings import warnings

SCHEMA = 1
_MOST = 0.7            # of a loop's instructions


def document(image: Image, whole: bool = True, code: bool = False, dynamic_shared: int | None = None) -> dict[str, Any]:
    """Everything about ``image``; ``code`` adds the instructions.

    ``dynamic_shared`` is what launches ask for, in bytes, where the user knows it: it makes occupancy exact.
    """
    return {
        "schema": SCHEMA, "origin": image.origin, "compiler": image.compiler,
        "warnings": [asdict(each) for each in warnings(image, whole)],
        "functions": [function_document(each, code, dynamic_shared) for each in image.functions],
    }


def function_document(function: Function, code: bool = False, dynamic_shared: int | None = None) -> dict[str, Any]:
    """One function: its place in the source, resources, occupancy, mix, loops, and accesses to local memory by line."""
    resources = function.resources
    dynamic = resources.dynamic_shared if dynamic_shared is None or resources.dynamic_shared == 0 else dynamic_shared
    occupancy = occupancy_of(function.arch, resources, dynamic or 0)
    spilled = Counter(_place(each) for each in function.code if each.unit == "local")
    found: dict[str, Any] = {
        "name": function.name, "mangled": function.mangled, "arch": function.arch, "entry": function.entry,
        "bytes": function.size, "instructions": len(function.code), "source": source_of(function.code),
        "resources": {**asdict(resources), "dynamic_shared": dynamic},
        "occupancy": occupancy, "occupancy_is_bound": dynamic is None,
        "mix": mix(function.code), "exponentials": sum(units.is_exponential(each.opcode) for each in function.code),
        "local_memory": [{"place": place, "count": count} for place, count in spilled.most_common()],
        "loops": [_loop(each) for each in shown(loops(function.code))],
    }
    if code:
        found["code"] = [_instruction(each) for each in function.code]
    return found


def occupancy_of(arch: str, resources: Resources, dynamic_shared: int = 0) -> float | None:
    """Resident warps (waves) over the maximum; None where the launch bound or the architecture is not known."""
    if resources.threads is None or resources.registers is None:
        return None
    shared = resources.static_shared + dynamic_shared
    if arch == "gfx942":
        return _occupancy.cdna3(resources.registers, resources.scalar_registers or 0, shared, resources.threads)
    limits = _occupancy.BY_ARCH.get(arch)
    return _occupancy.nvidia(limits, resources.registers, shared, resources.threads) if limits else None


def mix(code: Iterable[Instruction]) -> dict[str, int]:
    """Instructions by unit, in the order of ``units.UNITS``; units without any are left out."""
    counts = Counter(instruction.unit for instruction in code)
    return {unit: counts[unit] for unit in units.UNITS if counts[unit]}


def shown(every: Sequence[Loop]) -> list[Loop]:
    """Innermost loops that do work, and loops with products of their own around an inner one."""
    def own_products(loop: Loop) -> int:
        inside = {i.address for other in every if other is not loop and loop.start <= other.start and
                  other.end <= loop.end and len(other.code) < len(loop.code) for i in other.code}
        return sum(each.unit == "tensor" and each.address not in inside for each in loop.code)

    return [loop for loop in every if not loop.polls and (loop.innermost or own_products(loop))]


def source_of(code: Sequence[Instruction]) -> dict[str, Any] | None:
    """The file and the range of lines that most of the code came from; None without lines.

    A call that all of it was put inline into says nothing: then it is the place inside.
    """
    chains = [each.places for each in code if each.places]
    if not chains:
        return None
    while True:
        around = Counter(places[-1] for places in chains).most_common(1)[0][0]
        inside = [places[:-1] for places in chains if places[-1] == around and len(places) > 1]
        if len(inside) < _MOST * len(code):
            break
        chains = inside
    file = Counter(places[-1].file for places in chains).most_common(1)[0][0]
    lines = [places[-1].line for places in chains if places[-1].file == file]
    return {"file": file, "first": min(lines), "last": max(lines)}


def _loop(loop: Loop) -> dict[str, Any]:
    view = overlap.overlap(loop.code)
    return {
        "start": loop.start, "end": loop.end, "depth": loop.depth, "innermost": loop.innermost,
        "instructions": len(loop.code), "source": source_of(loop.code), "mix": mix(loop.code),
        "overlap": None if view is None else {
            **asdict(view), "line": overlap.line(view), "summary": overlap.summary(view)},
    }


def _instruction(each: Instruction) -> dict[str, Any]:
    return {"address": each.address, "text": each.text, "unit": each.unit, "target": each.target,
            "places": [[place.file, place.line] for place in each.places]}


def _place(each: Instruction) -> str:
    return str(each.places[0]) if each.places else f"{each.address:#x}"
