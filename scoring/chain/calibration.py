# SPDX-License-Identifier: MIT
"""What a chain costs by itself: unsealing, mixing, committing, and two round trips, without any code under test.

Measured with a contestant of ours, whose time is known, in a worker of its own, before a submission is started: a
process that is not there cannot slow the machine down to have more subtracted later. Chains are as long as they will be
in earnest: the slope of a line through two other lengths multiplies its error by the links (benchmarks/judge.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scoring.chain.library import KEY_BYTES

SAMPLES = 12                  # chains
DOORS_SAMPLES = 6             # … that wait at the doors, and as many without: they differ by less
STALE = {"cpu": 120.0, "cuda": 600.0}        # seconds a result may be used again: a host's speed drifts
# Which quantile of the links' time is subtracted. Too much is a gift to whoever claims almost nothing: on a host, where
# other processes may slow most of a calibration, the fastest tenth; on a GPU, which is the judge's alone, the median,
# which agrees best with direct times. Of unsealing only the excess over its quantile counts.
LINKS_SHARE = {"cpu": 0.1, "cuda": 0.5}
UNSEAL_SHARE = 0.75
# Unsealing for a chain of several links may take this much longer than in calibration: the device's jitter. Whoever
# uses it to work ahead on an operand has it once for the whole chain.
JITTER = 200e-6, 0.05         # seconds, and a share of the phase
DOORS_JITTER = 20e-6, 0.03    # … where no host is in between: 13 µs more of 240 to 1500 µs were seen


@dataclass(frozen=True)
class Overhead:
    """Seconds that the two phases of a chain of ``links`` links cost without calls, and how well that is known.

    A chain of one link has one phase: all its inputs are known when they are unsealed, so the clock runs from there,
    and ``unseal`` is 0. Of unsealing nothing is subtracted but what moving the bytes must cost and, at the doors, its
    launch (part of ``wall``), since code that knows how could do it faster than we and work in the time it saved.

    ``doors``: these chains wait on the device for their keys, so that neither phase holds anything of a host.

    ``spread`` is how far the median of such chains lies above their fastest tenth, in seconds: the judge's clock
    resolves no less. ``wall`` is their median on a GPU, the fastest tenth on a host.
    """

    links: int
    unseal: float
    wall: float
    spread: float
    doors: bool = False

    @property
    def resolution(self) -> float:
        """Seconds per call below which the judge's clock says nothing."""
        return self.spread / self.links

    def trusted(self, unseal: float, wall: float) -> float:
        """Seconds per call of a chain whose phases took ``unseal`` and ``wall``.

        Time beyond what unsealing takes counts as work done there; time saved there buys nothing.
        """
        seconds, share = DOORS_JITTER if self.doors else JITTER
        allowed = seconds + (1 + share) * self.unseal if self.links > 1 else 0.0
        return (wall - self.wall + max(0.0, unseal - allowed)) / self.links


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed; no interpolation. Raises ``ValueError`` for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(
    arm: Callable[[], object], phases: Callable[[bytes, bytes], tuple[float, float]], links: int, device: str,
    samples: int = SAMPLES, doors: bool = False,
) -> Overhead:
    """Calibrate with ``arm``, which readies a chain of ``links`` links on a ``device`` such as ``cuda:0``, and its two
    phases, which tell their seconds less those spent in calls. The first two are not counted.
    """
    told = []
    for _chain in range(samples + 2):
        arm()
        told.append(phases(os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)))
    unsealing, linking = zip(*told[2:], strict=True)
    return Overhead(
        links, quantile(unsealing, UNSEAL_SHARE) if links > 1 else 0.0, quantile(linking, LINKS_SHARE[_kind(device)]),
        quantile(linking, 0.5) - quantile(linking, 0.1), doors)


def _kind(device: str) -> str:
    """``cuda`` of ``cuda:0``."""
    return device.partition(":")[0]


class Known:
    """Overheads measured in this process, by whatever tells one kind of chain from another."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[float, tuple[Overhead, ...]]] = {}

    def get(self, key: tuple[object, ...], device: str) -> tuple[Overhead, ...]:
        """Those measured lately on a device such as ``cuda:0``; none if there are none."""
        when, overheads = self._known.get(key, (float("-inf"), ()))
        return overheads if time.monotonic() - when < STALE[_kind(device)] else ()

    def put(self, key: tuple[object, ...], overheads: tuple[Overhead, ...]) -> None:
        self._known[key] = (time.monotonic(), overheads)


KNOWN = Known()
