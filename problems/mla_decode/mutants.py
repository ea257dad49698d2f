# SPDX-License-Identifier: MIT
"""Wrong answers that the check of mla_decode must refuse in every case; all are of paged latent attention in general.
"""

from __future__ import annotations

from latent import MUTANTS

__all__ = ["MUTANTS"]
