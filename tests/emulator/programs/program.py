# SPDX-License-Identifier: MIT
"""What a Triton program of the corpus is: a kernel, its arguments, its grid, and what torch says the answer is.

A program is a function of a torch generator that returns a ``Launch``; ``@program`` puts it into ``PROGRAMS`` under
its name. Arguments are torch CPU tensors and Python numbers by parameter name; the kernel's ``tl.constexpr``
parameters are ``constants``. ``expected`` maps names of tensor arguments to what they must hold afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Expected:
    """What a tensor must hold: equal in every bit (NaN equal to NaN) unless a tolerance is given."""

    values: torch.Tensor
    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class Launch:
    kernel: Any                                     # triton.JITFunction
    grid: tuple[int, ...]
    arguments: Mapping[str, torch.Tensor | int | float]
    expected: Mapping[str, Expected]
    constants: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)   # num_warps, num_stages, matrix_instr_nonkdim, ...
    buffer_ops: bool = True                         # let the compiler use buffer instructions for tensors


Build = Callable[[torch.Generator], Launch]
PROGRAMS: dict[str, Build] = {}


def program(name: str, **keywords: Any) -> Callable[[Callable[..., Launch]], Callable[..., Launch]]:
    """Register the function, with ``keywords`` bound, as the program ``name``; may be applied repeatedly."""

    def register(build: Callable[..., Launch]) -> Callable[..., Launch]:
        if name in PROGRAMS:
            raise ValueError(f"two programs are called {name}")
        PROGRAMS[name] = lambda generator: build(generator, **keywords)
        return build

    return register


def normal(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers, rounded to ``dtype``."""
    return torch.randn(*shape, generator=generator).to(dtype)


def integers(
    generator: torch.Generator, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32
) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=generator, dtype=torch.int64).to(dtype)


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An output nobody has written: each byte is 0xA5."""
    count = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    return torch.full((count,), 0xA5, dtype=torch.uint8).view(dtype).reshape(shape)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)
