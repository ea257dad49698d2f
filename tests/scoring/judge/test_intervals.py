# SPDX-License-Identifier: MIT
"""``scoring.judge.intervals``: what samples of one process and of several say, and how often they are right."""

from __future__ import annotations

import math
import statistics as stdlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.judge import intervals
from scoring.judge.timing import TimingOptions
from scoring.record import Outcome

SAMPLES = st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=40)
PROCESSES = st.lists(st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=8), min_size=1, max_size=8)
FIGURES = ("median", "ci_low", "ci_high", "mean", "std", "err", "best", "worst")


# Definitions ----------------------------------------------------------------------------------------------------------

@settings(max_examples=60, deadline=None)
@given(PROCESSES)
def test_statistics_agree_with_their_definitions(processes):
    stats = intervals.statistics(processes)
    samples = [seconds for each in processes for seconds in each]
    medians = [stdlib.median(each) for each in processes]
    assert stats.runs == len(samples)
    assert stats.best == min(samples)
    assert stats.worst == max(samples)
    assert stats.median == pytest.approx(stdlib.median(medians), rel=1e-12)
    assert stats.processes == (() if len(processes) == 1 else pytest.approx(medians))
    assert stats.mean == pytest.approx(stdlib.fmean(samples), rel=1e-12)
    if len(samples) > 1:
        assert stats.std == pytest.approx(stdlib.stdev(samples), rel=1e-6, abs=1e-12 * max(samples))
    assert stats.err == pytest.approx(stats.std / math.sqrt(len(samples)))
    assert stats.ci_low <= stats.median <= stats.ci_high


