# SPDX-License-Identifier: MIT
"""All code that the tests of this folder run, by the test that runs it."""

from __future__ import annotations

import functools

from tests.emulator.isa import (
    buffer_cases,
    ds_cases,
    flat_cases,
    format_cases,
    salu_cases,
    smem_cases,
    test_cross_lane,
    test_division,
    test_flow,
    test_lds_loads,
    test_smem,
    valu_cases,
)


@functools.cache
def codes() -> dict[str, list[bytes]]:
    return {
        "test_valu": [c.code for form in valu_cases.FORMATS for c in valu_cases.assembled(form)],
        "test_salu": [c.code for form in salu_cases.FORMATS for c in salu_cases.assembled(form)],
        "test_ds": [c.code for c in ds_cases.cases()],
        "test_flat": [c.code for c in flat_cases.cases()],
        "test_buffer": [c.code for c in buffer_cases.cases()] + [c.code for c in format_cases.cases()],
        "test_smem": [c.code for c in smem_cases.cases()] + test_smem.codes(),
        "test_lds_loads": test_lds_loads.codes(),
        "test_cross_lane": test_cross_lane.SNIPPETS.codes(),
        "test_division": test_division.SNIPPETS.codes(),
        "test_flow": test_flow.SNIPPETS.codes(),
    }
