# SPDX-License-Identifier: MIT
"""Most of this folder is slow: minutes of nvcc. tests/test_matrix.py runs each kernel on an emulated GPU.

``make test`` keeps what is quick, one family as ptxas makes it, and the faults planted in one kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
QUICK = {"test_families.py", "test_pace.py", "test_promotion.py", "test_gemm_compiled.py",
         "test_coded_latent.py::test_faults_are_noticed"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and not {item.path.name, f"{item.path.name}::{item.name}"} & QUICK:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(600))