@settings(max_examples=40, deadline=None)
@given(PROCESSES, st.sampled_from([2.0**-20, 0.5, 2.0, 1024.0]))
def test_statistics_scale_with_the_unit(processes, factor):
    stats = intervals.statistics(processes)
    scaled = intervals.statistics([[value * factor for value in samples] for samples in processes])
    for name in FIGURES:
        assert getattr(scaled, name) == pytest.approx(getattr(stats, name) * factor, rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(SAMPLES)
def test_one_process_has_the_bootstrap_interval_of_its_rounds(samples):
    stats = intervals.statistics([samples])
    assert stats == intervals.within_process(samples), "and the same samples give the same interval"
    assert stats.best <= stats.ci_low <= stats.ci_high <= stats.worst


def test_rounds_of_one_process_do_not_narrow_the_interval_of_several():
    few = intervals.statistics([[1.0], [1.1], [1.2]])
    many = intervals.statistics([[1.0] * 50, [1.1] * 50, [1.2] * 50])
    assert (few.ci_low, few.ci_high) == (many.ci_low, many.ci_high)
    assert few.ci_low < 1.0
    assert few.ci_high > 1.2


def test_equal_processes_have_an_interval_of_no_width():
    stats = intervals.statistics([[2.0, 2.0]] * 5)
    assert stats.ci_low == pytest.approx(2.0) == stats.ci_high
    assert not stats.wide
    assert intervals.statistics([[1.0], [1.1]]).wide


@pytest.mark.parametrize("samples", [[], [0.0], [1.0, -1.0], [math.nan], [1.0, math.inf]])
def test_what_is_no_sample_is_refused(samples):
    for processes in ([samples], [samples, [1.0]], [[1.0], samples]):
        with pytest.raises(ValueError, match="finite and positive"):
            intervals.statistics(processes)


def test_the_quantiles_are_those_of_students_t():
    """The density integrated from 0 to the quantile is 0.475."""
    assert len(intervals.T_95) == intervals.MOST_PROCESSES - 1
    for freedom, quantile in enumerate(intervals.T_95, 1):
        x = np.linspace(0.0, quantile, 20_001)
        constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
        density = constant * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
        assert float(((density[1:] + density[:-1]) / 2 * np.diff(x)).sum()) == pytest.approx(0.475, abs=1e-5)


def test_a_median_varies_more_than_a_mean():
    """The table beside 40,000 drawn medians of each number of normal values."""
    assert len(intervals.MEDIAN) == len(intervals.T_95)
    drawn = np.random.default_rng(5).standard_normal((40_000, intervals.MOST_PROCESSES))
    for count, variance in enumerate(intervals.MEDIAN, 2):
        assert np.var(np.median(drawn[:, :count], axis=1)) * count == pytest.approx(variance, rel=0.03)


# How often they are right ---------------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, int], np.ndarray]          # the medians of so many processes


def two_modes(share: float) -> Draw:
    """9.5 and 13.5 ms, each within a per cent: what a CPU file that allocates its output did."""
    def draw(generator: np.random.Generator, processes: int) -> np.ndarray:
        slow = generator.random(processes) < share
        return np.where(slow, 13.5e-3, 9.5e-3) * np.exp(0.01 * generator.standard_normal(processes))
    return draw


SCENES: dict[str, Draw] = {
    "normal": lambda generator, processes: np.exp(0.03 * generator.standard_normal(processes)),
    "heavy tails": lambda generator, processes: np.exp(0.02 * generator.standard_t(3, processes)),
    "long tail": lambda generator, processes: np.exp(0.05 * generator.exponential(1.0, processes)),
    "one of ten disturbed": lambda generator, processes: np.exp(
        math.log(1.5) * (generator.random(processes) < 0.1) + 0.02 * generator.standard_normal(processes)),
    "two modes, half": two_modes(0.5), "two modes, a third": two_modes(0.3), "two modes, a fifth": two_modes(0.2),
}


def drifting(generator: np.random.Generator, processes: int) -> np.ndarray:
    """Judgements differ by three tenths of what processes differ by, as where the load changes by the minute."""
    return np.exp(0.03 * generator.standard_normal() + 0.1 * generator.standard_normal(processes))


def covered(draw: Draw, processes: int, judgements: int = 400) -> float:
    """How often a judgement's interval holds the time of the next one."""
    generator = np.random.default_rng(20261127)
    found = [intervals.statistics([[value] for value in draw(generator, processes)]) for _ in range(judgements)]
    return float(np.mean([one.ci_low <= next_one.median <= one.ci_high for one, next_one in pairwise(found)]))


@pytest.mark.parametrize("scene", SCENES)
def test_nine_of_ten_judgements_lie_in_the_interval_of_another(scene):
    """With as many processes as there are by default on a CPU; on a GPU where there are no two modes."""
    assert covered(SCENES[scene], TimingOptions().processes) >= 0.88
    if "modes" not in scene:
        assert covered(SCENES[scene], TimingOptions().gpu_processes) >= 0.88


def test_a_machine_that_drifts_is_allowed_for():
    assert covered(drifting, TimingOptions().processes, 4000) >= 0.93


def test_a_single_process_does_not_know_of_two_modes():
    """So the test above can fail: what was stated before, the interval of one process' rounds."""
    generator, draw, inside = np.random.default_rng(3), two_modes(0.5), []
    for _ in range(100):
        one, other = draw(generator, 2)
        stats = intervals.within_process(one * np.exp(0.01 * generator.standard_normal(12)), resamples=200)
        inside.append(stats.ci_low <= other <= stats.ci_high)
    assert np.mean(inside) < 0.6


def test_the_interval_of_one_process_covers_its_own_median():
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        samples = np.exp(0.1 * generator.standard_normal(24)) * 1e-5
        stats = intervals.within_process(samples.tolist(), resamples=400)
        hits += stats.ci_low <= 1e-5 <= stats.ci_high
    assert 0.88 <= hits / 200 <= 0.995


@pytest.mark.parametrize("processes", [3, 5])
def test_equal_contestants_differ_in_a_race_one_time_of_twenty(processes):
    """Whose processes differ by 1 % from one another, whose rounds by 3 %, and who share 20 % from round to round."""
    generator, shown = np.random.default_rng(11), 0
    for _ in range(500):
        shared = np.exp(0.2 * generator.standard_normal((processes, 5)))
        own, other = (shared * np.exp(0.01 * generator.standard_normal((processes, 1))
                                      + 0.03 * generator.standard_normal((processes, 5))) for _contestant in range(2))
        _middle, low, high = intervals.ratio(own.tolist(), other.tolist())
        shown += intervals.outcome(low, high) is not Outcome.NO_DIFFERENCE
    assert 0.02 <= shown / 500 <= 0.09


def test_a_race_shows_a_tenth_and_keeps_the_pairs_of_a_round_together():
    """Both are slower in every other round: their times spread by half, their ratios do not."""
    own = [[1.0, 1.5] * 4] * 3
    middle, low, high = intervals.ratio(own, [[1.1 * seconds for seconds in samples] for samples in own])
    assert (middle, low, high) == (pytest.approx(1.1), pytest.approx(1.1), pytest.approx(1.1))
    assert intervals.outcome(low, high) is Outcome.SLOWER
    assert intervals.outcome(0.98, 0.999) is Outcome.FASTER
    assert intervals.outcome(0.99, 1.001) is Outcome.NO_DIFFERENCE
    for odd in ([], [[1.0]], [[1.0], [1.0, 2.0]], [[], []]):
        with pytest.raises(ValueError, match="no pairs"):
            intervals.ratio(odd, [[1.0], [1.0]])
