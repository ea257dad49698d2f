# SPDX-License-Identifier: MIT
"""Wrong answers that the check of fp8_gemm must refuse in every case; all are of the block-scaled product in general.

There is none that accumulates in fewer bits: an elementwise bound that admits honest tensor cores of 13 fraction bits
cannot refuse a kernel that keeps those bits over all of K, and with a scale per 128 columns no kernel can do so.
"""

from __future__ import annotations

from gemm import MUTANTS

__all__ = ["MUTANTS"]
