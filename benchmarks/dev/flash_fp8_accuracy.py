# SPDX-License-Identifier: MIT
"""What scales per block and the rotation save of attention from e4m3 on inputs with outliers: root mean square errors.

    python benchmarks/dev/flash_fp8_accuracy.py [LIBRARY.so] [--lengths 512,16384] [--dim 128]

q, k and v are standard normal, to one in a thousand of whose entries a normal number of standard deviation 10 is added
("paper", as in FlashAttention-3's), or of which one in a thousand is 10 to 100 times larger ("task", as the problem's
``outliers``, with its softmax scale). They are quantised with a scale per tensor, head or block of 128 tokens, q and k
with or without a random rotation before. Against fp64 attention of the numbers before quantisation stand: "exact", fp64
attention of the quantised numbers, and the kernel of LIBRARY, if given (needs its GPU). 8 heads; up to 1024 query rows
are compared. In brackets: relative to a scale per tensor without rotation. "rule" is FlashAttention-3's test: the
kernel's largest error against exact arithmetic on the quantised numbers, less a rounding floor, over that of PyTorch in
bf16 with P in e4m3; it asks for 2 at most.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_attention as attention
import torch
from torch import Tensor

HEADS = 8
SCHEMES = [("tensor", 0), ("tensor", 1), ("head", 0), ("block", 0), ("block", 1)]


def operands(kind: str, length: int, dim: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    def draw() -> Tensor:
        x = torch.randn(1, length, HEADS, dim, generator=rng, device=rng.device)
        chosen = torch.rand(x.shape, generator=rng, device=x.device) < 1e-3
        if kind == "paper":
            return x + chosen * 10 * torch.randn(x.shape, generator=rng, device=x.device)
        return torch.where(chosen, x * (10 + 90 * torch.rand(x.shape, generator=rng, device=x.device)), x)
    return draw(), draw(), draw()


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """fp64 attention of rows [rows, heads, dim] over [tokens, heads, dim]."""
    out = []
    for h in range(q.shape[1]):
        p = torch.softmax(q[:, h].double() @ k[:, h].double().T * scale, 1)
        out.append(p @ v[:, h].double())
    return torch.stack(out, 1)


def low_precision(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """The same as PyTorch has it in bf16, weights of at most 1 rounded to e4m3."""
    out = []
    for h in range(q.shape[1]):
        rows, keys, values = (x[:, h].bfloat16() for x in (q, k, v))
        p = torch.softmax((rows @ keys.T).float() * scale, 1)
        out.append(p.to(torch.float8_e4m3fn).bfloat16() @ values)
    return torch.stack(out, 1)


def rule(found: Tensor, exact: Tensor, low: Tensor) -> float:
    """By what factor the largest error of ``found``, less the floor, exceeds that of ``low``."""
    rounded = exact.bfloat16()
    floor = 2 * float((rounded + 0.3 - 0.3 - rounded).abs().max())
    return max(0.0, float((found - exact).abs().max()) - floor) / float((low.double() - exact).abs().max())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?", type=Path)
    parser.add_argument("--lengths", default="512,16384")
    parser.add_argument("--dim", type=int, default=128)
    options = parser.parse_args()
    place = torch.device("cuda" if options.library else "cpu")
    problem = attention.Problem("flash_attention_fp8")
    ref = problem.reference
    kernel = attention.Kernel(problem, "kernel", options.library) if options.library else None
    for kind in ("paper", "task"):
        for length in map(int, options.lengths.split(",")):
            rng = torch.Generator(place).manual_seed(length)
            numbers = operands(kind, length, options.dim, rng)
            scale = options.dim**-0.5 / (8 if kind == "task" else 1)
            rows = torch.arange(0, length, max(1, length // 1024), device=place)
            truth = attend(numbers[0][0, rows], numbers[1][0], numbers[2][0], scale)
            signs = torch.randint(0, 2, (options.dim, 1), generator=rng, device=place) * 2 - 1
            rotation = ref.hadamard(options.dim, place) * signs
            base: dict[str, float] = {}
            for scales, rotated in SCHEMES:
                q, k, v = numbers
                if rotated:
                    q, k = q @ rotation, k @ rotation
                codes, descales = zip(*(ref.quantise(x, scales, torch.float8_e4m3fn) for x in (q, k, v)), strict=True)
                wide = [ref.dequantised(x, s, 0, slice(None), slice(None))
                        for x, s in zip(codes, descales, strict=True)]
                exact = attend(wide[0][rows], wide[1], wide[2], scale)
                errors = {"exact": exact - truth}
                if kernel is not None:
                    data = (*codes, *descales, False, scale, scales)
                    found = run(problem, kernel, data)[0, rows].double()
                    errors["kernel"] = found - truth
                shown = []
                for name, error in errors.items():
                    rms = float(error.square().mean().sqrt())
                    base.setdefault(name, rms)
                    shown.append(f"{name} {rms:.3e} ({rms / base[name]:.2f})")
                if kernel is not None:
                    low = low_precision(wide[0][rows], wide[1], wide[2], scale)
                    shown.append(f"rule {rule(found, exact, low):.2f}")
                print(f"{kind} {length} {scales}{' rotated' if rotated else ''}: {'  '.join(shown)}", flush=True)
            print(f"{kind} {length}: rms of the answer {float(truth.square().mean().sqrt()):.3e}")
    return 0


def run(problem: Any, kernel: Any, data: Any) -> Tensor:
    """o of the kernel."""
    case = {**problem.binding.case_of(data)}
    outputs = {name: torch.empty(shape, dtype=attention.dtype_of(dtype), device="cuda")
               for name, (shape, dtype) in problem.binding.outputs(case).items()}
    space = torch.empty(problem.binding.workspace_bytes(case), dtype=torch.uint8, device="cuda")
    status = kernel.bind(problem.binding.arguments(case, data), outputs, space)()
    torch.cuda.synchronize()
    assert status == 0, f"status {status}"
    return outputs["o"]


if __name__ == "__main__":
    sys.exit(main())
