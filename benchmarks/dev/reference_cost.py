# SPDX-License-Identifier: MIT
"""What a problem's inputs and its reference of a whole output take: milliseconds, the median of five after one more.

    python benchmarks/dev/reference_cost.py PROBLEM NAME=VALUE,... [...] [--device cpu]

A case has the names of the problem's task.yml, e.g. `mla_decode batch=128,sq=1,hq=16,sk=4096,lens=uniform,causal=0`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import attention_harness as lib


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
    lib.DEVICE = options.device
    problem = lib.Problem(options.problem)
    for text in options.cases:
        case = {name: int(value) if value.isdigit() else value
                for name, _, value in (part.partition("=") for part in text.split(","))}
        data = problem.data(case, seed=1)
        inputs = milliseconds(lambda case=case: problem.data(case, seed=1), options.device)
        expected = milliseconds(lambda data=data: problem.reference.expected(data), options.device)
        lib.say(f"{text}: inputs {inputs:.1f} ms, reference {expected:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
