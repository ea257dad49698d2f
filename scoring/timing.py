# SPDX-License-Identifier: MIT
"""What a time is: named, versioned protocols and the statistics of their samples.

``graph_cold/2``  GPU time between two device events around one CUDA-graph replay that holds one call per slot, divided
                  by the number of slots. The slots together exceed twice the last-level cache, so every call finds its
                  inputs cold; every replay works on inputs made after the previous one, and every output is verified.
``event_cold/2``  The same without a graph, for calls that cannot be captured: launch gaps of the host are inside.
``wall_cold/2``   The host's clock around every call of a chain; for CPU kernels.
``modelled/1``    No clock at all: a model of the GPU applied to what an emulated device counted (docs/emulator.md).
                  The clock of the host that emulates says nothing about a kernel and is never shown as a time.

In all but the last the worker's figure counts only as far as the judge's own clock over a commit chain agrees; else the
judge's is the time (``settle``). Version 1 had no chain: the judge's clock bounded whole requests, within 2 ms.

Where memory or time does not allow as many slots as the cache is large, the name says ``_warm`` instead.

Contestants of a case (the kernel and its peers) take turns, round by round, in one process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scoring.model import Stats

GRAPH, EVENT, WALL, MODEL = "graph_cold/2", "event_cold/2", "wall_cold/2", "modelled/1"

MAX_SLOTS = 512              # for the cache's sake: 256 MiB of it and calls of 1 MiB
BATCH_SLOTS = 64             # for the length's sake
HOST_SLOTS = 4               # on a CPU: making and checking inputs takes as long as the call there
CACHE_FACTOR = 2.2           # slots together exceed the last-level cache by this factor
CHAIN_SECONDS = 2.5e-3       # of calls in a chain on a GPU: some 20 µs of jitter are then a small share
CHAIN_LINKS = 12, 64         # at least and at most
LONG_CHAIN, LONG_LINKS = 12e-3, 4        # seconds of calls that are enough, however few; but so many links
CHAIN_BYTES = 8 << 30        # of all its slots: each of them is made and checked anew for every chain
SHORTEST = 1e-9              # seconds; nothing that is called takes less
AGREEMENT_SECONDS, AGREEMENT_SHARE = 2e-6, 0.03      # between a claim and the judge's clock
BATCH_SECONDS = 600e-6       # a replay should take this long, so that the 7 µs of the graph itself weigh 1 %
SWEEP_SECONDS = 2.0          # … and no longer than this, unless two calls do: what is so slow hardly notices the cache


@dataclass(frozen=True)
class TimingOptions:
    """How much to measure: at least ``min_rounds`` and at most ``max_rounds`` rounds; between them stop once the
    confidence interval is narrower than ``precision`` of the median, or after ``seconds`` for the case.
    ``protocol`` ``auto`` takes ``graph_cold/2`` on a GPU where the call can be captured."""

    protocol: str = "auto"
    min_rounds: int = 8
    max_rounds: int = 24
    precision: float = 0.01
    seconds: float = 2.0


def slots_needed(
    bytes_per_slot: int, llc_bytes: int, estimate: float, memory_limit: int, host: bool = False
) -> int:
    """How many slots a cold sweep rotates over; ``estimate`` is the seconds one call takes."""
    for_cache = math.ceil(CACHE_FACTOR * llc_bytes / max(bytes_per_slot, 1))
    for_length = min(BATCH_SLOTS, math.ceil(BATCH_SECONDS / max(estimate, 1e-7)))
    fitting = max(1, memory_limit // max(bytes_per_slot, 1))
    in_time = max(2, math.floor(SWEEP_SECONDS / max(estimate, 1e-7)))
    most = HOST_SLOTS if host else MAX_SLOTS
    return max(1, min(most, max(2, for_cache, for_length), fitting, in_time))


def chain_lengths(
    bytes_per_slot: int, roofline_seconds: float | None, memory_limit: int, host: bool
) -> tuple[int, ...]:
    """How many links a chain may have, longest first; ``roofline_seconds`` None where nobody knows.

    Chosen before the contestant is known, for its overhead must be measured before. On a GPU one length, such that the
    jitter of a request is small against the calls in it; on a host two, for calls that are slow. Every link costs a
    reference, and one of the longest calls a tenth of a second and more: these get fewer links.
    """
    if host:
        return HOST_SLOTS, 2
    likely = 1.5 * (roofline_seconds or 0.0) + 5e-6
    fitting = max(2, min(memory_limit, CHAIN_BYTES) // max(bytes_per_slot, 1))
    least, most = CHAIN_LINKS
    least = max(LONG_LINKS, min(least, math.ceil(LONG_CHAIN / likely)))
    return (min(most, max(least, math.ceil(CHAIN_SECONDS / likely)), fitting),)


def is_cold(slots: int, bytes_per_slot: int, llc_bytes: int) -> bool:
    """Whether a sweep over the slots leaves nothing of a slot in the last-level cache until its next turn."""
    return slots > 1 and slots * bytes_per_slot > llc_bytes


def named(protocol: str, cold: bool) -> str:
    """The protocol's name as records carry it: what was not cold does not say so, and never ranks with what was."""
    return protocol if cold else protocol.replace("_cold/", "_warm/")


