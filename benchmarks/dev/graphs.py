# SPDX-License-Identifier: MIT
"""CUDA graphs of many calls, for the races of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def capture(calls: Sequence[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """One graph of all calls, replayed once. ``ValueError`` if the first ones say a status other than 0.

    Not through torch.cuda.graph: its garbage collection takes longer than our timing.
    """
    for call in calls[:2]:
        status = call()
        if isinstance(status, int) and status != 0:
            raise ValueError(f"status {status}")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for call in calls:
            call()
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return graph
