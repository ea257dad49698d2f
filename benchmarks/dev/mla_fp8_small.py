# SPDX-License-Identifier: MIT
"""The smallest calls that reach every form of mla_decode_fp8/wgmma_bulk, once each, for compute-sanitizer.

    python benchmarks/dev/check_mla_fp8.py build FOLDER ours
    python benchmarks/dev/mla_fp8_small.py prepare FOLDER
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 99 \
        --kernel-name kernel_substring=coded_ --kernel-name kernel_substring=merge_latent \
        python benchmarks/dev/mla_fp8_small.py run FOLDER ours

Which form a call takes depends on the GPU: cases are for 132 multiprocessors. Inputs and expected results are made
beforehand on the CPU (some 20 s), so that no other kernel runs; without caching every tensor is an allocation of its
own, whose end a tool sees.
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

PREPARED = "small.pt"
DEVICE = "cuda"


def space(case: dict[str, Any], chunks: int) -> int:
    """Bytes of a workspace with room for the parts of so many chunks."""
    return int((case["batch"] + chunks) * case["sq"] * case["hq"] * 513 * 4)


CASES = [
    (mla(1, 16, 330), 0, "16 rows, uncut, NaN behind the length"),
    (mla(3, 16, 130, "mixed", 1, 1), 0, "an empty request, lengths of a token and at a page's edge"),
    (mla(64, 16, 128), 132, "a cluster of two to each request"),
    (mla(42, 16, 192), 132, "of three"),
    (mla(31, 16, 256), 132, "of four"),
    (mla(32, 16, 256), 132, "four chunks and a second kernel, or two clusters of two, where 31 clusters of four fit"),
    (mla(1, 16, 512), 132, "of eight"),
    (mla(1, 16, 1700), 2, "blocks keep in step"),
    (mla(24, 16, 200, "mixed"), 132, "a second kernel merges few parts"),
    (mla(128, 16, 100, "ragged"), 132, "of many rows"),
    (mla(20, 16, 1280, "ragged"), 132, "a long request among short ones"),
    (mla(2, 16, 300, "ragged"), 132, "many parts of few rows"),
    (mla(5, 16, 300, "mixed"), 132, "of more"),
    (mla(9, 16, 300, "mixed"), 132, "of most"),
    (mla(2, 16, 130, "mixed", 2, 1), 132, "32 rows"),
    (mla(2, 64, 130, "mixed"), 132, "64 rows"),
    (mla(1, 128, 330), 0, "two tiles of 64 rows, every slot again"),
]


def prepare(folder: Path) -> int:
    problem, begin = Problem("mla_decode_fp8"), time.monotonic()
    made = []
    for number, (case, _, _) in enumerate(CASES):
        data = problem.reference.generate_input(**case, seed=number, device="cpu")
        made.append((data, problem.reference.expected(data)))
    torch.save(made, folder / PREPARED)
    print(f"{len(made)} cases made in {time.monotonic() - begin:.1f} s", flush=True)
    return 0


def run(folder: Path, label: str) -> int:
    problem, begin, wrong = Problem("mla_decode_fp8"), time.monotonic(), 0
    kernel = Kernel(problem, label, folder / f"{label}.so")
    made = torch.load(folder / PREPARED, weights_only=False)    # of `prepare`
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
            print(f"WRONG {case} ({what}): {message[:300]}", flush=True)
    print(f"{len(CASES)} calls, {wrong} wrong, {time.monotonic() - begin:.1f} s", flush=True)
    return int(wrong > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path, help="where libraries are, and inputs go")
    parser.add_argument("label", nargs="?", default="ours", help="of a build of check_mla_fp8.py")
    options = parser.parse_args()
    if options.what == "prepare":
        return prepare(options.folder)
    gpu.need()
    return run(options.folder, options.label)


if __name__ == "__main__":
    sys.exit(main())
