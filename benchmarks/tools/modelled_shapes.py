# SPDX-License-Identifier: MIT
"""Modelled times of fp8_gemm/mfma at its benchmark shapes, beside an earlier checkout's kernel: same run, same model.

    python benchmarks/tools/modelled_shapes.py [--against CHECKOUT] [--shapes 128x7168x2048,…] [--define PARTS=4]

A sample of the workgroups of each launch runs, on zeros, with cold caches. ``--define`` forces a plan upon our kernel.
The ratio is the earlier time over ours: above 1 ours is faster.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from emulated import ROOT, Emulator
from rivals import Shape, Time, our_call, timed
from validate_model import Device, geometric

from scoring.problem import Problem

KERNEL = Path("kernels/hip/fp8_gemm/mfma.hip")
BUFFERS = [64, 112, 1, 1, 256, 64, 4, 4]     # MiB, places as in rivals.py; the largest of task.yml's


def benchmark_shapes() -> list[Shape]:
    """m, n, k of task.yml's benchmarks, in their order."""
    cases = Problem(ROOT / "problems" / "fp8_gemm").benchmarks
    return [tuple(int(case.params[name]) for name in "mnk") for case in cases]


def row(shape: Shape, ours: Time, earlier: Time | None) -> str:
    """A line of the table."""
    cells = ["×".join(map(str, shape)), "", f"{ours.microseconds:.1f}", "", str(len(ours.launches)),
             f"{ours.band:.2f}", ours.limit]
    if earlier is not None:
        cells[1], cells[3] = f"{earlier.microseconds:.1f}", f"{earlier.microseconds / ours.microseconds:.2f}"
    return "| " + " | ".join(cells) + " |"


def summary(times: Mapping[Shape, tuple[Time, Time | None]]) -> str:
    """Geometric mean of the ratios and the worst one."""
    ratios = {shape: earlier.microseconds / ours.microseconds for shape, (ours, earlier) in times.items() if earlier}
    if not ratios:
        return f"geometric mean {geometric([ours.microseconds for ours, _ in times.values()]):.1f} µs, modelled"
    worst = min(ratios, key=lambda shape: ratios[shape])
    return (f"{len(ratios)} shapes, ratio: geometric mean {geometric(list(ratios.values())):.3f}, "
            f"worst {ratios[worst]:.3f} ({'×'.join(map(str, worst))}); modelled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="an earlier checkout, or its folders kernels and problems")
    parser.add_argument("--shapes", default="", help="M×N×K, separated by commas; without: all")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--sample", type=int, default=4, help="workgroups of each launch that run")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    options = parser.parse_args()
    asked = options.shapes.replace("×", "x").split(",")
    emulator = Emulator()
    emulator.set(counters=1, checks="none", threads=options.threads, sample=options.sample)
    device = Device(emulator, BUFFERS)
    ours = our_call(emulator, ROOT / KERNEL, defines=dict(each.split("=", 1) for each in options.define))
    root = options.against
    earlier = our_call(emulator, root / KERNEL, root) if root else None
    print("| shape | before µs | µs | before / now | launches | band | limited by |\n" + "|---" * 7 + "|")
    times: dict[Shape, tuple[Time, Time | None]] = {}
    for shape in benchmark_shapes():
        if options.shapes and "x".join(map(str, shape)) not in asked:
            continue
        times[shape] = timed(device, ours, shape), timed(device, earlier, shape) if earlier else None
        print(row(shape, *times[shape]), flush=True)
    print(f"\n{summary(times)}")


if __name__ == "__main__":
    main()
