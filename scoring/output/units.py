# SPDX-License-Identifier: MIT
"""Numbers as people read them: one spelling for the terminal, Markdown, JUnit and the HTML page.

Every function is pure and returns a string; ``None`` becomes the empty string, so that a table can pass what it has.
"""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = {1e12: "T", 1e9: "G", 1e6: "M"}
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def digits(value: float | None, significant: int = 3) -> str:
    """``value`` with ``significant`` digits and no exponent: 0.0412, 4.12, 41.2, 412, 41200."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{significant - 1}e}")
    exponent = int(f"{rounded:e}".split("e")[1])
    return f"{rounded:.{max(0, significant - 1 - exponent)}f}" if exponent < significant else f"{value:.0f}"


def time(seconds: float | None, significant: int = 3) -> str:
    """Seconds with an adaptive unit: ``41.2 µs``. Under a nanosecond the unit stays ns."""
    if seconds is None:
        return ""
    factor, unit = time_unit(seconds)
    text = digits(seconds / factor, significant)
    if text == "1000" and factor < 1.0:      # 999.9 µs rounds up into the next unit
        factor, unit = time_unit(seconds * 1.01)
        text = digits(seconds / factor, significant)
    return f"{text} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit that leaves ``seconds`` between 1 and 1000: (its size in seconds, its name)."""
    for factor, unit in _TIME_UNITS:
        if abs(seconds) >= factor:
            return factor, unit
    return _TIME_UNITS[-1]


def percent(fraction: float | None) -> str:
    """A fraction as ``61%``; one decimal below 10 %."""
    if fraction is None:
        return ""
    scaled = fraction * 100
    return f"{scaled:.0f}%" if abs(scaled) >= 9.95 else f"{scaled:.1f}%"


def uncertainty(low: float, high: float, middle: float) -> str:
    """A confidence interval as the larger of its two half-widths, relative: ``±0.4%``."""
    return f"±{max(middle - low, high - middle, 0.0) / middle * 100:.1f}%"


def ratio(value: float | None) -> str:
    """A speed-up: ``1.05×``."""
    return "" if value is None else f"{value:.2f}×" if value < 99.995 else f"{value:.0f}×"


def size(count: float | None) -> str:
    """Bytes with a binary prefix: ``224 KiB``; 0 is ``0``."""
    if count is None:
        return ""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.0f} B" if count else "0"


def rate(per_second: float, unit: str) -> str:
    """FLOP/s or bytes/s with a decimal prefix: ``rate(1.979e15, "FLOP/s")`` is ``1979 TFLOP/s``."""
    for factor, prefix in _PREFIXES.items():
        if per_second >= factor:
            return f"{digits(per_second / factor)} {prefix}{unit}"
    return f"{per_second:.0f} {unit}"


def rates(values: Sequence[float | None], unit: str, usual: float) -> tuple[str, list[str]]:
    """A column of rates per second: its header and cells. ``usual`` is the prefix's factor that fast devices need.

    A column of slow rows has a smaller prefix, and rows that differ by more than a thousand have one each.
    """
    known = [value for value in values if value]
    if known and max(known) > 1000 * min(known):
        return unit, ["" if value is None else rate(value, unit) for value in values]
    factor = usual
    while known and max(known) < 0.1 * factor and factor > 1e6:
        factor /= 1000
    return f"{_PREFIXES[factor]}{unit}", [digits(None if value is None else value / factor) for value in values]


def plural(count: int, noun: str) -> str:
    """``1 case``, ``8 cases``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


