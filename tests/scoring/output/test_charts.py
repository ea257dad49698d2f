# SPDX-License-Identifier: MIT
"""The pictures are true (positions follow from values) and legible (nothing outside its box, no label over another)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.output import charts
from scoring.output.charts import Scale, Tick
from scoring.record import Record, Stats
from tests.scoring.records import GPUS, record, stats

H200 = GPUS["H200"][3]


def assert_apart(ticks: list[Tick], distance: float) -> None:
    labelled = sorted(tick.at for tick in ticks if tick.label)
    assert labelled
    assert all(after - before >= distance for before, after in itertools.pairwise(labelled))


def bar_entries(made: Record, series: int = 0) -> list[tuple[str, list[tuple[int, str, Stats, object]]]]:
    return [(r.case.name, [(series, made.kernel, r.stats, r),
                           *((-1 - n, name, peer, r) for n, (name, peer) in enumerate(r.peers.items()))])
            for r in made.cases if r.stats]


@given(low=st.floats(1e-6, 1e6), ratio=st.floats(3.4, 1e8), length=st.floats(150, 900))
def test_logarithmic_ticks_have_labels_that_do_not_touch(low: float, ratio: float, length: float) -> None:
    scale = Scale(low, low * ratio, 0, length, log=True)
    ticks = scale.ticks(44)
    assert_apart(ticks, 44 * 0.9)
    assert all(-0.1 <= tick.at <= length + 0.1 for tick in ticks)


@given(high=st.floats(1e-6, 1e9), length=st.floats(100, 900))
def test_linear_ticks_start_at_zero_and_do_not_touch(high: float, length: float) -> None:
    ticks = Scale(0, high, 0, length).ticks(50)
    assert_apart(ticks, 49)
    assert ticks[0].label == "0"
    assert all(0 <= tick.at <= length * 1.0001 for tick in ticks)


def test_ticks_are_where_their_labels_say() -> None:
    scale = Scale(7, 3000, 40, 400, log=True)
    for tick in scale.ticks():
        if tick.label:
            assert scale(float(tick.label)) == pytest.approx(tick.at)


@pytest.mark.parametrize(("rough", "step"), [(0.9, 1), (1, 1), (1.1, 2), (2.2, 2.5), (3, 5), (6, 10), (0.03, 0.05)])
def test_nice_step(rough: float, step: float) -> None:
    assert charts.nice_step(rough) == pytest.approx(step)


@given(st.lists(st.floats(0, 500), max_size=8))
def test_spread_labels_keep_their_order_and_distance(positions: list[float]) -> None:
    placed = charts.spread(positions, 15)
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    ordered = [placed[index] for index in order]
    assert all(after - before >= 15 - 1e-9 for before, after in itertools.pairwise(ordered))
    assert all(after >= before for before, after in zip(positions, placed, strict=True))


def test_a_roofline_puts_marks_at_intensity_and_rate() -> None:
    made = record()
    chart = charts.roofline([(3, made)], H200)
    assert chart is not None
    left, top, right, bottom = chart.box
    assert len(chart.marks) == len(made.cases)
    assert all(left <= mark.x <= right and top <= mark.y <= bottom for mark in chart.marks)
    assert {mark.series for mark in chart.marks} == {3}
    by_rate = sorted(zip(made.cases, chart.marks, strict=True), key=lambda pair: pair[0].tflops or 0)
    assert [pair[1].y for pair in by_rate] == sorted((mark.y for mark in chart.marks), reverse=True)
    by_intensity = sorted(zip(made.cases, chart.marks, strict=True), key=lambda p: p[0].flops / p[0].bytes_moved)
    assert [pair[1].x for pair in by_intensity] == sorted(mark.x for mark in chart.marks)
    assert "55% of the roofline" in "".join(mark.title for mark in chart.marks)


def test_a_case_at_its_roofline_lies_on_the_roof() -> None:
    """The slope and both levels are where the peaks put them: a perfect kernel touches them, none is above."""
    made = record()
    perfect = tuple(replace(r, stats=stats(r.roofline_seconds or 1.0)) for r in made.cases)
    chart = charts.roofline([(0, replace(made, cases=perfect))], H200)
    assert chart is not None
    (x0, y0), (x1, y1), (x2, y2) = chart.roofs[0].points
    assert y1 == y2
    for mark in chart.marks:
        on_roof = y1 if mark.x >= x1 else y0 + (y1 - y0) * (mark.x - x0) / (x1 - x0)
        assert mark.y == pytest.approx(on_roof, abs=0.01)
    assert x2 == chart.box[2]


def test_equal_peaks_share_a_roof_and_labels_keep_apart() -> None:
    chart = charts.roofline([(0, record())], {**H200, "fp32": 900e12})
    assert chart is not None
    assert [roof.label for roof in chart.roofs] == ["fp8 1979", "bf16, fp16 990", "fp32 900"]
    heights = sorted(roof.label_y for roof in chart.roofs)
    assert all(after - before >= 15 for before, after in itertools.pairwise(heights))
    assert chart.slope is not None
    assert chart.slope[3] == "4.80 TB/s"


@pytest.mark.parametrize("peaks", [{}, {"fp8": 1e15}, {"bytes": 1e12}])
def test_without_peaks_there_is_no_roof(peaks: dict[str, float]) -> None:
    chart = charts.roofline([(0, record())], peaks)
    assert chart is not None
    assert chart.roofs == []
    assert chart.slope is None
    assert len(chart.marks) == 6


def test_without_flop_counts_there_is_no_roofline() -> None:
    made = record()
    uncounted = tuple(replace(result, flops=0.0, bytes_moved=0.0) for result in made.cases)
    assert charts.roofline([(0, replace(made, cases=uncounted))], H200) is None


def test_bars_are_as_long_as_the_share_of_the_roofline() -> None:
    made = record(peers=("vendor",))
    chart = charts.bars(bar_entries(made))
    assert chart is not None
    left, _, right, _ = chart.box
    assert chart.limit == pytest.approx(right)
    for result, group in zip(made.cases, chart.groups, strict=True):
        kernel, peer = group.bars
        assert result.roofline_fraction is not None
        assert kernel.length / (right - left) == pytest.approx(result.roofline_fraction)
        assert peer.length / kernel.length == pytest.approx(result.stats.median / result.peers["vendor"].median)
        assert kernel.low < left + kernel.length < kernel.high
        assert (kernel.series, peer.series) == (0, -1)


def test_bars_do_not_touch_and_fill_the_box() -> None:
    chart = charts.bars(bar_entries(record(peers=("a", "b"))))
    assert chart is not None
    tops = [bar.y for group in chart.groups for bar in group.bars]
    assert all(after - before >= chart.thickness + 2 for before, after in itertools.pairwise(tops))
    assert chart.box[1] <= tops[0]
    assert tops[-1] + chart.thickness <= chart.box[3] < chart.height


def test_longer_names_get_more_room() -> None:
    short = charts.bars([("m=1", bar_entries(record())[0][1])])
    long = charts.bars([("m=1024,n=7168,k=2304,more=17", bar_entries(record())[0][1])])
    assert short is not None
    assert long is not None
    assert long.box[0] >= len("m=1024,n=7168,k=2304,more=17") * 6
    assert short.box[0] < long.box[0]


def test_without_a_roofline_bars_show_rates_then_calls() -> None:
    made = record(gpu="CPU", kernel="cpu/naive")
    assert all(result.roofline_seconds is None for result in made.cases)
    by_rate = charts.bars(bar_entries(made))
    uncounted = replace(made, cases=tuple(replace(result, flops=0.0) for result in made.cases))
    by_calls = charts.bars(bar_entries(uncounted))
    assert by_rate is not None
    assert by_calls is not None
    assert (by_rate.axis, by_rate.limit) == ("GFLOP/s", None)
    assert by_calls.axis == "calls per second"
    longest = max(by_calls.groups, key=lambda group: group.bars[0].length)
    fastest = min(made.cases, key=lambda result: result.stats.median if result.stats else math.inf)
    assert longest.name == fastest.case.name


def test_a_peer_above_the_roofline_stays_inside() -> None:
    made = record(cases=1)
    result = replace(made.cases[0], peers={"cache": stats((made.cases[0].roofline_seconds or 1) / 1.4)})
    chart = charts.bars(bar_entries(replace(made, cases=(result,))))
    assert chart is not None
    assert chart.limit is not None
    assert chart.limit < chart.box[0] + chart.groups[0].bars[1].length <= chart.box[2]


def test_no_bars_for_no_times() -> None:
    assert charts.bars([]) is None


def runs(*scores: float, days: int = 5) -> list[Record]:
    return [replace(record(created=f"2026-11-{1 + number * days:02d}T08:15:00+00:00"), score=value)
            for number, value in enumerate(scores)]


def test_a_timeline_starts_at_zero_and_goes_down_as_scores_do() -> None:
    chart = charts.timeline(2, runs(40e-6, 30e-6, 10e-6))
    assert chart is not None
    left, top, right, bottom = chart.box
    heights = [bottom - y for _, y in chart.path]
    assert heights[1] / heights[0] == pytest.approx(0.75)
    assert heights[2] / heights[0] == pytest.approx(0.25)
    assert [x for x, _ in chart.path] == sorted(x for x, _ in chart.path)
    assert all(left <= x <= right and top <= y <= bottom for x, y in chart.path)
    assert (chart.last, chart.change, chart.improved) == ("10.0 µs", "−75%", True)
    assert chart.dates == ("2026-11-01", "2026-11-11")
    assert chart.marks[0].title == "2026-11-01: 40.0 µs"


def test_a_slower_run_is_no_improvement() -> None:
    chart = charts.timeline(0, runs(1e-3, 1.5e-3))
    assert chart is not None
    assert (chart.change, chart.improved) == ("+50%", False)


def test_runs_of_one_day_show_the_time_of_day() -> None:
    chart = charts.timeline(0, runs(1e-3, 2e-3, days=0))
    assert chart is not None
    assert chart.dates == ("08:15", "08:15")
    assert all(math.isfinite(x) and math.isfinite(y) for x, y in chart.path)


@pytest.mark.parametrize("count", [0, 1])
def test_one_run_is_no_history(count: int) -> None:
    assert charts.timeline(0, runs(1e-3)[:count]) is None


def test_an_odd_date_does_not_break_a_timeline() -> None:
    chart = charts.timeline(0, [replace(run, created="yesterday") for run in runs(1e-3, 2e-3)])
    assert chart is not None
    assert len(chart.path) == 2
