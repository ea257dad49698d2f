# SPDX-License-Identifier: MIT
"""The smallest calls that reach every form of mla_decode_fp8/wgmma_bulk and of the merge it has in common with
mla_decode/wgmma_tma, once each, for compute-sanitizer.

    python benchmarks/dev/check_mla_fp8.py build FOLDER bf16 ours
    python benchmarks/dev/mla_small.py prepare FOLDER bf16 ours
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 99 \
        --kernel-name kernel_substring=coded_ --kernel-name kernel_substring=latent_ \
        python benchmarks/dev/mla_small.py run FOLDER bf16 ours

Labels are those of check_mla_fp8.py. Which form a call takes depends on the GPU: cases are for 132 multiprocessors.
Inputs and expected results are made beforehand on the CPU (some 20 s), so that no other kernel runs; without caching
every tensor is an allocation of its own, whose end a tool sees.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu
from check_attention import Kernel, Problem, mla
from check_mla_fp8 import problem_of

DEVICE = "cuda"


def space(case: dict[str, Any], chunks: int) -> int:
    """Bytes of a workspace with room for the parts of so many chunks."""
    return int((case["batch"] + chunks) * case["sq"] * case["hq"] * 513 * 4)


LONG = "one request in parts, of all blocks, among short ones"
CASES = [
    (mla(1, 16, 330), 0, "16 rows, uncut, NaN behind the length"),
    (mla(3, 16, 130, "mixed", 1, 1), 0, "an empty request, lengths of a token and at a page's edge"),
    (mla(64, 16, 128), 132, "a cluster of two to each request"),
    (mla(42, 16, 192), 132, "of three"),
    (mla(31, 16, 256), 132, "of four"),
    (mla(32, 16, 256), 132, "four chunks and a second kernel, where 31 clusters of four fit"),
    (mla(1, 16, 512), 132, "of eight"),
    (mla(1, 16, 1700), 2, "blocks keep in step"),
    (mla(24, 16, 200, "mixed"), 132, "a second kernel merges few parts"),
    (mla(128, 16, 100, "ragged"), 132, "of many rows"),
    (mla(20, 16, 1280, "ragged"), 132, "one of more parts than others"),
    (mla(20, 16, 2560), 132, LONG),
    (mla(50, 16, 2176), 132, LONG),
    (mla(2, 16, 300, "ragged"), 132, "many parts of few rows"),
    (mla(5, 16, 300, "mixed"), 132, "of more"),
    (mla(9, 16, 300, "mixed"), 132, "of most"),
    (mla(2, 16, 130, "mixed", 2, 1), 132, "32 rows"),
    (mla(2, 64, 130, "mixed"), 132, "64 rows"),
    (mla(1, 128, 330), 0, "two tiles of 64 rows, every slot again"),
    (mla(1, 128, 1300), 132, "the same in parts"),
]


def prepared(folder: Path, label: str) -> Path:
    return folder / f"small_{problem_of(label)}.pt"


def prepare(folder: Path, label: str) -> None:
    problem, begin = Problem(problem_of(label)), time.monotonic()
    made = []
    for number, (case, _, what) in enumerate(CASES):
        data = problem.reference.generate_input(**case, seed=number, device="cpu")
        if what == LONG:
            data[3][1:] = 64
        made.append((data, problem.reference.expected(data)))
    torch.save(made, prepared(folder, label))
    print(f"{problem.name}: {len(made)} cases made in {time.monotonic() - begin:.1f} s", flush=True)


def run(folder: Path, label: str) -> int:
    """How many calls are wrong."""
    problem, begin, wrong = Problem(problem_of(label)), time.monotonic(), 0
    kernel = Kernel(problem, label, folder / f"{label}.so")
    made = torch.load(prepared(folder, label), weights_only=False)    # of `prepare`
    for (case, chunks, what), (data, expected) in zip(CASES, made, strict=True):
        there = tuple(x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in data)
        outputs = {name: torch.empty(shape, dtype=getattr(torch, dtype), device=DEVICE)
                   for name, (shape, dtype) in problem.binding.outputs(case).items()}
        scratch = torch.empty(space(case, chunks) // 4, device=DEVICE) if chunks else None
        status = kernel.bind(problem.binding.arguments(case, there), outputs, scratch)()
        torch.cuda.synchronize()
        passed, message = False, f"status {status}"
        if status == 0:
            passed, message = problem.reference.check_outputs(expected, tuple(o.cpu() for o in outputs.values()))
        wrong += not passed
        if not passed:
            print(f"WRONG {label} {case} ({what}): {message[:300]}", flush=True)
    print(f"{label}: {len(CASES)} calls, {wrong} wrong, {time.monotonic() - begin:.1f} s", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path, help="where libraries are, and inputs go")
    parser.add_argument("labels", nargs="+", help="of builds of check_mla_fp8.py")
    options = parser.parse_args()
    if options.what == "prepare":
        for label in options.labels:
            prepare(options.folder, label)
        return 0
    gpu.need()
    return int(sum(run(options.folder, label) for label in options.labels) > 0)


if __name__ == "__main__":
    sys.exit(main())
