# SPDX-License-Identifier: MIT
"""``inspect`` on every kernel for a GPU that the tree has: slow, since each of them is compiled and disassembled."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.errors import ToolchainMissing
from backends.machine import document
from backends.source import kernels
from scoring.config.load import load_config
from scoring.output import inspection
from scoring.output.table import Style
from scoring.run import inspected
from tests.scoring.harness import ROOT

EVERY = [path for path in [*kernels(ROOT), *sorted((ROOT / "workbench/kernels/cuda").rglob("*.cu"))]
         if path.suffix in (".cu", ".hip")]

pytestmark = [pytest.mark.slow, pytest.mark.toolchain, pytest.mark.timeout(600)]


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_kernel(path: Path) -> None:
    own = ROOT / "workbench/config.yaml"          # problems of the workbench are found by its own settings
    settings = load_config({}, str(own) if own.parent in path.parents else None)
    (subject,) = inspected.subjects(settings, [str(path)], None, {})
    try:
        found = document.document(subject.image(None), code=True)
    except ToolchainMissing as error:
        pytest.skip(str(error))
    assert found["functions"]
    for function in found["functions"]:
        assert function["instructions"] == len(function["code"]) == sum(function["mix"].values()) > 0
        assert function["mix"].get("other", 0) <= 0.02 * function["instructions"] + 3, "units that nobody knows"
        assert function["resources"]["registers"]
        assert function["source"], "lines of the source"
    # The library product of one kernel asks cuBLASLt, which is not here, before it launches anything.
    if path.parent.name != "amd_mla_decode":
        assert any(function["resources"]["dynamic_shared"] is not None for function in found["functions"])
    assert inspection.report(found, subject.title, Style(), narrowed=False)
