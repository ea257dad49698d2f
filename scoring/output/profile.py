# SPDX-License-Identifier: MIT
"""What an emulated device counted in one call, as tables: where the time goes, and which source lines waste it.

Counts are exact but for L1 misses; times, and what follows from them, are modelled (docs/emulator_model.md). NVIDIA's
emulated GPUs have counts alone: ``counted``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from scoring.output import counted, units
from scoring.output.table import Column, Style, draw, shorten
from scoring.output.text import one_line
from scoring.record import SCHEMA, CaseResult, Record

_PARTS = (("mfma_us", "matrix cores"), ("valu_us", "vector units"), ("salu_us", "scalar units"), ("lds_us", "LDS"),
          ("vmem_us", "global addresses"), ("l2_us", "L2"), ("mall_us", "Infinity Cache"), ("hbm_us", "HBM"))
_NAME = 90


@dataclass(frozen=True)
class Symbols:
    """What the binary says of a kernel's symbol: its short ``names``, and its ``places`` by offset of an instruction.

    A place is the line of the instruction, then the lines of the calls that it was put inline into.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)


def document(record: Record, symbols: Symbols) -> dict[str, Any]:
    """A JSON-ready dict: per case and launch what is in the tables, beside the device's own counters."""
    figures = summary if is_modelled(record) else partial(counted.summary, gpu=record.gpu)
    return {
        "schema": SCHEMA, "problem": record.problem, "kernel": record.kernel, "gpu": record.gpu,
        "device": record.device, "tool": "emulator", "evidence": _evidence(record),
        "cases": [{"case": dict(result.case.params), "group": result.case.group, "status": str(result.status),
                   "launches": [{"name": symbols.names.get(launch["kernel"], launch["kernel"]), **figures(launch),
                                 "lines": lines(launch, symbols), "counters": dict(launch)}
                                for launch in result.counters]}
                  for result in record.cases],
    }


def is_modelled(record: Record) -> bool:
    """Whether the emulated device has a model of its times."""
    return record.backend != "cuda"


def _evidence(record: Record) -> str:
    return "modelled" if is_modelled(record) else "emulated"


