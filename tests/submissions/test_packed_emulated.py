# SPDX-License-Identifier: MIT
"""Files for the AMD challenge's leaderboards, as ``pack`` makes them: ``custom_kernel(data)`` on the emulated MI300X,
with all checks, judged like any submission."""

from __future__ import annotations

from pathlib import Path

import pytest

import scoring
from backends.source import KernelSource
from scoring.record import Status
from submissions import lint, pack
from tests.submissions.conftest import ROOT

pytestmark = [pytest.mark.toolchain("rocm"), pytest.mark.timeout(600), pytest.mark.slow]

CASES = {
    "amd_fp8_mm": ["m=64,n=64,k=128"],
    "amd_mla_decode": ["batchsize=1,dim=128,*"],
    "amd_moe": ["dhidden=256,dexpert=128,nroutedexperts=4,*", "dhidden=64,*"],
}


@pytest.mark.parametrize("name", CASES)
def test_a_packed_file_passes_on_the_emulated_device(name: str, tmp_path: Path) -> None:
    packed = pack.pack(KernelSource.read(ROOT / f"kernels/hip/{name}/mfma.hip", ROOT), ["MI300"])
    path = tmp_path / "submission.py"
    path.write_text(packed.text, encoding="utf-8")
    assert [item for item in lint.lint(packed.text.encode(), path.name) if item.severity == "error"] == []
    record, = scoring.score(name, submission=path, gpu="MI300", mode="test", cases=CASES[name])
    assert record.status is Status.PASSED, record
    assert len(record.cases) == len(CASES[name])
    assert "emulated" in record.device
