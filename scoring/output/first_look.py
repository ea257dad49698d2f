# SPDX-License-Identifier: MIT
"""What a first look shows: a row per kernel, what was not run, and the next steps. It fits 80 columns and 40 lines."""

from __future__ import annotations

from collections.abc import Sequence

from scoring.output import terminal, units
from scoring.output.table import Column, Style, draw
from scoring.output.text import one_line
from scoring.record import Record

_NEXT = (
    ("run --problem fp8_gemm", "one problem, case by case"),
    ("run --all", "everything: 10 to 20 minutes"),
    ("leaderboard", "the scores kept so far"),
    ("report", "the same as an HTML page"),
)


def table(records: Sequence[Record], left_out: str, *, color: bool = False, width: int = 80) -> str:
    """The whole text. ``left_out`` says what was not run."""
    style = Style(color=color, width=width)
    limits = [_limit(record) for record in records]
    drawn = draw([
        Column("problem", [one_line(record.problem) for record in records], right=False),
        Column("kernel", [one_line(record.kernel) for record in records], right=False),
        Column("on, time is", [_place(record) for record in records], right=False),
        Column("status", [terminal.status_of(record) for record in records], right=False),
        Column("score", [units.time(record.score) for record in records]),
        Column("limit", [units.time(limit) for limit in limits]),
        Column("share", [units.percent(limit / record.score) if limit and record.score else ""
                         for record, limit in zip(records, limits, strict=True)]),
    ], style)
    notes = ["score: mean time of the small cases. limit: least time the data sheet allows."]
    if any(limit is None for limit in limits):
        notes.append("The CPU has no data sheet here, so no limit.")
    if any(terminal.is_timed(record) and record.facts.emulated for record in records):
        notes.append("modelled: from the instructions that the emulated GPU counted; no clock.")
    notes += [left_out, terminal.verdict(records)]
    steps = [f"  python -m scoring {verb:<24}  {what}" for verb, what in _NEXT]
    steps.append("  your own kernel or submission: docs/adding-a-kernel.md, README.md")
    parts = [drawn, terminal.failures(records, style), "\n".join(notes), "\n".join(["next:", *steps])]
    return "\n\n".join(part for part in parts if part)


def _place(record: Record) -> str:
    return one_line(f"{record.gpu}, {record.evidence}" if record.score is not None else terminal.target_of(record))


def _limit(record: Record) -> float | None:
    """Geometric mean of the rooflines of the ranked cases; None where one is unknown."""
    floors = [result.roofline_seconds for result in record.ranked]
    return terminal.geomean(floors) if all(floors) else None
