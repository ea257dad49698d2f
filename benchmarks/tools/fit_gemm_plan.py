# SPDX-License-Identifier: MIT
"""Fit the constants of kernels/cuda/gemm/plan.h and of wgmma_tma.cu's table to a sweep.

    python benchmarks/tools/sweep_plans.py fp8_gemm/wgmma_tma --candidates     # writes plans.json
    python benchmarks/tools/fit_gemm_plan.py plans.json [--shipped another.json]

``--shipped`` adds a sweep of the same kernel without --candidates: two times of one plan say what is noise.

Prints the constants, and for each swept product the plan the model picks and what it loses to the best candidate.
Needs numpy. The model is the one wgmma_plan.h states; times count by their nearness to the product's best one, each
product has a free factor (clocks fall under long products, which no choice depends on), and after each round products
with a wrong pick count more: choices have to be right, not times.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PROCESSORS, MHZ = 132, 1980.0
AT_ONCE = (132, 66, 36, 28, 22, 17, 14, 14)
PARTS = (1, 2, 3, 4, 5, 8)
TOGETHER = 5   # constants that all instances share
LONE_PAIR = 2000   # cycles of a pair with one tile each; set by hand, not fitted
ROUNDS = 25


@dataclass(frozen=True)
class Instance:
    """A shipped instance: its index in wgmma_candidates.cu, tile, and what else the model sees."""

    index: int
    m: int
    n: int
    tokens_are_rows: bool = True
    exchange: bool = False
    pair: int = 1
    resident: int = 1


SHIPPED = (
    Instance(41, 64, 16, False, True), Instance(42, 64, 16, False, True, resident=2),
    Instance(43, 64, 32, exchange=True), Instance(44, 64, 64, exchange=True),
    Instance(45, 64, 64, exchange=True, resident=2), Instance(46, 128, 64, exchange=True),
    Instance(54, 128, 80, exchange=True), Instance(27, 128, 96, exchange=True), Instance(28, 128, 128, exchange=True),
    Instance(47, 64, 64), Instance(48, 64, 96), Instance(61, 128, 48), Instance(49, 128, 64), Instance(51, 128, 80),
    Instance(2, 128, 96), Instance(7, 128, 128), Instance(5, 128, 128), Instance(11, 128, 160),
    Instance(12, 128, 160, pair=2), Instance(14, 128, 192), Instance(23, 192, 128, pair=2),
    Instance(20, 256, 128, pair=2), Instance(50, 192, 144, pair=2),
)
COUNT = len(SHIPPED)


class Sweep:
    """All times of shipped instances, and what the model needs of each."""

    def __init__(self, report: dict, shipped: dict | None):
        times = [(row, [instance.index for instance in SHIPPED]) for row in report["times"]]
        times += [(row, list(range(COUNT))) for row in (shipped or {"times": []})["times"]]
        self.sizes = [tuple(row["size"]) for row, _ in times]
        self.best = np.array([min(row["sweep"].values()) for row, _ in times])
        rows, self.plans = [], []
        for number, (row, indices) in enumerate(times):
            # Not row["chosen"]: with --candidates that names an instance of the long table, "ours" times a shipped one.
            for name, us in row["sweep"].items():
                index, parts = map(int, name.split("x"))
                for which, instance in enumerate(SHIPPED):
                    if indices[which] == index and parts in PARTS:
                        rows.append((number, which, us, *features(instance, parts, *row["size"])))
                        self.plans.append(f"{instance.index}x{parts}")
        table = np.array(rows)
        self.number, self.which = table[:, 0].astype(int), table[:, 1].astype(int)
        self.us = table[:, 2]
        self.rounds, self.blocks, self.share, self.parts, self.together, self.bytes, self.out = table[:, 3:10].T
        self.lone = table[:, 10]
        self.near = np.exp((1 - self.us / self.best[self.number]) / 0.06) + 0.01


def features(instance: Instance, parts: int, m: int, n: int, k: int) -> tuple[float, ...]:
    """Rounds, K blocks, share of the further residents, parts, residents, bytes, last sums, lone pair's cycles."""
    rows, columns = (m, n) if instance.tokens_are_rows else (n, m)
    tiles = -(-rows // instance.m) * -(-columns // (instance.n * instance.pair))
    layer = AT_ONCE[parts - 1] if instance.exchange else PROCESSORS // instance.pair
    together = min(instance.resident, -(-tiles // layer))
    rounds = -(-tiles // (layer * instance.resident))
    return (
        rounds, -(-(k // 128) // parts),
        (together - 1) / max(1, instance.resident - 1), parts, together, (m + n) * k + 2 * m * n,
        0 if instance.exchange else instance.m * instance.n, LONE_PAIR if instance.pair == 2 and rounds == 1 else 0,
    )


def predict(sweep: Sweep, v: np.ndarray) -> np.ndarray:
    """Microseconds. v: launch us, us per MB, meeting, part, out per 1000 sums; then all steps, shared, tiles."""
    launch, per_megabyte, meeting, part, out = v[:TOGETHER]
    step, shared, tile = v[TOGETHER : TOGETHER + 3 * COUNT].reshape(3, COUNT)[:, sweep.which]
    step = step + (shared - step) * sweep.share
    meet = np.where(sweep.parts > 1, meeting + part * (sweep.parts - 1) * sweep.together, 0)
    work = (sweep.rounds * (sweep.blocks * step + tile + meet) + sweep.lone) / MHZ
    return launch + np.hypot(work, sweep.bytes * per_megabyte * 1e-6) + out * sweep.out / 1e3 / MHZ


def residuals(sweep: Sweep, v: np.ndarray, weight: np.ndarray) -> np.ndarray:
    factors = v[TOGETHER + 3 * COUNT :]
    step, shared, tile = v[TOGETHER : TOGETHER + 3 * COUNT].reshape(3, COUNT)
    errors = (np.log(predict(sweep, v) / sweep.us) + factors[sweep.number]) * weight**0.5
    return np.concatenate([errors, factors / 2, (tile - 1500) / 40000, (shared - 1.7 * step) / 4000])


def minimise(sweep: Sweep, v: np.ndarray, scale: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Levenberg-Marquardt with numeric derivatives; constants stay positive."""
    damping = 1e-2
    for _ in range(40):
        now = residuals(sweep, v, weight)
        nudged = v + np.diag(scale * 1e-4)
        slope = np.stack([(residuals(sweep, w, weight) - now) / 1e-4 for w in nudged], axis=1)
        while damping < 1e6:
            step = np.linalg.solve(slope.T @ slope + damping * np.eye(len(v)), -slope.T @ now) * scale
            trial = v + step
            trial[: TOGETHER + 3 * COUNT] = np.maximum(trial[: TOGETHER + 3 * COUNT], 0.01)
            if np.sum(residuals(sweep, trial, weight) ** 2) < now @ now:
                v, damping = trial, max(damping / 3, 1e-6)
                break
            damping *= 4
        else:
            break
    return v


def picks(sweep: Sweep, v: np.ndarray) -> list[int]:
    predicted = predict(sweep, v)
    rows = [np.flatnonzero(sweep.number == number) for number in range(len(sweep.sizes))]
    return [int(row[np.argmin(predicted[row])]) for row in rows]


def fit(sweep: Sweep) -> np.ndarray:
    products = len(sweep.sizes)
    steps = np.array([max(300.0, instance.m * instance.n / 27) for instance in SHIPPED])
    v = np.concatenate([[3.0, 0.24, 800, 50, 60], steps, 1.6 * steps, np.full(COUNT, 1500.0), np.zeros(products)])
    widths = np.full(2 * COUNT, 100.0), np.full(COUNT, 500.0), np.full(products, 0.1)
    scale = np.concatenate([[1, 0.1, 500, 50, 10], *widths])
    boost = np.ones(len(sweep.us))
    kept, least = v, np.inf
    for _ in range(ROUNDS):
        v = minimise(sweep, v, scale, sweep.near * boost)
        chosen = picks(sweep, v)
        loss = sweep.us[chosen] / sweep.best - 1
        if loss.mean() + loss.max() / 10 < least:
            kept, least = v, loss.mean() + loss.max() / 10
        for number, row in enumerate(chosen):
            if loss[number] > 0.012:
                boost[row] += max(1.0, 0.5 / sweep.near[row])
                mine = np.flatnonzero(sweep.number == number)
                boost[mine[np.argmin(sweep.us[mine])]] += 1
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="plans.json of a sweep with --candidates")
    parser.add_argument("--shipped", type=Path, help="plans.json of a sweep without")
    options = parser.parse_args()
    shipped = json.loads(options.shipped.read_text())[0] if options.shipped else None
    sweep = Sweep(json.loads(options.report.read_text())[0], shipped)
    v = fit(sweep)
    launch, per_megabyte, meeting, part, out = v[:TOGETHER]
    print(f"launch {launch * MHZ:.0f} cycles, {1e6 / MHZ / per_megabyte:.0f} bytes per cycle, meeting {meeting:.0f}, "
          f"part {part:.0f}, out {out / 1000:.4f}")
    for instance, (step, shared, tile) in zip(
        SHIPPED, v[TOGETHER : TOGETHER + 3 * COUNT].reshape(3, COUNT).T, strict=True
    ):
        print(f"{instance.index:3} {instance.m:4}x{instance.n:<4} alone {step:5.0f} all {shared:5.0f} tile {tile:5.0f}")
    loss = []
    for number, row in enumerate(picks(sweep, v)):
        loss.append(sweep.us[row] / sweep.best[number] - 1)
        size = "x".join(map(str, sweep.sizes[number]))
        print(f"{size:16} best {sweep.best[number]:7.1f} us, picks {sweep.plans[row]:5} {100 * loss[-1]:+5.1f} %")
    print(f"lost: mean {100 * np.mean(loss):.2f} %, most {100 * max(loss):.1f} %")


if __name__ == "__main__":
    main()
