# SPDX-License-Identifier: MIT
"""The whole audit of attention."""

from __future__ import annotations

import pytest

from tests.scoring.whole_audit import misjudged


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [
    "flash_attention", "flash_attention_bwd", "flash_attention_fp8", "flash_attention_varlen"])
def test_every_case(name: str) -> None:
    assert misjudged(name) == []
