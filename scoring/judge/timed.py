# SPDX-License-Identifier: MIT
"""What timing a case gave: in one process (``Timed``), and in all of them together (``pooled``). Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scoring.judge import busy, intervals
from scoring.judge.check import Verdict
from scoring.judge.rivals import Turns
from scoring.record import Stats, Status

Samples = Mapping[str, Sequence[float]]          # seconds per call of every contestant, one per round


@dataclass(frozen=True)
class Timed:
    """The timing of a case in one process: what counts of every contestant that stayed correct, and the circumstances.

    ``raced`` are the samples of the rounds that contestants shared, ``order`` who came first in each of them.
    """

    verdict: Verdict
    seed: int
    samples: Samples = field(default_factory=dict)
    protocol: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    readings: Sequence[Mapping[str, Any]] = ()           # of the device, one per round
    load: busy.Load = field(default_factory=busy.Load)
    raced: Samples = field(default_factory=dict)
    shuffling: int = 0                                   # the seed of the turns
    order: Sequence[Sequence[str]] = ()
    same_bits: Mapping[str, bool] = field(default_factory=dict)
    declined: Mapping[str, tuple[Status, str]] = field(default_factory=dict)     # rivals that do not take the case
    confirmed: bool = True                               # whether the judge's clock agrees with the kernel's claims
    calls: Sequence[float] = ()                          # seconds of single calls
    warm: Sequence[float] = ()                           # seconds per call of calls that repeat one slot


@dataclass(frozen=True)
class Pooled:
    """The same of several processes. Whoever failed in one of them has no time."""

    stats: Mapping[str, Stats]
    protocol: str
    environment: Mapping[str, Any]
    turns: Turns | None
    declined: Mapping[str, tuple[Status, str]]
    confirmed: bool
    calls: Stats | None                                  # of single calls, if any were asked for
    warm: Stats | None                                   # of calls that repeat one slot, likewise


def pooled(parts: Sequence[Timed]) -> Pooled:
    """What the ``parts`` come to, one per process and at least one, all of them correct."""
    names = [name for name in parts[0].samples if all(part.samples.get(name) for part in parts)]
    stats = {name: intervals.statistics([part.samples[name] for part in parts]) for name in names}
    protocols = dict.fromkeys(part.protocol for part in parts)
    declined = {name: why for part in parts for name, why in part.declined.items()}
    return Pooled(stats, " + ".join(protocols), _environment(parts), _turns(parts), declined,
                  all(part.confirmed for part in parts), _together(part.calls for part in parts),
                  _together(part.warm for part in parts))


def _together(parts: Iterable[Sequence[float]]) -> Stats | None:
    """Calls of all processes together: their spread is what one asks of them, not how well a median is known."""
    calls = [seconds for part in parts for seconds in part]
    return intervals.within_process(calls) if calls else None


def _turns(parts: Sequence[Timed]) -> Turns | None:
    """The shared rounds of all processes, of the contestants that were in all of them; None for the kernel alone."""
    names = [name for name in parts[0].raced if all(name in part.raced for part in parts)]
    if len(names) < 2:
        return None
    order = [tuple(names.index(name) for name in turn if name in names) for part in parts for turn in part.order]
    same = {name: all(part.same_bits[name] for part in parts) for name in names
            if all(name in part.same_bits for part in parts)}
    return Turns({name: [part.raced[name] for part in parts] for name in names}, parts[0].shuffling, order, same)


def _environment(parts: Sequence[Timed]) -> dict[str, Any]:
    """The circumstances in one mapping: counts add up, seconds are medians over the processes."""
    found = [part.environment for part in parts]
    facts = {**found[0], "processes": len(parts), "rounds": sum(each["rounds"] for each in found)}
    chains = [each["chain"] for each in found if "chain" in each]
    if chains:
        facts["chain"] = {
            **chains[0], "chains": sum(chain["chains"] for chain in chains),
            "captured": all(chain["captured"] for chain in chains),
            "doorbells": all(chain["doorbells"] for chain in chains),
            **{name: statistics.median(chain[name] for chain in chains)
               for name in ("bound", "overhead", "resolution", "unseal", "unseal_alone")}}
        facts["claim"] = statistics.median(each["claim"] for each in found)
        judged = [each["clock"] for each in found if each["clock"] == "judge"]
        facts["clock"] = judged[0] if judged else found[0]["clock"]
    notes = {name: why for each in found for name, why in each.get("peer_notes", {}).items()}
    facts |= {"peer_notes": notes} if notes else {}
    return {**facts, **summary([reading for part in parts for reading in part.readings]),
            "machine": busy.together([part.load for part in parts]).facts()}


def summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Range of every numeric reading, union of every list; the circumstances of a measurement in a few figures."""
    found: dict[str, Any] = {}
    for key in {key for reading in readings for key in reading}:
        values = [reading[key] for reading in readings if key in reading]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            ordered = sorted(values)
            found[key] = {"min": ordered[0], "median": ordered[len(ordered) // 2], "max": ordered[-1]}
        elif all(isinstance(value, list | tuple) for value in values):
            found[key] = sorted({item for value in values for item in value})
        else:
            found[key] = values[-1]
    return found
