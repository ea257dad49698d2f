# SPDX-License-Identifier: MIT
"""What a vendor's profiler measured in one checked call, as a table: a row for each launch. Names are untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scoring.output import units
from scoring.output.table import Column, Style, draw, shorten
from scoring.output.text import one_line
from scoring.record import SCHEMA

_NAME = 48


def document(
    problem: str, kernel: str, gpu: str, device: str, tool: str, cases: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """A JSON-ready dict. A case has ``case``, ``group``, ``status``, ``message`` and ``launches``."""
    return {"schema": SCHEMA, "problem": problem, "kernel": kernel, "gpu": gpu, "device": device, "tool": tool,
            "evidence": "measured", "cases": list(cases)}


def report(found: Mapping[str, Any], style: Style) -> str:
    """The cases of a document: the verdict where it is no pass, then the launches."""
    head = f"{found['problem']} · {found['kernel']} · {found['gpu']} ({found['device']}) · measured by {found['tool']}"
    blocks = [style.heading(one_line(head))]
    for case in found["cases"]:
        name = style.paint("strong", one_line(case["name"]))
        verdict = "" if case["status"] == "PASSED" else f"  {case['status']}: {one_line(case['message'])}"
        blocks.append(name + verdict)
        if case["launches"]:
            blocks.append(table(case["launches"], style))
    return "\n\n".join(blocks)


def table(launches: Sequence[Mapping[str, Any]], style: Style) -> str:
    """One row for each launch; a figure that the tool does not tell is left empty."""
    def percent(key: str) -> list[str]:
        return ["" if each.get(key) is None else units.percent(each[key]) for each in launches]

    return draw([
        Column("launch", [shorten(one_line(str(each["name"])), _NAME) for each in launches], right=False),
        Column("time", ["" if each["seconds"] is None else units.time(each["seconds"]) for each in launches]),
        Column("tensor active", percent("tensor_active")),
        Column("DRAM", percent("dram")),
        Column("L2", percent("l2")),
        Column("L2 hits", percent("l2_hit")),
        Column("bank conflicts", [_conflicts(each) for each in launches]),
        Column("occupancy", percent("occupancy")),
        Column("largest stalls", [", ".join(f"{one_line(str(reason))} {units.percent(share)}"
                                            for reason, share in each["stalls"]) for each in launches], right=False),
    ], style)


def _conflicts(launch: Mapping[str, Any]) -> str:
    count, share = launch.get("bank_conflicts"), launch.get("conflict_fraction")
    words = [] if count is None else [f"{count:.0f}"]
    if share is not None:
        words.append(f"({units.percent(share)})" if words else units.percent(share))
    return " ".join(words)