def cache_state(slots: int, bytes_per_slot: int, llc_bytes: int) -> str:
    """``cold`` if the slots exceed the last-level cache, else ``warm``, with the figures behind it."""
    total = slots * bytes_per_slot
    word = "cold" if is_cold(slots, bytes_per_slot, llc_bytes) else "warm"
    return f"{word}: {slots} slots, {total / 2**20:.0f} MiB over a {llc_bytes / 2**20:.0f} MiB cache"


def possible(claim: float, wall: float) -> bool:
    """Whether a claimed interval can lie inside a request that took ``wall`` seconds by the judge's clock."""
    return math.isfinite(claim) and SHORTEST <= claim <= wall * 1.02 + 20e-6


def bounded(claim: float, wall: float, slack: float) -> float:
    """The claim where it undercuts ``wall`` by no more than ``slack`` plus a tenth, else ``wall``.

    For machines where no chain can be built: a loose bound for short requests.
    """
    return claim if wall - claim <= slack + 0.1 * wall else wall


def settle(claim: float, bound: float) -> float:
    """The seconds per call that count: the claim if it agrees with the judge's ``bound`` or is slower, else the bound.

    Agreement is 2 µs, or 3 % of the bound if that is more: how well both agree where nobody cheats
    (benchmarks/judge.md). A liar gains no more than that.
    """
    return claim if claim >= bound - max(AGREEMENT_SECONDS, AGREEMENT_SHARE * bound) else bound


def statistics(samples: Sequence[float], resamples: int = 2000) -> Stats:
    """Statistics of seconds per call. The interval is the bootstrap percentile interval of the median at 95 %.

    The resampling is seeded by nothing but its own constant, so the same samples give the same interval. Raises
    ``ValueError`` for no samples or one that is not positive.
    """
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0 or not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ValueError(f"times must be finite and positive: {list(samples)[:5]}")
    generator = np.random.default_rng(20261120)
    picks = generator.integers(0, values.size, (resamples, values.size))
    medians = np.median(values[picks], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
    return Stats(
        runs=int(values.size), median=float(np.median(values)), ci_low=float(low), ci_high=float(high),
        mean=float(values.mean()), std=deviation, err=deviation / math.sqrt(values.size),
        best=float(values.min()), worst=float(values.max()),
    )


def finished(samples: Sequence[float], elapsed: float, options: TimingOptions) -> bool:
    """Whether a case has been measured enough."""
    rounds = len(samples)
    if rounds < min(options.min_rounds, options.max_rounds):
        return elapsed > 4 * options.seconds and rounds >= 3
    if rounds >= options.max_rounds or elapsed > options.seconds:
        return True
    stats = statistics(samples, resamples=400)
    return stats.ci_high - stats.ci_low < options.precision * stats.median


def roofline(
    flops: float, nbytes: float, peak_flops: float | None, peak_bytes: float | None
) -> tuple[float | None, str]:
    """Seconds below which no kernel can be, and what bounds it: ``flop`` or ``bytes``; (None, "") if unknown."""
    bounds = []
    if peak_flops and flops:
        bounds.append((flops / peak_flops, "flop"))
    if peak_bytes and nbytes:
        bounds.append((nbytes / peak_bytes, "bytes"))
    return max(bounds) if bounds else (None, "")
