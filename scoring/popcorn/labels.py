# SPDX-License-Identifier: MIT
"""Which GPUs leaderboards have, by label (``backends.labels``). Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

# Boards whose GPUs are public facts; on any other board every label is accepted.
LEADERBOARDS: Mapping[str, tuple[str, ...]] = {
    "amd-fp8-mm": ("MI300",),
    "amd-mixture-of-experts": ("MI300",),
    "amd-mla-decode": ("MI300",),
}
