# SPDX-License-Identifier: MIT
"""Statistics of times: what the rounds of one process say, and what several processes say together. Pure functions.

A process draws its circumstances once, at its start. Its rounds then differ little from one another, and an interval of
them says nothing of the next process. So the interval of a time comes from the medians of several processes alone:

* The time is the median of the processes' medians.
* The interval is that of a further judgement: the median that as many new processes give lies in it 95 times of 100.
  It is m ± t·s·sqrt((1 + e)/P + 2d²) in logarithms, m and s mean and deviation of the P medians, t Student's quantile,
  made wide enough for the median itself. 1 stands for the mean of this judgement and e for the next one's median, which
  varies more than a mean does; d for what differs between judgements alone, as the machine's other load does.

A bootstrap of so few processes covers far too little (docs/timing.md has figures of both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, quantiles, stdev

import torch

from scoring.record import Outcome, Stats

MOST_PROCESSES = 20
# Student's t at 97.5 % for 1, 2, … degrees of freedom: 95 % of the distribution are within ± of it.
T_95 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
        2.1314, 2.1199, 2.1098, 2.1009, 2.0930)
# Variance of the median of 2, 3, … 20 normal values, in variances of their mean.
MEDIAN = (1.0000, 1.3460, 1.1928, 1.4342, 1.2885, 1.4731, 1.3455, 1.4949, 1.3834, 1.5088, 1.4104, 1.5184, 1.4307,
          1.5254, 1.4464, 1.5308, 1.4591, 1.5350, 1.4694)
# What differs between judgements and not within one, in deviations of a process. Chosen: two tables of ten judgements
# say some 0.4, and cannot tell 0.3 from 0.5 (benchmarks/judge.md).
DRIFT = 0.3


def within_process(samples: Sequence[float], resamples: int = 2000) -> Stats:
    """Statistics of seconds per call in one process. The interval is the bootstrap percentile interval of the median at
    95 %: it says how well this process was measured, and nothing about another.

    The resampling is seeded by nothing but its own constant, so the same samples give the same interval. Raises
    ``ValueError`` for no samples or one that is not positive.
    """
    values = _positive(samples)
    low, high = _bootstrap(values, resamples, seed=20261120)
    return _described(values, median(values), low, high, ())


def statistics(processes: Sequence[Sequence[float]]) -> Stats:
    """Statistics of seconds per call, the samples of each process by themselves; of a single one ``within_process``.

    Raises ``ValueError`` for no samples or one that is not positive.
    """
    if len(processes) == 1:
        return within_process(processes[0])
    values = _positive([seconds for samples in processes for seconds in samples])
    medians = [median(_positive(samples)) for samples in processes]
    middle = median(medians)
    low, high = _student(medians, repeated=True)
    return _described(values, middle, min(low, middle), max(high, middle), medians)


def ratio(own: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """How many times as long ``other`` takes as ``own``, and the interval of that at 95 %; samples of each process.

    Ratios are of the two samples of a round, so that what both share in a round (clock, temperature) and in a process
    (its memory) cancels. The median of the processes' median ratios, with Student's interval of their mean; of a single
    process the bootstrap interval over rounds. Raises ``ValueError`` for samples that are no pairs.
    """
    if not own or list(map(len, own)) != list(map(len, other)) or not all(own):
        raise ValueError(f"{list(map(len, own))} and {list(map(len, other))} samples are no pairs")
    ratios = [[b / a for a, b in zip(ours, theirs, strict=True)] for ours, theirs in zip(own, other, strict=True)]
    if len(ratios) == 1:
        low, high = _bootstrap(ratios[0], 2000, seed=20261123)
        return median(ratios[0]), low, high
    medians = [median(each) for each in ratios]
    middle = median(medians)
    low, high = _student(medians, repeated=False)
    return middle, min(low, middle), max(high, middle)


def outcome(low: float, high: float) -> Outcome:
    """What the interval of a rival's time over the kernel's shows."""
    return Outcome.SLOWER if low > 1.0 else Outcome.FASTER if high < 1.0 else Outcome.NO_DIFFERENCE


def _student(medians: Sequence[float], repeated: bool) -> tuple[float, float]:
    """Student's interval at 95 % of the mean logarithm of the processes' medians, at least two; ``repeated``: for the
    median of as many other processes."""
    logs = [math.log(median) for median in medians]
    count = len(logs)
    mean = math.fsum(logs) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in logs) / (count - 1))
    row = min(count - 1, len(T_95)) - 1
    variance = (1 + MEDIAN[row]) / count + 2 * DRIFT**2 if repeated else 1 / count
    half = T_95[row] * deviation * math.sqrt(variance)
    return math.exp(mean - half), math.exp(mean + half)


def _bootstrap(values: Sequence[float], resamples: int, seed: int) -> tuple[float, float]:
    """The percentile interval at 95 % of the medians of samples drawn with replacement. By torch: a machine that runs a
    bundle need not have numpy."""
    given = torch.tensor(list(values), dtype=torch.float64)
    picks = torch.randint(0, len(given), (resamples, len(given)), generator=torch.Generator().manual_seed(seed))
    medians = torch.quantile(given[picks], 0.5, dim=1)
    low, high = torch.quantile(medians, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(low), float(high)


def _positive(samples: Sequence[float]) -> list[float]:
    values = [float(seconds) for seconds in samples]
    if not values or not all(math.isfinite(seconds) and seconds > 0 for seconds in values):
        raise ValueError(f"times must be finite and positive: {values[:5]}")
    return values


def _described(values: Sequence[float], middle: float, low: float, high: float, medians: Sequence[float]) -> Stats:
    deviation = stdev(values) if len(values) > 1 else 0.0
    tenths = quantiles(values, n=10, method="inclusive") if len(values) > 1 else list(values)
    return Stats(
        runs=len(values), median=middle, ci_low=low, ci_high=high, mean=fmean(values), std=deviation,
        err=deviation / math.sqrt(len(values)), best=min(values), worst=max(values), p10=tenths[0], p90=tenths[-1],
        samples=tuple(values), processes=tuple(medians),
    )
