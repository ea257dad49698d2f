# SPDX-License-Identifier: MIT
"""The whole audit of the products."""

from __future__ import annotations

import pytest

from tests.scoring.whole_audit import misjudged


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["fp8_gemm", "amd_fp8_mm"])
def test_every_case(name: str) -> None:
    assert misjudged(name) == []
