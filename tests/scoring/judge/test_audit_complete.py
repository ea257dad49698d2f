# SPDX-License-Identifier: MIT
"""No problem is left out of the whole audits."""

from __future__ import annotations

from tests.problems.folders import NAMES
from tests.scoring.judge import test_audit_attention, test_audit_decode, test_audit_gemm, test_audit_layers


def test_every_problem_is_audited_once() -> None:
    files = (test_audit_attention, test_audit_decode, test_audit_gemm, test_audit_layers)
    assert sorted(name for file in files for name in file.PROBLEMS) == sorted(NAMES)
    for file in files:
        audited = {case.values[0] for case in file.test_every_case.pytestmark[0].args[1] if not case.marks}
        assert audited == set(file.PROBLEMS)
