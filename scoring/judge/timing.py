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
``TimingOptions.warm`` adds the time of calls that repeat one slot: a figure beside the time, which never ranks.

Contestants of a case (the kernel, its peers and rivals) share a process, in a new random order in every round. They
are timed in several fresh processes, for what a process draws at its start (where its memory lies, and whether the
allocator keeps it) can change a time more than all its rounds differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scoring.judge.intervals import within_process

GRAPH, EVENT, WALL, MODEL = "graph_cold/2", "event_cold/2", "wall_cold/2", "modelled/1"
AskedProtocol = Literal["auto", "graph_cold/2", "event_cold/2"]

MAX_SLOTS = 512              # for the cache's sake: 256 MiB of it and calls of 1 MiB
BATCH_SLOTS = 64             # for the length's sake
HOST_SLOTS = 4               # on a CPU: making and checking inputs takes as long as the call there
CACHE_FACTOR = 2.2           # slots together exceed the last-level cache by this factor
CHAIN_SECONDS = 2.5e-3       # of calls in a chain on a GPU: some 20 µs of jitter are then a small share
CHAIN_LINKS = 12, 64         # at least and at most
LONG_CHAIN, LONG_LINKS = 12e-3, 4        # seconds of calls that are enough, however few; but so many links
CHAIN_BYTES = 8 << 30        # of all its slots: each of them is made and checked anew for every chain
WARM_CALLS, WARM_TURNS = 16, 5           # calls of a slot in a row, and how often per process
SHORTEST = 1e-9              # seconds; nothing that is called takes less
AGREEMENT_SECONDS, AGREEMENT_SHARE = 2e-6, 0.03      # between a claim and the judge's clock
BATCH_SECONDS = 600e-6       # a replay should take this long, so that the 7 µs of the graph itself weigh 1 %
SWEEP_SECONDS = 2.0          # … and no longer than this, unless two calls do: what is so slow hardly notices the cache


@dataclass(frozen=True)
class TimingOptions:
    """How much to measure: at least ``min_rounds`` and at most ``max_rounds`` rounds; between them stop once the
    confidence interval is narrower than ``precision`` of the median, or after ``seconds`` for the case.
    ``protocol`` ``auto`` takes ``graph_cold/2`` on a GPU where the call can be captured.

    Rounds and seconds are shared out over ``processes`` fresh processes, ``gpu_processes`` on a GPU. A process on a GPU
    differs less, and starting it takes seconds: torch, the device's context, and whatever the kernel compiles then.
    """

    protocol: AskedProtocol = "auto"
    processes: int = 6
    gpu_processes: int = 3
    min_rounds: int = 8
    max_rounds: int = 24
    precision: float = 0.01
    seconds: float = 2.0
    calls: int = 0               # single calls to time besides
    warm: bool = False           # also time calls that repeat one slot
    slow_rounds: int = 3         # so many are enough where they take four times the seconds

    def share(self, processes: int) -> TimingOptions:
        """How much each of so many processes measures."""
        return replace(
            self, min_rounds=math.ceil(self.min_rounds / processes), max_rounds=math.ceil(self.max_rounds / processes),
            slow_rounds=math.ceil(self.slow_rounds / processes), seconds=self.seconds / processes)


def slots_needed(
    bytes_per_slot: int, llc_bytes: int, estimate: float, memory_limit: int, host: bool = False,
    input_bytes: int | None = None,
) -> int:
    """How many slots a cold sweep rotates over; ``estimate`` is the seconds one call takes.

    A race counts ``input_bytes`` of a slot alone against the cache.
    """
    cached = bytes_per_slot if input_bytes is None else input_bytes
    for_cache = math.ceil(CACHE_FACTOR * llc_bytes / max(cached, 1))
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


def racing_cold(slots: int, input_bytes: int, llc_bytes: int) -> bool:
    """Whether the inputs of all slots exceed the last-level cache by ``CACHE_FACTOR``, as a race wants."""
    return slots > 1 and slots * input_bytes >= CACHE_FACTOR * llc_bytes


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


def finished(
    samples: Sequence[float], elapsed: float, options: TimingOptions, racing: bool = False
) -> bool:
    """Whether a case has been measured enough; in a race with others only the last round or the time ends it."""
    rounds = len(samples)
    if rounds < min(options.min_rounds, options.max_rounds):
        return elapsed > 4 * options.seconds and rounds >= options.slow_rounds
    if rounds >= options.max_rounds or elapsed > options.seconds:
        return True
    if racing:
        return False
    stats = within_process(samples, resamples=400)
    return stats.ci_high - stats.ci_low < options.precision * stats.median


def beats_hardware(seconds: float, floor: float | None) -> str:
    """What is wrong with a time below ``floor``, the roofline's seconds; "" for any other."""
    if floor is None or seconds >= floor:
        return ""
    return f"{seconds * 1e6:.2f} µs is faster than the hardware allows ({floor * 1e6:.2f} µs)"


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
