# SPDX-License-Identifier: MIT
"""Write kernels/cuda/fp8_gemm/wgmma_measured_plans.h: the fastest plan of each product of few tokens that was swept.

    python benchmarks/tools/sweep_plans.py fp8_gemm/wgmma_tma       # writes plans.json
    python benchmarks/tools/measured_plans.py plans.json

Of several sweeps the median of a plan's times counts. Among plans within --margin of the best, the one that is so for
most numbers of tokens of the same weights is taken: fewer distinct plans, chosen less by noise.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "kernels/cuda/fp8_gemm/wgmma_tma.cu"
TARGET = ROOT / "kernels/cuda/fp8_gemm/wgmma_measured_plans.h"
MOST_TOKENS = 128

Size = tuple[int, int, int]

HEAD = """// SPDX-License-Identifier: MIT
// Plans measured on an H200, for wgmma_tma.cu. Written by benchmarks/tools/measured_plans.py; do not edit.
#pragma once

//       tokens,     n,     k, instance, parts of K
using SmallMPlans = MeasuredPlans<
"""


def instances(source: str) -> list[str]:
    """The shipped table's instances as C++ spells them, in order."""
    table = source.split("using Instances", 1)[1].split(";", 1)[0]
    found, depth, start = [], 0, 0
    for match in re.finditer(r"Instance<|<|>", table):
        if match.group() == "Instance<" and depth == 0:
            start, depth = match.end(), 1
        elif depth and match.group() == ">":
            depth -= 1
            if depth == 0:
                name = table[start : match.start()].rsplit(",", 3)[0]
                found.append(" ".join(name.split()))
        elif depth:
            depth += 1
    return found


def sweeps(paths: list[Path]) -> dict[Size, dict[str, float]]:
    """Median microseconds of every plan of every size of few tokens."""
    times: dict[Size, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        for report in json.loads(path.read_text()):
            for row in report.get("times", []):
                if row["size"][0] <= MOST_TOKENS and report["kernel"] == "fp8_gemm/wgmma_tma":
                    for plan, us in row["sweep"].items():
                        times[tuple(row["size"])][plan].append(us)
    return {size: {plan: statistics.median(us) for plan, us in plans.items()} for size, plans in times.items()}


def choose(times: dict[Size, dict[str, float]], margin: float) -> dict[Size, str]:
    chosen = {}
    for size, plans in times.items():
        best = min(plans.values())
        near = {plan for plan, us in plans.items() if us <= best * (1 + margin)}

        def shared(plan: str, size: Size = size) -> int:
            same = [other for other in times if other[1:] == size[1:] and other != size]
            return sum(times[other].get(plan, 1e9) <= min(times[other].values()) * (1 + margin) for other in same)

        chosen[size] = max(near, key=lambda plan: (shared(plan), -plans[plan]))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--margin", type=float, default=0.01)
    options = parser.parse_args()
    names = instances(KERNEL.read_text())
    times = sweeps(options.reports)
    rows = []
    for size, plan in sorted(choose(times, options.margin).items(), key=lambda item: (item[0][1:], item[0])):
        shape, parts = map(int, plan.split("x"))
        us, best = times[size][plan], min(times[size].values())
        text = f"    Measured<{size[0]:3}, {size[1]:5}, {size[2]:5}, {names[shape]}, {parts}>"
        rows.append((text, f"{us:.1f} us" + (f", best {best:.1f}" if us > best else "")))
    lines = [f"{text}{',' if i + 1 < len(rows) else ' >;'}   // {note}" for i, (text, note) in enumerate(rows)]
    TARGET.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"{len(rows)} plans in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
