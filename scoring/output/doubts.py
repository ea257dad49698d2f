# SPDX-License-Identifier: MIT
"""How far the times of a record can be trusted, as text: intervals, unconfirmed claims, a busy machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scoring.output import units
from scoring.record import WIDE, CaseResult, Stats

WIDE_MARK = " !"     # behind an interval that is wide


def interval(stats: Stats | None) -> str:
    """The interval of a time, marked if it is wide. Empty for a single sample, which says nothing about its spread; a
    modelled time has that of the model's errors."""
    if stats is None or stats.ci_low == stats.ci_high:
        return ""
    return units.uncertainty(stats.ci_low, stats.ci_high, stats.median) + WIDE_MARK * stats.wide


def doubts(results: Sequence[CaseResult]) -> list[str]:
    """What to know before the times of these cases are compared with others, in lines: whether the judge's clock
    confirmed them, whether intervals are wide, and whether others used the machine meanwhile."""
    lines = []
    if any(unconfirmed(result) for result in results):
        lines.append("claimed: what the kernel's own process measured, where the judge's clock did not confirm it;"
                     " the time is the judge's (docs/judge.md)")
    timed = [result for result in results if result.stats is not None]
    if any(interval(result.stats).endswith(WIDE_MARK) for result in timed):
        lines.append(f"{WIDE_MARK.strip()}: the interval is wider than {units.percent(WIDE)} of the time")
    spilling = [result for result in timed if any(_spills(launch) for launch in result.counters)]
    if spilling:
        lines.append(f"SCRATCH: in {units.plural(len(spilling), 'case')} registers are in memory: the modelled time"
                     " describes the compiler used here, not the kernel (docs/emulator_model.md)")
    if any(result.counters for result in timed):
        lines.append("modelled: intervals are the model's errors for kernels of that kind (docs/emulator_model.md)")
    machines = [machine for result in timed if isinstance(machine := result.environment.get("machine"), Mapping)]
    busy = [machine for machine in machines if machine.get("busy")]
    if busy:
        told = []
        for name, text in (("pressure", "something waited for a core during {:.0%}"), ("steal", "{:.0%} stolen"),
                           ("load", "load average {:.1f}")):
            known = [value for machine in busy if isinstance(value := machine.get(name), float | int)]
            told += [text.format(max(known))] if known else []
        lines.append(f"busy: others used the machine while {len(busy)} of {units.plural(len(timed), 'case')} were timed"
                     f" (at most: {', '.join(told)})")
    return lines


def _spills(launch: Mapping[str, Any]) -> bool:
    """Counters are a worker's words."""
    resources = launch.get("resources")
    size = resources.get("scratch_bytes") if isinstance(resources, Mapping) else None
    return isinstance(size, int) and size > 0


def unconfirmed(result: CaseResult) -> str:
    """What the code under test said that a call takes, where the judge's clock is the time instead; "" elsewhere, and
    where the two read alike (on a host each chain has a clock of its own, and most may have been confirmed)."""
    if result.environment.get("clock") != "judge" or result.stats is None:
        return ""
    claim = result.environment.get("claim")
    if not isinstance(claim, float) or not 0 < claim < float("inf"):
        return "?"
    told = units.time(claim)
    return told if claim < result.stats.median and told != units.time(result.stats.median) else ""
