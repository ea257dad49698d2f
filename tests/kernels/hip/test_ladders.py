# SPDX-License-Identifier: MIT
"""What steps of the workbench's HIP ladders are about, by the emulator's counters: LDS conflicts and LDS traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import backends
from backends.source import KernelSource
from scoring.ipc.emulator import Emulator
from tests.kernels.hip import emulated
from tests.problems.folders import signature

BENCH = emulated.ROOT / "workbench"


def counted(emulator: Emulator, kernel: str, *arguments: emulated.Argument) -> dict[str, Any]:
    """The counters of a call of ``problem/variant``, which has one launch."""
    problem, variant = kernel.split("/")
    source = KernelSource.read(BENCH / f"kernels/hip/{problem}/{variant}.hip", BENCH)
    backend, abi = backends.get("rocm"), signature(problem)
    binary = backend.compile(source, backend.target("MI300"))
    call = emulated.Kernel(emulator, binary, abi.symbol, {param.name: param.ctype for param in abi.params})
    emulator.set("counters", "1")
    try:
        emulator.take_counters()
        assert call(*arguments) == 0
        (found,) = emulator.take_counters()
        return found
    finally:
        emulator.set("counters", "0")


@pytest.mark.parametrize(("step", "conflicts"), [
    ("4_vector", False), ("5_columns", True), ("8_transposed_a", False), ("9_double_buffer", False)])
def test_lds_conflicts_of_sgemm(emulator: Emulator, step: str, conflicts: bool) -> None:
    """Step 5 shows a fault on purpose: more than a tenth of its LDS cycles are waits at a bank."""
    m, n, k = 128, 128, 32
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
    out = np.zeros((m, n), np.float32)
    lds = counted(emulator, f"sgemm/{step}", a, b, np.zeros_like(out), out, m, n, k, 1.0, 0.0, None, 0, None)["lds"]
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
    assert lds["cycles"] > 0
    if conflicts:
        assert lds["conflict_cycles"] > 0.1 * lds["cycles"]
    else:
        assert lds["conflict_cycles"] == 0


def test_what_stays_in_registers_does_not_go_through_lds(emulator: Emulator) -> None:
    """Attention's step 6 needs about half of the LDS cycles of step 5, which does the same products."""
    rows, dim = 64, 64
    rng = np.random.default_rng(2)
    q, k, v = (emulated.bf16(rng.standard_normal((1, rows, 1, dim))) for _ in range(3))
    cycles, outputs = [], []
    for step in ("5_two_buffers", "6_registers"):
        o, lse = np.zeros_like(q), np.zeros((1, 1, rows), np.float32)
        found = counted(emulator, f"flash_attention/{step}", q, k, v, o, lse, 1, rows, rows, 1, 1, dim, 0, 0, 0.125,
                        None, 0, None)
        cycles.append(found["lds"]["cycles"])
        outputs.append(emulated.from_bf16(o))
    assert cycles[1] < 0.6 * cycles[0]
    np.testing.assert_allclose(outputs[0], outputs[1], atol=0.02)
