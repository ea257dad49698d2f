# SPDX-License-Identifier: MIT
"""Write kernels/cuda/fp8_gemm/wgmma_measured_plans.h: plans that a sweep found faster than the model's choice.

    python benchmarks/tools/sweep_plans.py fp8_gemm/wgmma_tma       # writes plans.json; again with --output again.json
    python benchmarks/tools/measured_plans.py plans.json again.json

A product of at most 128 tokens that was swept at least twice gets a row where its plan is --gain faster than the plan
that gemm/plan.h chooses with the constants of the tree. Among plans within --margin of the best, the one that is so for
most numbers of tokens of the same weights is taken: fewer plans, chosen less by noise. A row serves fewer tokens, too,
down to a quarter or to the next smaller number that was swept.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from fit_gemm_plan import Instance, Sweep, constants, merged, picks

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "kernels/cuda/fp8_gemm/wgmma_tma.cu"
TARGET = ROOT / "kernels/cuda/fp8_gemm/wgmma_measured_plans.h"
MOST_TOKENS = 128

Size = tuple[int, int, int]
Times = dict[Size, dict[str, float]]

HEAD = """// SPDX-License-Identifier: MIT
// Plans measured on an H200, for wgmma_tma.cu: those at least {gain:.0f} % faster than what gemm/plan.h chooses.
// Written by benchmarks/tools/measured_plans.py; do not edit.
#pragma once

//  tokens from, to,     n,     k, instance, parts of K      measured, the model's choice
using SmallMPlans = MeasuredPlans<
"""


def instances(source: str) -> list[tuple[str, dict[str, int]]]:
    """The shipped table's instances as C++ spells them, in order, each with its constants."""
    table = source.split("using Instances", 1)[1].split(";", 1)[0]
    found, depth, start = [], 0, 0
    for match in re.finditer(r"Instance<|<|>", table):
        if match.group() == "Instance<" and depth == 0:
            start, depth = match.end(), 1
        elif depth and match.group() == ">":
            depth -= 1
            if depth == 0:
                name, *values = table[start : match.start()].rsplit(",", 3)
                costs = dict(zip(("step", "shared", "tile"), map(int, values), strict=True))
                found.append((" ".join(name.split()), costs))
        elif depth:
            depth += 1
    return found


def choose(times: Times, margin: float) -> dict[Size, str]:
    chosen = {}
    for size, plans in times.items():
        best = min(plans.values())
        near = {plan for plan, us in plans.items() if us <= best * (1 + margin)}

        def shared(plan: str, size: Size = size) -> int:
            same = [other for other in times if other[1:] == size[1:] and other != size]
            return sum(times[other].get(plan, 1e9) <= min(times[other].values()) * (1 + margin) for other in same)

        chosen[size] = max(near, key=lambda plan: (shared(plan), -plans[plan]))
    return chosen


def modelled(known: list[Instance], times: Times) -> dict[Size, str]:
    """The plan of each product that gemm/plan.h chooses, of those that were swept."""
    sweep = Sweep(known, [{"size": size, "sweep": plans} for size, plans in times.items()])
    v = constants(known)
    return dict(zip(times, (sweep.plans[row] for row in picks(sweep, v)), strict=True))


def least(times: Times, size: Size) -> int:
    """The fewest tokens that a product's plan serves."""
    smaller = max((other[0] for other in times if other[1:] == size[1:] and other[0] < size[0]), default=0)
    return max(smaller, size[0] // 4) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--margin", type=float, default=0.01)
    parser.add_argument("--gain", type=float, default=0.04)
    options = parser.parse_args()
    reports = [json.loads(path.read_text())[0] for path in options.reports]
    table = instances(KERNEL.read_text())
    known = [{**one, **costs} for one, (_name, costs) in zip(reports[0]["instances"], table, strict=True)]
    few = [row for row in merged(reports) if row["size"][0] <= MOST_TOKENS and row["sweeps"] > 1]
    times: Times = {(row["size"][0], row["size"][1], row["size"][2]): row["sweep"] for row in few}
    models, rows = modelled(known, times), []
    for size, plan in sorted(choose(times, options.margin).items(), key=lambda item: (item[0][1:], item[0])):
        us, model = times[size][plan], times[size][models[size]]
        if model < us * (1 + options.gain):
            continue
        shape, parts = map(int, plan.split("x"))
        text = (f"    Measured<{least(times, size):3}, {size[0]:3}, {size[1]:5}, {size[2]:5}, "
                f"{table[shape][0]}, {parts}>")
        rows.append((text, f"{us:.2f} us, {model:.2f}"))
    if not rows:
        raise SystemExit("no plan is faster than the model's choice by so much: take the table out of wgmma_tma.cu")
    lines = [f"{text}{',' if i + 1 < len(rows) else ' >;'}   // {note}" for i, (text, note) in enumerate(rows)]
    TARGET.write_text(HEAD.format(gain=100 * options.gain) + "\n".join(lines) + "\n")
    print(f"{len(rows)} of {len(times)} swept products in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
