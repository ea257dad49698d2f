# SPDX-License-Identifier: MIT
"""Where the project's own problems, kernels and peers lie: in the checkout, or in the data folder of a wheel."""

from __future__ import annotations

from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[1]              # the folder that holds backends, scoring and submissions
INSTALLED = not (PACKAGES / "problems" / "utils.py").is_file()
HOME = PACKAGES / "warpwave" if INSTALLED else PACKAGES
