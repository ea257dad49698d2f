# SPDX-License-Identifier: MIT
"""Fit the constants of kernels/cuda/gemm/plan.h and of wgmma_tma.cu's table to a sweep.

    python benchmarks/tools/sweep_plans.py fp8_gemm/wgmma_tma                  # writes plans.json
    python benchmarks/tools/fit_gemm_plan.py plans.json [more.json] [--folds 5]

Prints the constants, and for each swept product the plan that the model picks and what it loses to the best one: with
the constants as they are, with fitted ones, and with constants fitted to the other products alone (``--folds``; a
product belongs to the fold of its weights). That last loss is what a shape can expect that nobody swept.

Needs numpy. The model is the one that gemm/plan.h states. Times count by their nearness to the product's best one, each
product has a free factor (clocks fall under long products, which no choice depends on), and after each round products
with a wrong pick count more: choices have to be right, not times. Constants start from those of the sweep's build.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np

_PLAN = (Path(__file__).resolve().parents[2] / "kernels/cuda/gemm/plan.h").read_text()
PLAN = {name: float(value) for name, value in re.findall(r"^constexpr double k(\w+) = ([\d.]+);", _PLAN, re.MULTILINE)}
PROCESSORS, MHZ = 132, 1980.0
AT_ONCE = (132, 66, 36, 28, 22, 17, 14, 14)
SHARED = 5         # constants of plan.h that all instances share
PARTS = (1, 2, 3, 4, 5, 8)
MOST_ROUNDS = 4    # of an instance that reduces, with K in one part
ROUNDS = 40

Instance = dict[str, int]


def merged(reports: list[dict]) -> list[dict]:
    """One row per product: means of each plan's times over its sweeps, and how many ``sweeps`` there were.

    Clocks differ from sweep to sweep, so that later times are scaled by the plans that they share with the first.
    """
    rows: dict[tuple[int, ...], dict] = {}
    for row in (row for report in reports for row in report["times"]):
        known = rows.setdefault(tuple(row["size"]), {"size": row["size"], "times": {}, "sweeps": 0})
        ratios = [us / known["times"][plan][0] for plan, us in row["sweep"].items() if plan in known["times"]]
        scale = median(ratios) if ratios else 1.0
        known["sweeps"] += 1
        for plan, us in row["sweep"].items():
            known["times"].setdefault(plan, []).append(us / scale)
    return [{"size": row["size"], "sweeps": row["sweeps"],
             "sweep": {plan: geometric_mean(times) for plan, times in row["times"].items()}} for row in rows.values()]


class Sweep:
    """Times of plans that the model may pick, and what it needs of each. ``rows`` are a sweep's ``times``."""

    def __init__(self, instances: list[Instance], rows: list[dict]):
        self.instances, self.rows = instances, rows
        found, self.plans = [], []
        for number, row in enumerate(rows):
            for name, us in row["sweep"].items():
                which, parts = map(int, name.split("x"))
                values = features(instances[which], parts, *row["size"])
                if instances[which]["reduce"] and parts == 1 and values[0] > MOST_ROUNDS:
                    continue
                found.append((number, which, us, *values))
                self.plans.append(name)
        table = np.array(found)
        self.number, self.which = table[:, 0].astype(int), table[:, 1].astype(int)
        self.us = table[:, 2]
        self.rounds, self.blocks, self.share, self.parts, self.together = table[:, 3:8].T
        self.bytes, self.out, self.lone = table[:, 8:].T
        self.best = np.array([min(row["sweep"].values()) for row in rows])
        self.near = np.exp((1 - self.us / self.best[self.number]) / 0.06) + 0.01


