# SPDX-License-Identifier: MIT
"""The time of every plan (tile shape and parts of K) of an FP8 GEMM on an NVIDIA GPU.

    python benchmarks/tools/sweep_plans.py fp8_gemm/wgmma_tma [--candidates] [--case GLOB] [--worth 2.5]
        [--output plans.json]

Plans take turns in a new random order in every round. Inputs rotate over more than 2.2 times the L2 cache. A plan
that is wrong on the first inputs is named and left out. measured_plans.py and fit_gemm_plan.py read the file.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import race

from scoring.record import Case

HERE = Path(__file__).resolve().parent
PARTS_OF_K = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
FIELDS = ("m", "n", "tokens_are_rows", "reduce", "pair", "resident", "step", "shared", "tile")     # of WgmmaCost


def plans(builds: Sequence[race.Build], options: argparse.Namespace) -> int:
    """The time of every plan worth a try, in turns: what tools/measured_plans.py and tools/fit_gemm_plan.py read."""
    report = []
    for build in builds:
        path = HERE / "wgmma_candidates.cu" if options.candidates else build.source.path
        forced = race.Build(build.name, replace(build.source, path=path), {}, HERE / "gemm_plans.cu")
        times = []
        for case in race.cases_of(build, options):
            calls = race.rotating(build, case, options.seed)
            times.append(swept(forced, case, calls, options))
            best = sorted(times[-1]["sweep"].items(), key=lambda item: item[1])[:4]
            race.say(f"{case.name} takes {times[-1]['chosen']}, model {times[-1]['modelled']}: "
                     + " ".join(f"{plan} {us:.1f}" for plan, us in best))
            swept_so_far = {"kernel": build.source.name, "instances": instances(forced), "times": times}
            Path(options.output).write_text(json.dumps([*report, swept_so_far]))
        report.append({"kernel": build.source.name, "instances": instances(forced), "times": times})
    return 0


def instances(build: race.Build) -> list[dict[str, int]]:
    """What gemm/plan.h knows of each instance of a build for Hopper, in the table's order; empty for other kernels."""
    values = (ctypes.c_int * len(FIELDS))()
    return [dict(zip(FIELDS, values, strict=True)) for shape in range(build.library.plan_count())
            if build.library.plan_cost(shape, values)]


def swept(
    build: race.Build, case: Case, calls: Sequence[race.Call], options: argparse.Namespace,
) -> dict[str, Any]:
    """Median microseconds of every plan (index of an instance, parts of K) that is right on the first inputs."""
    library = build.library
    library.plan_run.argtypes = [ctypes.c_int, ctypes.c_int, *build.argtypes]
    library.plan_chosen.argtypes = [ctypes.c_int] * 3 + [ctypes.c_size_t, ctypes.c_int]
    library.plan_cycles.argtypes, library.plan_cycles.restype = [ctypes.c_int] * 6, ctypes.c_double
    size = [int(case.params[name]) for name in ("m", "n", "k")]
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    space = build.workspace(case)
    offered = 0 if space is None else space.numel()
    cycles = {(shape, parts): library.plan_cycles(shape, parts, *size, processors)
              for shape in range(library.plan_count()) for parts in PARTS_OF_K if parts <= size[2] // 128}
    graphs = {}
    for plan, expected in cycles.items():
        if expected > options.worth * min(cycles.values()):
            continue
        runs = [build.bind(call, space, functools.partial(library.plan_run, *plan)) for call in calls]
        calls[0].poison()
        try:
            runs[0]()
        except RuntimeError:          # more workspace than the problem gives
            continue
        if wrong := calls[0].wrong():
            race.say(f"WRONG {case.name} plan {plan}: {wrong}")
            continue
        graphs["{}x{}".format(*plan)] = race.capture(runs * max(1, 24 // len(runs)))
    many = len(calls) * max(1, 24 // len(calls))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(options.rounds):
        for name in random.Random(turn).sample(list(graphs), len(graphs)):
            times[name].append(race.replayed(graphs[name]) / many * 1e6)
    chosen = divmod(library.plan_chosen(*size, offered, processors), 256)
    modelled = min(cycles, key=lambda plan: cycles[plan])
    return {"size": size, "chosen": "{}x{}".format(*chosen), "modelled": "{}x{}".format(*modelled),
            "sweep": {name: statistics.median(values) for name, values in times.items()}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", metavar="KERNEL")
    parser.add_argument("--candidates", action="store_true", help="of the longer table of wgmma_candidates.cu")
    parser.add_argument("--case", action="append", metavar="GLOB", help="only cases whose name matches; repeatable")
    parser.add_argument("--shape", action="append", metavar="NAME=VALUE,...", help="this case instead; repeatable")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worth", type=float, default=2.5, metavar="FACTOR",
                        help="only plans that the model expects to take at most so many times the best one's time")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", default="plans.json")
    options = parser.parse_args()
    options.verb, options.problem = "plans", None
    return plans(race.builds_of(options), options)


if __name__ == "__main__":
    sys.exit(main())
