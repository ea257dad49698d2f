# SPDX-License-Identifier: MIT
"""Whether others used the machine while the judge timed: what Linux says before and after.

``pressure``: the share of the time in which something that could run waited for a core (``/proc/pressure/cpu``).
``steal``: the share of the cores' time that a hypervisor gave to others (``/proc/stat``). Where Linux tells neither,
the load average decides. A contestant with more threads than there are cores makes the machine busy itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRESSURE, STEAL = 0.10, 0.02         # shares beyond which the machine was busy
_PSI, _STAT = Path("/proc/pressure/cpu"), Path("/proc/stat")


@dataclass(frozen=True)
class Load:
    """Seconds on the judge's clock, and what of them others had; ``waited`` and ``stolen`` are None where Linux does
    not tell. ``capacity`` are the seconds of all cores, ``average`` is the highest load average."""

    seconds: float = 0.0
    waited: float | None = None
    stolen: float | None = None
    capacity: float = 0.0
    average: float | None = None

    @property
    def pressure(self) -> float | None:
        return _share(self.waited, self.seconds)

    @property
    def steal(self) -> float | None:
        return _share(self.stolen, self.capacity)

    @property
    def busy(self) -> bool:
        """Whether times of this span may be those of a shared machine."""
        if self.pressure is None and self.steal is None:
            return self.average is not None and self.average > (os.cpu_count() or 1)
        return (self.pressure or 0.0) > PRESSURE or (self.steal or 0.0) > STEAL

    def facts(self) -> dict[str, Any]:
        """As a record keeps it: what is known, and ``busy``."""
        known = {"pressure": self.pressure, "steal": self.steal, "load": self.average}
        return {"busy": self.busy, **{name: round(value, 3) for name, value in known.items() if value is not None}}


class Watch:
    """Counts from its making on; ``so_far`` tells what came to pass since."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._waited = _waited()
        self._stat = _stat()

    def so_far(self) -> Load:
        waited, stat = _waited(), _stat()
        average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        stolen, capacity = None, 0.0
        if stat is not None and self._stat is not None:
            stolen, capacity = (now - then for now, then in zip(stat, self._stat, strict=True))
        return Load(
            time.monotonic() - self._start,
            waited - self._waited if waited is not None and self._waited is not None else None,
            stolen, capacity, average)


def together(loads: Sequence[Load]) -> Load:
    """Several spans as one; a figure that one of them lacks is lacking."""
    def total(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) and known else None

    averages = [load.average for load in loads if load.average is not None]
    return Load(
        sum(load.seconds for load in loads), total([load.waited for load in loads]),
        total([load.stolen for load in loads]), sum(load.capacity for load in loads), max(averages, default=None))


def _share(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


def _waited() -> float | None:
    """Seconds since the start of the machine in which something waited for a core."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        some = [line for line in _PSI.read_text().splitlines() if line.startswith("some")]
        return int(some[0].rpartition("total=")[2]) * 1e-6
    return None


def _stat() -> tuple[float, float] | None:
    """(stolen, all) seconds of all cores since the start of the machine."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = [int(word) for word in _STAT.read_text().splitlines()[0].split()[1:9]]
        hertz = os.sysconf("SC_CLK_TCK")
        return ticks[7] / hertz, sum(ticks) / hertz
    return None
