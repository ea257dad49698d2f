# SPDX-License-Identifier: MIT
"""The problem folders as tests see them: loaded once each, through the scorer's own loader."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from backends.source import Signature
from scoring.problem import Problem, discover
from scoring.record import Case

ROOT = Path(__file__).parents[2]
NAMES = (
    "fp8_gemm", "amd_fp8_mm", "flash_attention", "flash_attention_bwd", "flash_attention_fp8", "flash_attention_varlen",
    "hadamard_quantize", "linear_cross_entropy", "mla_decode", "mla_decode_fp8",
)
# A reference call of amd_mla_decode takes a third of a second in its smallest case (its heads and maps have one size),
# so what asks for many of them leaves it out; test_layer.py asks the same of it, but less often. So is amd_moe, with
# three products to an expert, and test_experts.py.
ALL = (*NAMES, "amd_mla_decode", "amd_moe")
GEMMS = ("fp8_gemm", "amd_fp8_mm")


@cache
def problem(name: str) -> Problem:
    """One loaded problem, of the tree or of the workbench."""
    return Problem(discover(ROOT / "problems", ROOT / "workbench" / "problems")[name])


@cache
def signature(name: str) -> Signature:
    """The parsed kernel.h of a problem."""
    return Signature.read(problem(name).path / "kernel.h")


def small_cases(name: str, flops: float = 6e7) -> list[Case]:
    """Tests of a problem that cost next to nothing."""
    loaded = problem(name)
    return [case for case in loaded.tests if loaded.binding.flops(case.params) <= flops]


def small_parameters(flops: float = 6e7) -> list[tuple[str, Case]]:
    """(problem, case) for every small test of every problem."""
    return [(name, case) for name in NAMES for case in small_cases(name, flops)]


def case_id(value: Any) -> str:
    """Readable test ids."""
    return value.name if isinstance(value, Case) else str(value)


def generate(name: str, params: Any, seed: int = 1, fp8: str | None = None) -> Any:
    """Inputs on the CPU."""
    return problem(name).generate(Case(params), seed, "cpu", fp8)


def same(left: Any, right: Any) -> bool:
    """Whether two members of a data tuple are equal to the bit, NaN included, and laid out alike."""
    if isinstance(left, torch.Tensor):
        if left.dtype.itemsize == 1:
            left, right = left.view(torch.uint8), right.view(torch.uint8)
        return torch.equal(left.nan_to_num(7.5), right.nan_to_num(7.5)) and left.stride() == right.stride()
    return bool(left == right)
