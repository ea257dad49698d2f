# SPDX-License-Identifier: MIT
"""The geometry of the report's pictures: from records to pixels, without a word of SVG.

Each function returns a frozen description that a template macro draws: positions in pixels from the top left, labels
already formatted. Kernels carry their index among the page's kernels (``series``), which picks colour and shape; peers
count down from -1. Text comes in printable.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scoring.output import units
from scoring.output.text import one_line
from scoring.record import CaseResult, Record, Stats

CHAR = 6.9                       # generous average advance of the charts' 11 px type; labels are placed by it
_ROOFLINE_AXIS = "share of the hardware's limit (roofline)"


@dataclass(frozen=True)
class Tick:
    at: float
    label: str                   # "" for a minor one


@dataclass(frozen=True)
class Scale:
    """Maps values between ``low`` and ``high`` to pixels between ``start`` and ``end``, linearly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, spacing: float = 60) -> list[Tick]:
        """Round values, labels at least ``spacing`` pixels apart."""
        room = max(2, int(abs(self.end - self.start) / spacing))
        if not self.log:
            step = nice_step((self.high - self.low) / room)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [Tick(self(count * step), _number(count * step)) for count in range(first, last + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        wanted: tuple[int, ...] = (1,)
        per_decade = abs(self.end - self.start) / math.log10(self.high / self.low)
        if per_decade > 3.4 * spacing:
            wanted = (1, 2, 5)
        values = [(mantissa * 10.0**decade, mantissa in wanted) for decade in decades for mantissa in range(1, 10)]
        skip = max(1, math.ceil(spacing / per_decade))
        return [
            Tick(self(value), _number(value) if major and round(math.log10(value)) % skip == 0 else "")
            for value, major in values if self.low * 0.9999 <= value <= self.high * 1.0001]


@dataclass(frozen=True)
class Mark:
    """A measured value: where it is drawn, whose it is, and its description for a tooltip."""

    x: float
    y: float
    series: int
    title: str


@dataclass(frozen=True)
class Roof:
    """A ceiling: a path of points, and its label at the right of the plot."""

    points: Sequence[tuple[float, float]]
    label: str
    label_y: float


@dataclass(frozen=True)
class Roofline:
    """Attained FLOP/s over arithmetic intensity, both axes logarithmic. ``slope`` is the label of the bandwidth."""

    width: float
    height: float
    box: tuple[float, float, float, float]               # left, top, right, bottom of the plot
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    roofs: Sequence[Roof]
    marks: Sequence[Mark]
    slope: tuple[float, float, float, str] | None = None   # x, y, degrees, text


@dataclass(frozen=True)
class Bar:
    y: float
    length: float
    low: float                   # x of the whisker's ends
    high: float
    series: int
    label: str
    title: str


@dataclass(frozen=True)
class Group:
    """The bars of one case; ``y`` is the middle of the group, ``top`` and ``bottom`` its extent."""

    name: str
    y: float
    top: float
    bottom: float
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Bars:
    width: float
    height: float
    box: tuple[float, float, float, float]
    ticks: Sequence[Tick]
    groups: Sequence[Group]
    axis: str
    thickness: float
    limit: float | None          # x of 100 % of the roofline


@dataclass(frozen=True)
class Timeline:
    width: float
    height: float
    box: tuple[float, float, float, float]
    ticks: Sequence[Tick]
    path: Sequence[tuple[float, float]]
    marks: Sequence[Mark]
    series: int
    dates: tuple[str, str]
    last: str
    change: str
    improved: bool


def roofline(records: Sequence[tuple[int, Record]], peaks: Mapping[str, float]) -> Roofline | None:
    """Every timed case of ``records`` ((series, record) pairs) under the roofs of their target.

    ``peaks`` as in ``Target.peaks``; without ``bytes`` or any FLOP/s there are no roofs. None if nothing was timed, or
    no case says its FLOP and bytes.
    """
    points = [(series, record, result, result.flops / result.bytes_moved, result.tflops)
              for series, record in records for result in record.cases
              if result.tflops is not None and result.bytes_moved]
    if not points:
        return None
    bandwidth = peaks.get("bytes")
    ceilings = _ceilings(peaks) if bandwidth else {}
    ridges = [1e12 * ceiling / bandwidth for ceiling in ceilings] if bandwidth else []
    width, height, box = 540.0, 372.0, (58.0, 12.0, 430.0 if ceilings else 530.0, 326.0)
    intensities = [point[3] for point in points] + ridges
    attained = [point[4] for point in points if point[4]]
    x = Scale(min(intensities) / 5, max(intensities) * 2, box[0], box[2], log=True)
    y = Scale(min(attained) / 2, max([*attained, *ceilings]) * 1.7, box[3], box[1], log=True)
    label_ys = spread([y(ceiling) for ceiling in ceilings], 15.0)
    roofs = [
        Roof(_roof_path(ceiling, bandwidth / 1e12, x, y, steep=ceiling == max(ceilings)),
             f"{names} {units.digits(ceiling)}", label_y)
        for (ceiling, names), label_y in zip(ceilings.items(), label_ys, strict=True)
    ] if bandwidth else []
    marks = [Mark(x(intensity), y(rate), series, one_line(
        f"{record.kernel} · {record.problem} {result.case.name}: {_facts(result)}"))
        for series, record, result, intensity, rate in points if rate]
    slope = _slope(roofs[0].points, bandwidth) if roofs and bandwidth else None
    return Roofline(width, height, box, x.ticks(44), y.ticks(24), roofs, marks, slope)


def bars(cases: Sequence[tuple[str, Sequence[tuple[int, str, Stats, CaseResult]]]]) -> Bars | None:
    """Horizontal bars with confidence whiskers: per case (name, [(series, contestant, stats, result of the case)]).

    The length is the share of the roofline where that is known for all, else FLOP/s, else calls per second: longer is
    better in each. None for no cases.
    """
    entries = [entry for _, group in cases for entry in group]
    if not entries:
        return None
    axis, measure = _measure([result for *_, result in entries])
    width, thickness, gap = 1080.0, 13.0, 3.0
    left = min(340.0, 14 + CHAR * max(len(name) for name, _ in cases))
    top, right = 8.0, width - 124.0
    highest = max(measure(result, stats.ci_low) for _, _, stats, result in entries)
    x = Scale(0.0, max(1.0, highest * 1.02) if axis == _ROOFLINE_AXIS else highest * 1.05, left, right)
    groups, y = [], top + 8
    for name, group in cases:
        made, start = [], y
        for series, contestant, stats, result in group:
            value = measure(result, stats.median)
            share = f"{units.percent(value)} · " if axis == _ROOFLINE_AXIS else ""
            made.append(Bar(
                y, x(value) - left, x(measure(result, stats.ci_high)), x(measure(result, stats.ci_low)), series,
                f"{share}{units.time(stats.median)}",
                f"{contestant} · {name}: {units.time(stats.median)} "
                f"{units.uncertainty(stats.ci_low, stats.ci_high, stats.median)}, {stats.runs} rounds"))
            y += thickness + gap
        groups.append(Group(name, (start + y - gap) / 2, start, y - gap, made))
        y += 13
    bottom = y - 13 + 8
    limit = x(1.0) if axis == _ROOFLINE_AXIS else None
    ticks = [Tick(tick.at, f"{float(tick.label) * 100:.0f}%") for tick in x.ticks(90)] if limit else x.ticks(90)
    return Bars(width, bottom + 40, (left, top, right, bottom), ticks, groups, axis, thickness, limit)


def timeline(series: int, scored: Sequence[Record]) -> Timeline | None:
    """The score of comparable records over time, oldest first; None for fewer than two."""
    if len(scored) < 2:
        return None
    width, height, box = 340.0, 158.0, (50.0, 12.0, 334.0, 128.0)
    moments = [_moment(record.created) for record in scored]
    times = [record.score or 0.0 for record in scored]
    factor, unit = units.time_unit(max(times))
    x = Scale(moments[0], max(moments[-1], moments[0] + 1), box[0] + 6, box[2] - 6)
    y = Scale(0.0, max(times) / factor * 1.08, box[3], box[1])
    path = [(x(moment), y(seconds / factor)) for moment, seconds in zip(moments, times, strict=True)]
    marks = [Mark(*point, series, f"{_date(record.created, moments)}: {units.time(record.score)}")
             for point, record in zip(path, scored, strict=True)]
    ticks = [Tick(tick.at, f"{tick.label} {unit}" if tick.label != "0" else "0") for tick in y.ticks(24)]
    change = times[-1] / times[0] - 1
    return Timeline(
        width, height, box, ticks, path, marks, series,
        (_date(scored[0].created, moments), _date(scored[-1].created, moments)),
        units.time(times[-1]), f"{'−' if change < 0 else '+'}{abs(change) * 100:.0f}%", change < 0)


def nice_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))