def features(instance: Instance, parts: int, m: int, n: int, k: int) -> tuple[float, ...]:
    """Rounds, K blocks, share of the further residents, parts, residents, bytes, last sums, lone pair's cycles."""
    pair, resident = instance["pair"], instance["resident"]
    rows, columns = (m, n) if instance["tokens_are_rows"] else (n, m)
    tiles = -(-rows // instance["m"]) * -(-columns // (instance["n"] * pair))
    layer = AT_ONCE[parts - 1] if instance["reduce"] else PROCESSORS // pair
    together = min(resident, -(-tiles // layer))
    rounds = -(-tiles // (layer * resident))
    reads = 1 if instance["tokens_are_rows"] else -(-columns // instance["n"])
    blocks = tiles * (parts if instance["reduce"] else pair)
    uneven = -(-blocks // PROCESSORS) * PROCESSORS / blocks if together > 1 else 1.0
    return (
        rounds, -(-(k // 128) // parts), (together - 1) / max(1, resident - 1), parts, together,
        (m * k + n * k * reads + 2 * m * n) * uneven, 0 if instance["reduce"] else instance["m"] * instance["n"],
        PLAN["LonePairCycles"] if pair == 2 and rounds == 1 else 0,    # set by hand, not fitted
    )


def constants(instances: list[Instance]) -> np.ndarray:
    """Launch us, us per MB, meeting, further part, out per 1000 sums; then all steps, steps together and tiles."""
    shared = (PLAN["LaunchCycles"] / MHZ, 1e6 / MHZ / PLAN["MemoryBytesPerCycle"], PLAN["MeetingCycles"],
              PLAN["SplitCycles"], 1000 * PLAN["OutCyclesPerSum"])
    return np.array([*shared, *(float(one[name]) for name in ("step", "shared", "tile") for one in instances)])


def predict(sweep: Sweep, v: np.ndarray) -> np.ndarray:
    """Microseconds of each plan."""
    launch, per_megabyte, meeting, part, out = v[: SHARED]
    count = len(sweep.instances)
    step, shared, tile = v[SHARED : SHARED + 3 * count].reshape(3, count)[:, sweep.which]
    step = step + (shared - step) * sweep.share
    meet = np.where(sweep.parts > 1, meeting + part * (sweep.parts - 1) * sweep.together, 0)
    work = (sweep.rounds * (sweep.blocks * step + tile + meet) + sweep.lone) / MHZ
    memory = sweep.bytes * per_megabyte * 1e-6
    return launch + (work**4 + memory**4) ** 0.25 + out * sweep.out / 1e3 / MHZ


def residuals(sweep: Sweep, v: np.ndarray, weight: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Errors of the times, and a weak pull to where the constants came from: an instance may have few times."""
    factors = v[len(start) :]
    errors = (np.log(predict(sweep, v) / sweep.us) + factors[sweep.number]) * weight**0.5
    return np.concatenate([errors, factors / 2, (v[: len(start)] - start) / (2 * start)])


def minimise(sweep: Sweep, v: np.ndarray, weight: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Levenberg-Marquardt with numeric derivatives; constants stay positive."""
    damping, scale = 1e-2, np.concatenate([0.2 * start, np.full(len(v) - len(start), 0.1)])
    for _ in range(30):
        now = residuals(sweep, v, weight, start)
        nudged = v + np.diag(scale * 1e-4)
        slope = np.stack([(residuals(sweep, w, weight, start) - now) / 1e-4 for w in nudged], axis=1)
        while damping < 1e6:
            step = np.linalg.solve(slope.T @ slope + damping * np.eye(len(v)), -slope.T @ now) * scale
            trial = v + step
            trial[: len(start)] = np.maximum(trial[: len(start)], 0.01)
            after = np.sum(residuals(sweep, trial, weight, start) ** 2)
            if after < now @ now:
                v, damping = trial, max(damping / 3, 1e-6)
                break
            damping *= 4
        else:
            break
        if after > 0.9999 * (now @ now):
            break
    return v


def picks(sweep: Sweep, v: np.ndarray) -> list[int]:
    predicted = predict(sweep, v)
    rows = [np.flatnonzero(sweep.number == number) for number in range(len(sweep.rows))]
    return [int(row[np.argmin(predicted[row])]) for row in rows]


def losses(sweep: Sweep, v: np.ndarray) -> np.ndarray:
    """What each product loses by the model's pick, as a share of its best time."""
    return sweep.us[picks(sweep, v)] / sweep.best - 1


def fit(sweep: Sweep) -> np.ndarray:
    """Constants whose picks lose least."""
    start = constants(sweep.instances)
    v = np.concatenate([start, np.zeros(len(sweep.rows))])
    boost = np.ones(len(sweep.us))
    kept, least = v, np.inf
    for _ in range(ROUNDS):
        lost = losses(sweep, v)
        if lost.mean() + lost.max() / 10 < least:
            kept, least = v, lost.mean() + lost.max() / 10
        for number, row in enumerate(picks(sweep, v)):
            if lost[number] > 0.012:
                boost[row] += max(1.0, 0.5 / sweep.near[row])
                mine = np.flatnonzero(sweep.number == number)
                boost[mine[np.argmin(sweep.us[mine])]] += 1
        v = minimise(sweep, v, sweep.near * boost, start)
    return kept


def held_out(instances: list[Instance], rows: list[dict], folds: int) -> np.ndarray:
    """What each product loses with constants fitted to products of other weights."""
    weights = sorted({tuple(row["size"][1:]) for row in rows})
    lost = np.zeros(len(rows))
    for fold in range(folds):
        mine = [number for number, row in enumerate(rows) if weights.index(tuple(row["size"][1:])) % folds == fold]
        others = [row for number, row in enumerate(rows) if number not in mine]
        lost[mine] = losses(Sweep(instances, [rows[number] for number in mine]), fit(Sweep(instances, others)))
    return lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path, help="plans.json of sweeps of the same kernel")
    parser.add_argument("--folds", type=int, default=0, help="parts to leave out of the fit in turn; 0: none")
    options = parser.parse_args()
    reports = [json.loads(path.read_text())[0] for path in options.reports]
    instances = reports[0]["instances"]
    sweep = Sweep(instances, merged(reports))
    v = fit(sweep)
    launch, per_megabyte, meeting, part, out = v[: SHARED]
    print(f"launch {launch * MHZ:.0f} cycles, {1e6 / MHZ / per_megabyte:.0f} bytes per cycle, meeting {meeting:.0f}, "
          f"part {part:.0f}, out {out / 1000:.4f}")
    fitted = v[SHARED : SHARED + 3 * len(instances)].reshape(3, len(instances)).T
    for index, (one, (step, shared, tile)) in enumerate(zip(instances, fitted, strict=True)):
        print(f"{index:3} {one['m']:4}x{one['n']:<4} alone {step:5.0f} all {shared:5.0f} tile {tile:5.0f}   was "
              f"{one['step']:5} {one['shared']:5} {one['tile']:5}")
    columns = {"as it is": losses(sweep, constants(instances)), "fitted": losses(sweep, v)}
    if options.folds:
        columns["held out"] = held_out(instances, sweep.rows, options.folds)
    for number, row in enumerate(picks(sweep, v)):
        size = "x".join(map(str, sweep.rows[number]["size"]))
        print(f"{size:18} best {sweep.best[number]:7.1f} us, picks {sweep.plans[row]:5} "
              + "  ".join(f"{name} {100 * lost[number]:+5.1f} %" for name, lost in columns.items()))
    for name, lost in columns.items():
        print(f"{name}: lost in the mean {100 * lost.mean():.2f} %, at most {100 * lost.max():.1f} %")


if __name__ == "__main__":
    main()