def summary(launch: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one launch: seconds, fractions of the time that units are busy, bytes."""
    model, lds, memory, fits = launch["model"], launch["lds"], launch["global"], launch["resources"]
    whole = launch["modelled_us"]
    seconds, moved = whole * 1e-6, memory["loaded_bytes"] + memory["stored_bytes"]
    return {
        "modelled_seconds": seconds, "limited_by": model["limited_by"],
        "busy": {key.removesuffix("_us"): model[key] / whole for key, _ in _PARTS if whole},
        "launch_seconds": model["launch_us"] * 1e-6, "occupancy": fits["occupancy"],
        "occupancy_limit": fits["occupancy_limit"],
        "lds_conflict_fraction": lds["conflict_cycles"] / lds["cycles"] if lds["cycles"] else 0.0,
        "coalesced_fraction": (
            min(1.0, memory["requested_bytes"] / memory["line_bytes"]) if memory["line_bytes"] else 1.0),
        "hbm_bytes": moved, "hbm_bytes_per_second": moved / seconds if seconds else 0.0,
        "mfma_flops_per_second": launch["mfma_flops"] / seconds if seconds else 0.0,
    }


def lines(launch: Mapping[str, Any], symbols: Symbols) -> list[dict[str, Any]]:
    """Source lines with bank conflicts, or whose loads and stores waste parts of cache lines or of sectors; largest
    loss first.

    ``place`` is the line of the kernel and ``inside`` the line of the function that was called there, "" if none was.
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    banks = launch["lds"] if "lds" in launch else launch["shared"]
    for kind, entries in (("conflict", banks["conflicts"]), ("uncoalesced", launch["global"]["uncoalesced"])):
        for each in entries:
            own = f"{each['file']}:{each['line']}"
            around = symbols.places.get((launch["kernel"], each.get("pc", -1)), [own])
            outer, inside = around[-1], own if around[-1] != own else ""
            place = found.setdefault((kind, outer, inside), {
                "kind": kind, "place": outer, "inside": inside, "instruction": each["instruction"], "executed": 0,
                "lost": 0})
            place["executed"] += each["executed"]
            place["lost"] += (each["cycles"] - each["conflict_free_cycles"] if kind == "conflict"
                              else each.get("line_bytes", each.get("sector_bytes", 0)) - each["requested_bytes"])
    return sorted(found.values(), key=lambda place: (place["kind"], -place["lost"]))


def report(record: Record, symbols: Symbols, style: Style) -> str:
    """Every case of a record: a table of its launches, then the lines that lose time."""
    says = " · modelled" if is_modelled(record) else ""
    blocks = [style.heading(one_line(f"{record.problem} · {record.kernel} · {record.gpu} (emulated){says}"))]
    blocks += ["\n\n".join(_case(result, symbols, style, "" if is_modelled(record) else record.gpu))
               for result in record.cases if result.counters]
    return "\n\n".join(blocks)


def _doubt(launch: Mapping[str, Any]) -> str:
    band = launch.get("modelled_band")
    return f"± {units.percent(band)}, " if isinstance(band, float) else ""


def _rows(launch: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    found = summary(launch)
    return [
        ("modelled time", units.time(found["modelled_seconds"]),
         f"{_doubt(launch)}limited by {found['limited_by']}"),
        *([("SCRATCH", units.size(launch["resources"]["scratch_bytes"]) + " a lane",
            "the time describes this compiler")] if launch["resources"]["scratch_bytes"] else []),
        ("of it, the launch", units.time(found["launch_seconds"]), ""),
        *((text, units.percent(found["busy"][key.removesuffix("_us")]), "busy") for key, text in _PARTS),
        ("occupancy", units.percent(found["occupancy"]), f"limited by {found['occupancy_limit']}"),
        ("matrix products", units.rate(found["mfma_flops_per_second"], "FLOP/s"), "") if launch["mfma_flops"] else
        ("matrix products", "none", ""),
        ("HBM", units.rate(found["hbm_bytes_per_second"], "B/s"),
         f"{units.size(found['hbm_bytes'])} moved at least"),
        ("LDS bank conflicts", units.percent(found["lds_conflict_fraction"]), "of LDS cycles"),
        ("used of cache lines", units.percent(found["coalesced_fraction"]), "of the bytes they hold"),
    ]


def _case(result: CaseResult, symbols: Symbols, style: Style, gpu: str) -> Iterator[str]:
    """``gpu``: the one that was counted alone; empty if its times are modelled."""
    modelled = not gpu
    yield style.paint("strong", one_line(result.case.name))
    banks = "LDS bank conflicts" if modelled else "bank conflicts"
    for launch in result.counters:
        name = shorten(one_line(symbols.names.get(launch["kernel"], launch["kernel"])), _NAME)
        rows = counted.rows(launch, gpu) if gpu else _rows(launch)
        yield f"{name}, {launch['workgroups']} workgroups of {_threads(launch['block'])}\n" + draw([
            Column("", [one_line(row[0]) for row in rows], right=False),
            Column("modelled" if modelled else "emulated", [row[1] for row in rows]),
            Column("", [row[2] for row in rows], right=False)], style)
        if told := lines(launch, symbols):
            yield draw([
                Column("line", [one_line(each["place"]) for each in told], right=False),
                Column("inside", [one_line(each["inside"]) for each in told], right=False),
                Column("what", [banks if each["kind"] == "conflict" else "uncoalesced" for each in told],
                       right=False),
                Column("lost", [f"{each['lost']} cycles" if each["kind"] == "conflict" else units.size(each["lost"])
                                for each in told]),
                Column("executed", [f"{each['executed']}" for each in told]),
                Column("instruction", [shorten(one_line(each["instruction"]), 44) for each in told], right=False,
                       optional=1),
            ], style)


def _threads(block: Sequence[int]) -> str:
    return " × ".join(f"{size}" for size in block if size > 1) or "1"