def spread(positions: Sequence[float], distance: float) -> list[float]:
    """``positions`` moved as little as needed downwards so that no two are closer than ``distance``; order kept."""
    placed: list[float] = []
    for _, position in sorted(enumerate(positions), key=lambda item: item[1]):
        placed.append(max(position, placed[-1] + distance) if placed else position)
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    return [placed[order.index(index)] for index in range(len(positions))]


def _ceilings(peaks: Mapping[str, float]) -> dict[float, str]:
    """TFLOP/s to the dtypes that share it, highest first."""
    ceilings: dict[float, str] = {}
    for name, peak in sorted(peaks.items(), key=lambda item: -item[1]):
        if name != "bytes" and peak > 0:
            known = ceilings.get(peak / 1e12)
            ceilings[peak / 1e12] = f"{known}, {one_line(name)}" if known else one_line(name)
    return ceilings


def _roof_path(ceiling: float, slope: float, x: Scale, y: Scale, *, steep: bool) -> list[tuple[float, float]]:
    """From the bandwidth's line to the right edge; the highest roof includes that line. ``slope``: TB/s."""
    ridge = max(ceiling / slope, x.low)
    flat = [(x(ridge), y(ceiling)), (x.end, y(ceiling))]
    start = max(x.low, y.low / slope)
    return [(x(start), y(start * slope)), *flat] if steep and start < ridge else flat


