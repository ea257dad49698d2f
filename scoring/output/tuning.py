# SPDX-License-Identifier: MIT
"""Which values of a kernel's tunables to try, and what came of them: plain data and text. Nothing is run here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scoring.output import terminal, units
from scoring.output.table import Column, Style, draw, markdown, shorten
from scoring.output.text import one_line
from scoring.record import SCHEMA, CaseResult, Evidence, Record, Status
from scoring.record import score as ranking_score

FASTEST, EQUAL = "*", "~"
_FUNCTION = 72         # characters of a name
MOST = 64              # combinations of a kernel that are all tried without asking: each is a build and all its cases


def combinations(
    tunables: Mapping[str, Sequence[str]], fixed: Mapping[str, str], vary: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Every combination of values, the defaults first, with those of ``fixed`` as they are; of the tunables in ``vary``
    alone if any is named there. Empty where there is nothing to vary."""
    chosen = {name: values for name, values in tunables.items() if not vary or name in vary}
    if not chosen:
        return []
    options = [[fixed[name]] if name in fixed else values for name, values in chosen.items()]
    return [{**fixed, **dict(zip(chosen, values, strict=True))} for values in itertools.product(*options)]


def count(tunables: Mapping[str, Sequence[str]], fixed: Mapping[str, str], vary: Sequence[str] = ()) -> int:
    """How many ``combinations`` there are."""
    return math.prod(_varied(tunables, fixed, vary).values())


def excess(tunables: Mapping[str, Sequence[str]], fixed: Mapping[str, str], vary: Sequence[str]) -> str:
    """Why so many combinations are not all compiled, with what to do; "" for a number that is, or for what was asked
    for."""
    number = count(tunables, fixed, vary)
    if vary or number <= MOST:
        return ""
    listed = ", ".join(f"{name} ({size})" for name, size in _varied(tunables, fixed, vary).items() if size > 1)
    return f"{number} combinations of {listed}; --vary NAME takes one or some, -D NAME=VALUE keeps one as it is"


def _varied(
    tunables: Mapping[str, Sequence[str]], fixed: Mapping[str, str], vary: Sequence[str],
) -> dict[str, int]:
    return {name: len(values) for name, values in tunables.items() if name not in fixed and (not vary or name in vary)}


@dataclass(frozen=True)
class Variant:
    """One combination of values and the record of the kernel built with it."""

    values: Mapping[str, str]
    record: Record

    @property
    def name(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())

    @property
    def score(self) -> float | None:
        """Its own cases' times combined as the problem ranks; None without a time."""
        times = [result.stats.median for result in self.timed.values() if result.stats is not None]
        return ranking_score(times, self.record.ranking_by) if times else None

    @property
    def timed(self) -> dict[str, CaseResult]:
        """The cases that have a time, by name; none of a kernel that failed anywhere."""
        if self.record.status is not Status.PASSED:
            return {}
        return {result.case.name: result for result in self.record.cases if result.stats is not None}


@dataclass(frozen=True)
class Tuning:
    """All variants of one kernel on one target, in the order they were tried: the shipped defaults first."""

    variants: Sequence[Variant]

    @property
    def cases(self) -> list[str]:
        """Cases that some variant has a time for, in the order of the problem."""
        return list(dict.fromkeys(name for variant in self.variants for name in variant.timed))

    def fastest(self, case: str) -> int | None:
        """Index of the variant with the least median."""
        times = {i: v.timed[case].stats.median for i, v in enumerate(self.variants) if case in v.timed}  # type: ignore[union-attr]
        return min(times, key=lambda i: times[i]) if times else None

    def equals(self, case: str) -> list[int]:
        """The other variants whose confidence interval overlaps the fastest one's: noise may have decided."""
        best = self.fastest(case)
        if best is None:
            return []
        limit = self.variants[best].timed[case].stats.ci_high  # type: ignore[union-attr]
        return [i for i, v in enumerate(self.variants)
                if i != best and case in v.timed and v.timed[case].stats.ci_low <= limit]  # type: ignore[union-attr]

    def score(self, index: int) -> float | None:
        """All cases' times of a variant combined as the problem ranks; None unless it has a time for each."""
        variant = self.variants[index]
        return variant.score if len(variant.timed) == len(self.cases) else None

    @property
    def best(self) -> int | None:
        """Index of the variant with the least score."""
        scores = {i: score for i in range(len(self.variants)) if (score := self.score(i)) is not None}
        return min(scores, key=lambda i: scores[i]) if scores else None


def document(tuning: Tuning) -> dict[str, Any]:
    """A JSON-ready dict: every variant's values, score and whole record, and per case who was fastest."""
    first = tuning.variants[0].record
    return {
        "schema": SCHEMA, "problem": first.problem, "kernel": first.kernel.partition("[")[0], "backend": first.backend,
        "target": first.target, "gpu": first.gpu, "ranking_by": first.ranking_by, "best": tuning.best,
        "fastest": {case: {"variant": tuning.fastest(case), "equal": tuning.equals(case)} for case in tuning.cases},
        "variants": [
            {"values": dict(variant.values), "score": tuning.score(i), "record": variant.record.to_json()}
            for i, variant in enumerate(tuning.variants)
        ],
    }


