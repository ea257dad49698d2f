# SPDX-License-Identifier: MIT
"""The geometry of the pages' plots: scores over time, from rows to pixels. A template draws them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from scoring.output import units
from scoring.output.charts import Scale, Tick
from scoring.serve.standings import Standing, records_over_time

WIDTH, HEIGHT = 720.0, 260.0
_BOX = (84.0, 14.0, 704.0, 222.0)            # left, top, right, bottom of the plot


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    best: bool               # the best so far when it came
    title: str


@dataclass(frozen=True)
class Progress:
    """Every score as a dot, and the best so far as steps."""

    dots: Sequence[Dot]
    path: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    box: tuple[float, float, float, float] = _BOX
    width: float = WIDTH
    height: float = HEIGHT


def progress(found: Sequence[Standing]) -> Progress | None:
    """The plot of scores that compare, oldest first; None for fewer than two."""
    if len(found) < 2:
        return None
    left, top, right, bottom = _BOX
    times, scores = [row.created for row in found], [row.score for row in found]
    first, last = min(times), max(times)
    pad = max((last - first) * 0.03, 1.0)
    x = Scale(first - pad, last + pad, left, right)
    low, high = min(scores), max(scores)
    y = Scale(low / 1.15, high * 1.15, bottom, top, log=True)
    records = records_over_time(found)
    kept = {row.submission for row in records}
    dots = [Dot(x(row.created), y(row.score), row.submission in kept,
                f"{row.name}: {units.time(row.score)}, {_moment(row.created)}") for row in found]
    path = ""
    for number, row in enumerate(records):
        at = f"{x(row.created):.1f}"
        path += f"M{at} {y(row.score):.1f}" if number == 0 else f"H{at}V{y(row.score):.1f}"
    return Progress(dots, path + f"H{right:.1f}", _dates(x, first, last), _levels(y, low, high))


def _dates(x: Scale, first: float, last: float) -> list[Tick]:
    span = last - first
    form = "%H:%M" if span < 86400 else "%d %b"
    marks = [first + span * share for share in (0.0, 0.25, 0.5, 0.75, 1.0)] if span else [first]
    labels = [datetime.datetime.fromtimestamp(mark, datetime.UTC).strftime(form) for mark in marks]
    return [Tick(x(mark), "" if number and labels[number - 1] == label else label)
            for number, (mark, label) in enumerate(zip(marks, labels, strict=True))]


def _levels(y: Scale, low: float, high: float) -> list[Tick]:
    count = 4 if high > low * 1.02 else 1
    values = [low * (high / low) ** (step / max(1, count - 1)) for step in range(count)]
    return [Tick(y(value), units.time(value)) for value in values]


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
