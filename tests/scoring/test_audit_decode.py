# SPDX-License-Identifier: MIT
"""The whole audit of decoding."""

from __future__ import annotations

import pytest

from tests.scoring.whole_audit import misjudged


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["mla_decode", "mla_decode_fp8"])
def test_every_case(name: str) -> None:
    assert misjudged(name) == []
