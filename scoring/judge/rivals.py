# SPDX-License-Identifier: MIT
"""Rivals of a kernel: who races it, who failed, and what the record says of the race. No clock is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scoring.judge import intervals
from scoring.judge.job import Entrant
from scoring.record import Outcome, Race, Rival, Status

TOO_FEW = 6          # rounds of a single process below which the interval of a median says too little


class RivalFailed(Exception):
    """A rival gave a wrong answer, or its worker died or cannot be trusted any more: the case starts again without."""

    def __init__(self, name: str, status: Status, message: str, lost: bool = False):
        super().__init__(message)
        self.name, self.status = name, status
        self.lost = lost             # it took the worker with it, and would in every other case


@dataclass(frozen=True)
class Turns:
    """Shared rounds of a case: seconds per call of every contestant, one per round of each process; none if nobody was
    left to race."""

    samples: Mapping[str, Sequence[Sequence[float]]]
    seed: int = 0
    order: Sequence[Sequence[int]] = ()          # of every round, by the place of a name in ``samples``
    same_bits: Mapping[str, bool] = field(default_factory=dict)


def race(
    turns: Turns, own: str, entrants: Sequence[Entrant], failed: Mapping[str, tuple[Status, str]], cold: bool | None,
    note: str = "", confirmed: bool = True, bands: Mapping[str, float] | None = None,
) -> Race:
    """What the rounds of the kernel ``own`` show of every entrant and every peer, who is whoever else has samples.

    ``failed`` says of entrants without samples why. ``confirmed`` tells whether the judge's clock agrees with what the
    kernel claims, of which the ratios are. ``bands``: times are modelled, and by what fraction each can be wrong.
    """
    others = [name for name in turns.samples if name != own]
    measured = turns.samples.get(own, ())
    few = bool(others) and len(measured) == 1 and 1 < len(measured[0]) < TOO_FEW
    notes = [note]
    if few:
        notes.append(f"{len(measured[0])} rounds are too few for an outcome")
    if others and not confirmed:
        notes.append("the judge's clock does not confirm the kernel's claims, and ratios are of claims")
    found = []
    for entrant in entrants:
        if entrant.name in turns.samples:
            found.append(Rival(entrant.name, entrant.digest, same_bits=turns.same_bits.get(entrant.name)))
        else:
            status, message = failed.get(entrant.name, (entrant.status, entrant.message))
            found.append(Rival(entrant.name, entrant.digest, status=status, message=message))
    names = {entrant.name for entrant in entrants}
    found += [Rival(name, peer=True) for name in others if name not in names]
    # Indexes of ``samples`` become those of the rivals that have a time, in the order of the record.
    places = [own, *(rival.name for rival in found if rival.name in turns.samples)]
    index = [places.index(name) for name in turns.samples]
    order = tuple(tuple(index[at] for at in turn) for turn in turns.order)
    timed = [_timed(rival, measured, turns.samples.get(rival.name, ()), not few) for rival in found]
    if bands is not None:
        timed = [_resolved(rival, max(bands[own], bands[rival.name])) if rival.stats else rival for rival in timed]
    stats = intervals.statistics(measured) if measured else None
    note = "; ".join(filter(None, notes))
    return Race(tuple(timed), stats, turns.seed, order, cold, note, tuple(map(len, measured)))


def _timed(
    rival: Rival, own: Sequence[Sequence[float]], other: Sequence[Sequence[float]], decided: bool
) -> Rival:
    if not other:
        return rival
    ratio, low, high = intervals.ratio(own, other)
    return replace(
        rival, stats=intervals.statistics(other), ratio=ratio, ratio_low=low, ratio_high=high,
        outcome=intervals.outcome(low, high) if decided else None)


def _resolved(rival: Rival, band: float) -> Rival:
    """The ratio of modelled times with the interval that the model's errors leave."""
    assert rival.ratio is not None
    low, high = rival.ratio / (1 + band), rival.ratio * (1 + band)
    inside = low <= 1 <= high
    return replace(rival, ratio_low=low, ratio_high=high,
                   outcome=Outcome.NOT_RESOLVED if inside else intervals.outcome(low, high))
