# SPDX-License-Identifier: MIT
"""``scoring.judge.timing``: which claims are believed, and when enough has been measured."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scoring.judge import timing
from scoring.judge.timing import TimingOptions

SECONDS = st.floats(1e-8, 1e2)


# Which seconds to believe -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("claim", [math.nan, math.inf, -math.inf, 0.0, -1.0, -1e-9, 1e300, 5e-324, 1e-12])
def test_what_is_no_time_is_impossible(claim):
    assert not timing.possible(claim, wall=1e-3)


def test_a_claim_longer_than_its_request_is_impossible():
    assert not timing.possible(1.10, wall=1.0)
    assert not timing.possible(2e-3, wall=1e-3)
    assert timing.possible(1.0, wall=1.0)


def test_without_a_chain_a_claim_within_slack_of_the_wall_is_taken_and_else_the_wall():
    assert timing.bounded(0.95, wall=1.0, slack=0.0) == 0.95
    assert timing.bounded(0.5, wall=1.0, slack=0.0) == 1.0
    assert timing.bounded(0.5, wall=1.0, slack=0.6) == 0.5


@pytest.mark.parametrize(("claim", "bound", "seconds"), [
    (50e-6, 40e-6, 50e-6),          # slower than the bound: it is the more exact one
    (40e-6, 40e-6, 40e-6),
    (39e-6, 40e-6, 39e-6),          # within 2 µs
    (37e-6, 40e-6, 40e-6),
    (98e-6, 100e-6, 98e-6),
    (97.5e-6, 100e-6, 97.5e-6),     # within 3 %
    (96e-6, 100e-6, 100e-6),
    (1e-9, 100e-6, 100e-6),
    (1e-9, 1e-6, 1e-9),             # what is below 2 µs the judge cannot tell from nothing
])
def test_which_seconds_count(claim, bound, seconds):
    assert timing.settle(claim, bound) == seconds


@given(SECONDS, SECONDS)
def test_a_lie_buys_no_more_than_the_agreement(claim, bound):
    settled = timing.settle(claim, bound)
    assert settled in (claim, bound)
    assert settled >= min(bound, bound - max(2e-6, 0.03 * bound)) - 1e-15


# How many slots, and whether they are cold ---------------------------------------------------------------------------

SIZES = st.integers(1, 1 << 34)


@given(SIZES, st.integers(0, 1 << 29), st.floats(0, 100), st.integers(0, 1 << 37))
def test_slots_fit_into_memory_and_bounds(per_slot, llc, estimate, memory):
    slots = timing.slots_needed(per_slot, llc, estimate, memory)
    assert 1 <= slots <= timing.MAX_SLOTS
    assert slots == 1 or slots * per_slot <= memory


@given(SIZES, st.integers(0, 1 << 29), st.floats(1e-3, 100))
def test_a_sweep_of_slow_calls_ends_in_time(per_slot, llc, estimate):
    slots = timing.slots_needed(per_slot, llc, estimate, 1 << 40)
    assert slots >= 2
    assert slots == 2 or slots * estimate <= timing.SWEEP_SECONDS


@given(SIZES, st.integers(1, 1 << 29), st.floats(1e-7, 2e-3))
def test_slots_exceed_the_cache_where_memory_allows(per_slot, llc, estimate):
    slots = timing.slots_needed(per_slot, llc, estimate, 1 << 40)
    assume(slots < timing.MAX_SLOTS)
    assert slots >= 2
    assert slots * per_slot >= timing.CACHE_FACTOR * llc
    assert slots >= timing.BATCH_SLOTS or slots * estimate >= timing.BATCH_SECONDS * (1 - 1e-9)
    assert timing.cache_state(slots, per_slot, llc).startswith("cold")


@pytest.mark.parametrize("estimate", [math.inf, 0.0, -1.0, 1e-300])
def test_a_senseless_estimate_gives_a_number_of_slots_all_the_same(estimate):
    assert 1 <= timing.slots_needed(1 << 20, 1 << 25, estimate, 1 << 30) <= timing.MAX_SLOTS


def test_cold_is_more_than_the_whole_cache_and_slots_are_made_for_2_2_of_it():
    assert not timing.is_cold(8, 1 << 20, 8 << 20)
    assert timing.is_cold(9, 1 << 20, 8 << 20)
    assert not timing.is_cold(1, 1 << 40, 8 << 20)           # the same slot again
    assert timing.slots_needed(1 << 20, 64 << 20, 1e-3, 1 << 40) == 141


def test_the_cache_state_is_what_it_is():
    assert timing.cache_state(1, 1 << 40, 1 << 20).startswith("warm")
    assert timing.cache_state(4, 1 << 20, 8 << 20) == "warm: 4 slots, 4 MiB over a 8 MiB cache"
    assert timing.cache_state(64, 1 << 20, 8 << 20) == "cold: 64 slots, 64 MiB over a 8 MiB cache"


# When to stop --------------------------------------------------------------------------------------------------------

OPTIONS = TimingOptions(min_rounds=4, max_rounds=10, precision=0.05, seconds=2.0)
NOISY = [1.0, 2.0, 3.0, 1.5, 2.5, 1.2, 2.8, 3.3, 0.7, 1.9]


def test_not_before_the_fewest_rounds():
    assert not any(timing.finished([1.0] * n, 0.1, OPTIONS) for n in range(4))
    assert timing.finished([1.0] * 4, 0.1, OPTIONS)


def test_not_after_the_most_rounds():
    assert not timing.finished(NOISY[:9], 0.1, OPTIONS)
    assert timing.finished(NOISY, 0.1, OPTIONS)


def test_not_after_the_time_is_over():
    assert not timing.finished(NOISY[:5], 1.9, OPTIONS)
    assert timing.finished(NOISY[:5], 2.1, OPTIONS)


def test_a_case_that_is_very_slow_ends_after_three_rounds():
    assert not timing.finished([5.0] * 2, 100.0, OPTIONS)
    assert not timing.finished([5.0] * 3, 7.9, OPTIONS)
    assert timing.finished([5.0] * 3, 8.1, OPTIONS)


@given(st.lists(st.floats(1e-6, 1.0), max_size=12), st.floats(0, 100), st.integers(1, 12), st.integers(1, 12))
def test_every_measurement_ends(samples, elapsed, fewest, most):
    options = TimingOptions(min_rounds=fewest, max_rounds=most, precision=0.01, seconds=1.0)
    if len(samples) >= most or (len(samples) >= 3 and elapsed > 4.0):
        assert timing.finished(samples, elapsed, options)


@given(st.integers(1, 20), st.integers(1, 12), st.integers(0, 12))
def test_processes_share_rounds_and_time(processes, fewest, more):
    options = TimingOptions(min_rounds=fewest, max_rounds=fewest + more, seconds=2.0)
    share = options.share(processes)
    assert 1 <= share.min_rounds <= share.max_rounds
    assert 1 <= share.slow_rounds <= 3
    assert fewest <= processes * share.min_rounds < fewest + processes
    assert processes * share.seconds == pytest.approx(2.0)
    assert options.share(1) == options


def test_precision_ends_a_quiet_case_and_keeps_a_noisy_one_going():
    assert timing.finished([1.0, 1.001, 0.999, 1.0], 0.1, OPTIONS)
    assert not timing.finished([1.0, 1.5, 0.5, 1.0], 0.1, OPTIONS)
    assert not timing.finished([1.0, 1.1, 0.9, 1.0], 0.1, OPTIONS)


# The roofline --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("work", "peaks", "expected"), [
    ((2e12, 1e9), (1e12, 1e12), (2.0, "flop")),
    ((1e9, 3e12), (1e12, 1e12), (3.0, "bytes")),
    ((1e12, 1e12), (None, 1e12), (1.0, "bytes")),
    ((1e12, 1e12), (1e12, None), (1.0, "flop")),
    ((1e12, 1e12), (None, None), (None, "")),
    ((0.0, 0.0), (1e12, 1e12), (None, "")),
])
def test_roofline(work, peaks, expected):
    assert timing.roofline(*work, *peaks) == expected


@given(st.floats(1, 1e15), st.floats(1, 1e12))
def test_a_faster_machine_has_a_lower_roofline(flops, nbytes):
    floors = [timing.roofline(flops, nbytes, peak, peak)[0] for peak in (1e11, 1e12, 1e13)]
    assert all(slow > fast for slow, fast in pairwise(floors))


def test_protocols_are_named_and_versioned():
    for name in (timing.GRAPH, timing.EVENT, timing.WALL):
        assert timing.named(name, cold=True) == name
        assert timing.named(name, cold=False) == name.replace("cold", "warm") != name
        assert name.rpartition("/")[2].isdigit()


def test_the_cache_decides_beyond_the_length() -> None:
    """The seeds' shape on a GPU with 256 MiB of cache: 2 MiB a call needs more slots than 64."""
    slots = timing.slots_needed(2 << 20, 256 << 20, 8e-6, 1 << 40)
    assert timing.is_cold(slots, 2 << 20, 256 << 20)
    assert not timing.is_cold(64, 2 << 20, 256 << 20)
    assert timing.slots_needed(2 << 20, 256 << 20, 8e-6, 1 << 40, host=True) == timing.HOST_SLOTS


GIB = 1 << 30


@pytest.mark.parametrize(("per_slot", "floor", "memory", "links"), [
    (1 << 20, 1e-6, 100 * GIB, 64), (1 << 20, None, 100 * GIB, 64),
    (1 << 20, 100e-6, 100 * GIB, 17),            # 2.5 ms of calls
    (1 << 20, 300e-6, 100 * GIB, 12), (1 << 20, 1e-3, 100 * GIB, 8), (1 << 20, 10e-3, 100 * GIB, 4),
    (GIB, 1e-6, 100 * GIB, 8), (GIB, 1e-6, 4 * GIB, 4), (16 * GIB, 1e-6, 100 * GIB, 2),
])
def test_links_of_a_chain(per_slot: int, floor: float | None, memory: int, links: int) -> None:
    assert timing.chain_lengths(per_slot, floor, memory, host=False) == (links,)
    assert timing.chain_lengths(per_slot, floor, memory, host=True) == (timing.HOST_SLOTS, 2)
