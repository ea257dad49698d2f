# SPDX-License-Identifier: MIT
"""Likely mistakes in fp8_gemm, for the judge's diagnosis: mistakes of block-scaled products."""

from __future__ import annotations

from gemm_diagnose import AXES, hypotheses, index

__all__ = ["AXES", "hypotheses", "index"]
