# SPDX-License-Identifier: MIT
"""Energy, power and clock of calls that run for a second and more each, on an NVIDIA GPU with pynvml.

At the power limit energy per call decides, not cycles, and a race in turns has one clock for all its contestants.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from graphs import capture


class Energy(NamedTuple):
    """Of one contestant, averages over its run."""

    us: float        # per call
    joules: float    # per call
    watts: float
    mhz: float       # of the multiprocessors


def sustained(contestants: dict[str, list[Callable[[], Any]]], seconds: float) -> dict[str, Energy]:
    """Each contestant's graph replayed for so long, the first third of it not counted."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found = {}
    for name, calls in contestants.items():
        graph = capture(calls)
        graph.replay()
        torch.cuda.synchronize()
        begin: Any = torch.cuda.Event(enable_timing=True)
        end: Any = torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        replays = max(1, int(10 / begin.elapsed_time(end)))      # about 10 ms of work behind each wait
        clocks: list[int] = []
        stop = threading.Event()

        def watch(clocks: list[int] = clocks, stop: threading.Event = stop) -> None:
            while not stop.wait(0.02):
                clocks.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))

        def run(until: float, graph: Any = graph, replays: int = replays) -> int:
            done = 0
            fence = [torch.cuda.Event(), torch.cuda.Event()]
            while time.monotonic() < until:
                for _ in range(replays):
                    graph.replay()
                fence[0].record()
                fence[1].synchronize()       # of the batch before this one, so that the GPU never waits
                fence.reverse()
                done += replays
            torch.cuda.synchronize()
            return done

        run(time.monotonic() + seconds / 3)
        watcher = threading.Thread(target=watch)
        watcher.start()
        joules, start = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3, time.monotonic()
        count = run(start + seconds * 2 / 3) * len(calls)
        took = time.monotonic() - start
        joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3 - joules
        stop.set()
        watcher.join()
        found[name] = Energy(took / count * 1e6, joules / count, joules / took, statistics.mean(clocks))
        del graph
    return found
