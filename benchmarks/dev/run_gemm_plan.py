# SPDX-License-Identifier: MIT
"""Run forced plans of an FP8 product a few times each, for a profiler to look at.

    ncu --section SpeedOfLight … python benchmarks/dev/run_gemm_plan.py fp8_gemm/wgmma_tma 4096x7168x2048:20x1 …

A plan is the index of a tile shape (with ``--candidates`` in wgmma_candidates.cu) and the parts K is split into.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import gpu
import torch
from check_gemm import build
from gemm_race import Data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel")
    parser.add_argument("runs", nargs="+", metavar="MxNxK:SHAPExSPLITS")
    parser.add_argument("--candidates", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    gpu.need()
    with tempfile.TemporaryDirectory() as folder:
        nvcc = os.environ.get("NVCC", "nvcc")
        kernel = build(options.kernel, options.candidates, Path(folder), nvcc, "own")["own"]
        for run in options.runs:
            size, plan = (tuple(map(int, part.split("x"))) for part in run.split(":"))
            data = Data(*size, seed=1, problem=kernel.problem, plain_scales=True)
            for _ in range(options.repeat):
                status = kernel.call(data, plan)
                torch.cuda.synchronize()
                print(run, "status", status, flush=True)


if __name__ == "__main__":
    main()
