# SPDX-License-Identifier: MIT
"""What a problem's inputs and its reference of a whole output take: milliseconds, the median of five after one more.

    python benchmarks/tools/reference_cost.py PROBLEM NAME=VALUE,... [...] [--device cpu]

A case has the names of the problem's task.yml, e.g. `mla_decode batch=128,sq=1,hq=16,sk=4096,lens=uniform,causal=0`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import race_cases

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scoring.problem import Problem
from scoring.record import Case

ROOT = Path(__file__).resolve().parents[2]


def milliseconds(call: Callable[[], Any], device: str) -> float:
    times = []
    for _ in range(6):
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("cases", nargs="+", metavar="NAME=VALUE,...")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    problem = Problem(ROOT / "problems" / options.problem)
    for text in options.cases:
        make = partial(problem.generate, Case(race_cases.shape(text)), 1, options.device, "e4m3fn")
        inputs = milliseconds(make, options.device)
        expected = milliseconds(partial(problem.expectations, make()), options.device)
        print(f"{text}: inputs {inputs:.1f} ms, reference {expected:.1f} ms", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