def _slope(path: Sequence[tuple[float, float]], bandwidth: float) -> tuple[float, float, float, str] | None:
    if len(path) < 3:
        return None
    (x0, y0), (x1, y1) = path[:2]
    text = f"{units.rate(bandwidth, 'B/s')}"
    if math.hypot(x1 - x0, y1 - y0) < CHAR * len(text) + 30:
        return None
    share = 0.3
    return x0 + share * (x1 - x0), y0 + share * (y1 - y0), math.degrees(math.atan2(y1 - y0, x1 - x0)), text


def _measure(results: Sequence[CaseResult]) -> tuple[str, Callable[[CaseResult, float], float]]:
    """The axis' name, and the length of a bar for a case and a time. Longer is better."""
    if all(result.roofline_seconds for result in results):
        return _ROOFLINE_AXIS, lambda result, seconds: (result.roofline_seconds or 0.0) / seconds
    if all(result.flops for result in results):
        unit, factor = ("TFLOP/s", 1e12) if max(result.tflops or 0.0 for result in results) >= 1 else ("GFLOP/s", 1e9)
        return unit, lambda result, seconds: result.flops / seconds / factor
    return "calls per second", lambda result, seconds: 1 / seconds


def _facts(result: CaseResult) -> str:
    facts = [units.time(result.stats.median if result.stats else None), f"{units.digits(result.tflops)} TFLOP/s"]
    if result.roofline_fraction:
        facts.append(f"{units.percent(result.roofline_fraction)} of the roofline")
    return ", ".join(facts)


def _number(value: float) -> str:
    return f"{value:.10g}" if 1e-4 <= abs(value) < 1e7 or value == 0 else f"{value:.0e}"


def _moment(created: str) -> float:
    try:
        return datetime.datetime.fromisoformat(created).timestamp()
    except ValueError:
        return 0.0


def _date(created: str, moments: Sequence[float]) -> str:
    """The day, or the time of day where all lie within one."""
    return one_line(created[11:16] if moments[-1] - moments[0] < 86_400 else created[:10])