def table(tuning: Tuning, style: Style) -> str:
    """The variants by number, then cases by variants; the fastest of each case marked, and those not told from it."""
    first = tuning.variants[0].record
    protocols = sorted({v.record.protocol for v in tuning.variants if v.record.protocol})
    timed = any(variant.timed for variant in tuning.variants)
    modelled = ["modelled times"] if timed and first.evidence is Evidence.MODELLED else []
    parts = (first.problem, first.kernel.partition("[")[0], terminal.target_of(first), *modelled, *protocols)
    heading = style.heading(" · ".join(one_line(part) for part in parts))
    if style.is_markdown:                # kept in a file: it says where it comes from
        heading += f"\n{markdown(_circumstances(tuning))}\n"
    blocks = [f"{heading}\n{_variants(tuning, style)}"]
    numbers = [i for i, variant in enumerate(tuning.variants) if variant.timed]
    across = max(1, (style.width - max(map(len, tuning.cases), default=0)) // 12)     # a time, its mark and a gap
    blocks += [_cases(tuning, numbers[at : at + across], style) for at in range(0, len(numbers), across)]
    if not numbers and (drawn := usage(tuning, style)):
        blocks.append(drawn)
    if numbers:
        legend = f"{FASTEST} fastest of the case, {EQUAL} within its 95 % interval"
        blocks.append(markdown(legend) if style.is_markdown else legend)
    return "\n\n".join(blocks)


def usage(tuning: Tuning, style: Style) -> str:
    """What the compiler made of each combination: of the functions that differ between them, one row for each outcome.

    "" where nothing was compiled. Dynamic shared memory is not known, so occupancy is an upper bound.
    """
    outcomes: dict[tuple[str, ...], list[int]] = {}
    for index, variant in enumerate(tuning.variants):
        for entry in variant.record.usage:
            outcomes.setdefault(_outcome(entry), []).append(index)
    compiled = sum(bool(variant.record.usage) for variant in tuning.variants)
    if not compiled:
        return ""
    rows = [(cells, of) for cells, of in outcomes.items() if len(of) < compiled]
    same = len(outcomes) - len(rows)
    note = f"{units.plural(same, 'function')} the same in all {compiled} combinations" if same else ""
    if not rows:
        return note
    heads = ("function", "registers", "AGPRs", "spills", "smem/LDS", "occupancy ≤")
    drawn = draw([
        Column("#", [",".join(f"{i + 1}" for i in of) for _, of in rows], right=False),
        *(Column(head, [cells[at] for cells, _ in rows], right=at > 0) for at, head in enumerate(heads)),
    ], style)
    return f"{style.heading('Compiler usage, where it differs')}\n{drawn}" + (f"\n{note}" if note else "")


def _outcome(entry: Mapping[str, Any]) -> tuple[str, ...]:
    def cell(key: str, text: Callable[[Any], str] = str) -> str:
        return "" if entry.get(key) is None else text(entry[key])

    name = shorten(one_line(str(entry.get("name", ""))).removeprefix("(anonymous namespace)::"), _FUNCTION)
    return (name, cell("registers"), cell("agprs"), cell("spill_bytes", units.size), cell("shared_bytes", units.size),
            cell("occupancy", units.percent))


def _circumstances(tuning: Tuning) -> str:
    """Day, device, versions and clocks of a tuning, as far as its records know them."""
    record = tuning.variants[0].record
    clocks = [reading[end] for variant in tuning.variants for result in variant.timed.values()
              if (reading := result.environment.get("sm_clock_mhz")) for end in ("min", "max")]
    driver, torch = record.system.get("driver"), record.system.get("torch")
    return ", ".join(one_line(str(part)) for part in (
        record.created[:10], record.device, f"driver {driver}" if driver else "",
        str(record.compile.get("version", "")).partition(";")[0], f"torch {torch}" if torch else "",
        f"{min(clocks):.0f}–{max(clocks):.0f} MHz" if clocks else "", f"seed {record.seed}") if part)


def _variants(tuning: Tuning, style: Style) -> str:
    scores = [tuning.score(i) for i in range(len(tuning.variants))]
    best = tuning.best
    wins = [tuning.fastest(case) for case in tuning.cases]
    return draw([
        Column("#", [f"{i + 1}" for i in range(len(scores))]),
        Column("values", [one_line(variant.name) for variant in tuning.variants], right=False),
        Column("status", [str(variant.record.status) for variant in tuning.variants], right=False),
        Column("score", [units.time(score) + (FASTEST if i == best else " ") for i, score in enumerate(scores)]),
        Column("behind", [
            units.ratio(score / scores[best]) if score is not None and best is not None and i != best else ""  # type: ignore[operator]
            for i, score in enumerate(scores)]),
        Column("fastest in", [f"{wins.count(i)} of {len(wins)}" if wins else "" for i in range(len(scores))]),
    ], style)


def _cases(tuning: Tuning, numbers: Sequence[int], style: Style) -> str:
    def cell(case: str, index: int) -> str:
        result = tuning.variants[index].timed.get(case)
        if result is None or result.stats is None:
            return ""
        mark = FASTEST if tuning.fastest(case) == index else EQUAL if index in tuning.equals(case) else " "
        return units.time(result.stats.median) + mark

    return draw([
        Column("case", [one_line(case) for case in tuning.cases], right=False),
        *(Column(f"#{i + 1} ", [cell(case, i) for case in tuning.cases]) for i in numbers),
    ], style)
