# SPDX-License-Identifier: MIT
"""The races of a record as text: every rival beside the kernel, case by case. Pure functions; nothing here prints."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scoring.output import units
from scoring.output.table import Column, Style, draw, markdown, shorten
from scoring.output.text import one_line
from scoring.record import CaseResult, Outcome, Race, Record, Rival, Stats

NOT_COLD = "not cold"
_BITS = {None: "", True: "same", False: "differ"}
_NAME = 48       # characters of a contestant's name


def table(record: Record, title: str, style: Style) -> str:
    """One row per case and rival, then what each rival came to over all cases; "" for a record without rivals.

    A ratio is the rival's time over the kernel's: above 1 the rival is slower.
    """
    raced = [(result, result.race) for result in record.cases
             if result.race and not all(rival.peer for rival in result.race.rivals)]
    if not raced:
        return ""
    rows = [(result, race, rival) for result, race in raced for rival in race.rivals]
    drawn = draw([
        Column("case", _cases(rows), right=False),
        Column("rival", [shorten(one_line(rival.name), _NAME) for *_, rival in rows], right=False),
        Column("time", [_median(rival.stats) for *_, rival in rows]),
        Column("kernel", [_median(race.stats) if rival.stats else "" for _, race, rival in rows]),
        Column("ratio", [fine(rival.ratio) for *_, rival in rows]),
        Column("95 % interval", [interval(rival) for *_, rival in rows]),
        Column("rival is", [verdict(rival) for *_, rival in rows], right=False),
        Column("bits", [_BITS[rival.same_bits] for *_, rival in rows], right=False, optional=2),
        Column("cache", [NOT_COLD if race.cold is False and r.stats else "" for _, race, r in rows], right=False),
    ], style)
    lines = [*_totals(raced), *_notes(raced)]
    told = "\n".join(markdown(line) if style.is_markdown else line for line in lines)
    return f"{style.heading(f'Race of {title}')}\n{drawn}\n{told}".rstrip()


def _median(stats: Stats | None) -> str:
    return units.time(stats.median) if stats else ""


def fine(ratio: float | None) -> str:
    """A ratio with the digits that races of a few per mille need."""
    return "" if ratio is None else f"{ratio:.4f}" if ratio < 9.99995 else units.ratio(ratio)


def interval(rival: Rival) -> str:
    low, high = rival.ratio_low, rival.ratio_high
    return "" if low is None or high is None or rival.stats is None or low == high else f"{fine(low)} – {fine(high)}"


def verdict(rival: Rival) -> str:
    """What the race shows of a rival: an outcome, or why it has no time."""
    if rival.outcome is not None:
        return str(rival.outcome)
    if rival.stats is not None:
        return ""
    return shorten(": ".join(filter(None, (str(rival.status), one_line(rival.message.partition("\n")[0])))), 60)


def _cases(rows: Sequence[tuple[CaseResult, Race, Rival]]) -> list[str]:
    """Names of cases, each in its first row only."""
    names = [one_line(result.case.name) for result, *_ in rows]
    return [name if at == 0 or names[at - 1] != name else "" for at, name in enumerate(names)]


def _totals(raced: Sequence[tuple[CaseResult, Race]]) -> list[str]:
    """Of every rival: in how many cases it was what, and the geometric mean of its ratios."""
    if len(raced) < 2:
        return []
    lines = []
    for name in dict.fromkeys(rival.name for _, race in raced for rival in race.rivals):
        entries = [rival for _, race in raced for rival in race.rivals if rival.name == name]
        counts = [(sum(rival.outcome is outcome for rival in entries), str(outcome)) for outcome in Outcome]
        counts.append((sum(rival.stats is None for rival in entries), "no time"))
        told = ", ".join(f"{what} in {count}" for count, what in counts if count)
        ratios = [rival.ratio for rival in entries if rival.ratio is not None]
        mean = f"; ratio {fine(statistics.geometric_mean(ratios))} (geometric mean)" if ratios else ""
        lines.append(f"{one_line(name)}: {told or 'no outcome'}{mean}")
    return lines


def _notes(raced: Sequence[tuple[CaseResult, Race]]) -> list[str]:
    """What keeps ratios from meaning what they seem to, each once with the number of cases it is true of."""
    found: dict[str, int] = {}
    for _result, race in raced:
        cold = f"{NOT_COLD}: all inputs in turn are less than 2.2 times the last-level cache"
        for note in (race.note, cold if race.cold is False and race.stats else ""):
            found[note] = found.get(note, 0) + bool(note)
    return [f"{note} (in {units.plural(count, 'case')})" for note, count in found.items() if note]
