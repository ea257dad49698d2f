# SPDX-License-Identifier: MIT
"""What the scripts of this folder that run on an NVIDIA GPU say where there is none."""

from __future__ import annotations

import sys

import torch


def need() -> None:
    """Ends the program (exit code 4, as `python -m scoring` does) with what is missing and what to do about it."""
    if not torch.cuda.is_available():
        print(f"no NVIDIA GPU: torch {torch.__version__} sees none, and this runs on one.\n"
              "  `python -m scoring doctor` says what is missing; `python -m scoring build` compiles all kernels\n"
              "  anywhere, and `pytest tests/kernels/cuda` runs them on the host.", file=sys.stderr)
        raise SystemExit(4)
