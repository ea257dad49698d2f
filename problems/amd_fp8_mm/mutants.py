# SPDX-License-Identifier: MIT
"""Wrong answers that the check of amd_fp8_mm must refuse in every case; all are of the block-scaled product in general.

There is none that accumulates in fewer bits: such sums are wrong at a long K alone (tests/problems/test_honest_kernels
has them, at K = 4096), and gfx942's matrix cores keep fp32 sums whatever a kernel does.
"""

from __future__ import annotations

from gemm import MUTANTS

__all__ = ["MUTANTS"]
