# SPDX-License-Identifier: MIT
"""What a chain costs by itself: unsealing, mixing, committing, and two round trips, without any code under test.

Measured with a contestant that does nothing in a worker of its own, before a submission is started: a process that is
not there cannot slow the machine down to have more subtracted later. Two lengths of chains are measured, since a chain
of n links costs ``fixed + n · per_link``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scoring.chain import KEY_BYTES

SAMPLES = 15                  # chains of each length
LINKS = 16                    # of the longer one, where memory allows
# Of the links rather too little is subtracted than too much; of unsealing, whose excess counts as work, the reverse.
LINKS_SHARE, UNSEAL_SHARE = 0.1, 0.75
# Unsealing for a chain of several links may take this much longer than in calibration: the device's jitter. Whoever
# uses it to work ahead on an operand has it once for the whole chain.
JITTER_SECONDS, JITTER_SHARE = 30e-6, 0.03
STALE = {"cpu": 30.0, "cuda": 600.0}        # seconds a result may be used again: a host's speed drifts


@dataclass(frozen=True)
class Cost:
    """Seconds of one phase of a chain: ``fixed`` once, ``per_link`` for every link."""

    fixed: float
    per_link: float

    def of(self, links: int) -> float:
        return self.fixed + links * self.per_link


@dataclass(frozen=True)
class Overhead:
    """What the two phases of a chain without calls cost, and how well that is known.

    ``spread`` is how far the median of short requests lies above their fastest tenth, in seconds: the judge's clock
    resolves no less.
    """

    unseal: Cost
    links: Cost
    spread: float

    def resolution(self, links: int) -> float:
        """Seconds per call below which the judge's clock says nothing."""
        return self.spread / links

    def trusted(self, unseal: float, wall: float, links: int) -> float:
        """Seconds per call of a chain whose phases took ``unseal`` and ``wall``.

        Time beyond what unsealing takes counts as work done there; time saved there buys nothing.
        """
        allowed = self.unseal.of(links)
        if links > 1:
            allowed += JITTER_SECONDS + JITTER_SHARE * allowed
        return (wall - self.links.of(links) + max(0.0, unseal - allowed)) / links


def fit(short: Sequence[float], long: Sequence[float], links: int, share: float) -> Cost:
    """The cost behind the seconds of chains of one link and of ``links`` links, at a quantile of both."""
    one = quantile(short, share)
    per_link = max(0.0, quantile(long, share) - one) / (links - 1) if links > 1 else 0.0
    return Cost(one - per_link, per_link)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed; no interpolation. Raises ``ValueError`` for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(
    arm: Callable[[int], object], unseal: Callable[[bytes], float], go: Callable[[bytes], float], links: int,
    samples: int = SAMPLES,
) -> Overhead:
    """Calibrate with ``arm(n)``, which readies a chain of n links, and its two phases, which tell their seconds.

    Both lengths take turns, so that a drift meets them alike; the first of each is not counted.
    """
    phases: dict[int, tuple[list[float], list[float]]] = {1: ([], []), links: ([], [])}
    for turn in range(samples + 1):
        for count, (unsealing, linking) in phases.items():
            arm(count)
            seconds = unseal(os.urandom(KEY_BYTES)), go(os.urandom(KEY_BYTES))
            if turn:
                unsealing.append(seconds[0])
                linking.append(seconds[1])
    (short_unseal, short), (long_unseal, long) = phases[1], phases[links]
    return Overhead(
        fit(short_unseal, long_unseal, links, UNSEAL_SHARE), fit(short, long, links, LINKS_SHARE),
        quantile(short, 0.5) - quantile(short, 0.1))


class Known:
    """Overheads measured in this process, by whatever tells one kind of chain from another."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[float, Overhead]] = {}

    def get(self, key: tuple[object, ...], device: str) -> Overhead | None:
        when, overhead = self._known.get(key, (float("-inf"), None))
        return overhead if time.monotonic() - when < STALE[device.partition(":")[0]] else None

    def put(self, key: tuple[object, ...], overhead: Overhead) -> None:
        self._known[key] = (time.monotonic(), overhead)


KNOWN = Known()
