# SPDX-License-Identifier: MIT
"""All code that the tests of this folder run, by the test that runs it."""

from __future__ import annotations

from collections.abc import Callable

from tests.emulator.isa import (
    buffer_cases,
    ds_cases,
    flat_cases,
    format_cases,
    salu_cases,
    smem_cases,
    test_buffer,
    test_cross_lane,
    test_division,
    test_ds,
    test_flat,
    test_flow,
    test_functions,
    test_lds_loads,
    test_smem,
    valu_cases,
)

_SUITES: dict[str, Callable[[], list[bytes]]] = {
    "test_valu": lambda: [c.code for form in valu_cases.FORMATS for c in valu_cases.assembled(form)],
    "test_salu": lambda: [c.code for form in salu_cases.FORMATS for c in salu_cases.assembled(form)],
    "test_ds": lambda: [c.code for c in ds_cases.cases()] + test_ds.SNIPPETS.codes(),
    "test_flat": lambda: [c.code for c in flat_cases.cases()] + test_flat.SNIPPETS.codes(),
    "test_buffer": lambda: [c.code for c in buffer_cases.cases()] + [c.code for c in format_cases.cases()] +
    test_buffer.CACHES.codes(),
    "test_smem": lambda: [c.code for c in smem_cases.cases()] + test_smem.codes(),
    "test_lds_loads": test_lds_loads.codes,
    "test_cross_lane": test_cross_lane.SNIPPETS.codes,
    "test_division": test_division.SNIPPETS.codes,
    "test_flow": test_flow.SNIPPETS.codes,
    "test_functions": test_functions.SNIPPETS.codes,
}
NAMES = tuple(_SUITES)


def codes(name: str) -> list[bytes]:
    return _SUITES[name]()
