# SPDX-License-Identifier: MIT
"""Most of this folder is slow: minutes of g++ and nvcc. tests/test_matrix.py runs each kernel on an emulated GPU.

``make test`` keeps what is quick, and one family as ptxas makes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
QUICK = {"test_families.py", "test_machine.py", "test_pace.py", "test_promotion.py", "test_gemm_compiled.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in QUICK:
            item.add_marker(pytest.mark.slow)
