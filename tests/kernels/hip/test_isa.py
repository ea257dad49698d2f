# SPDX-License-Identifier: MIT
"""The wrappers of kernels/hip/isa do what is documented, and the emulator finds faults in kernels made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scoring.ipc.emulator import Emulator, explain
from tests.kernels.hip import emulated

PROBE = Path(__file__).with_name("isa_probe.hip")
PARAMETERS = {"which": "int", "a": "void*", "b": "void*", "c": "void*", "argument": "int"}
MULTIPLY, EXCHANGE, COPY, REVERSE, HALF_BARRIER, UNINITIALISED, HALF_WAVE, STORE_AT, NOTHING = range(9)
INVALID_CONFIGURATION = 9


@pytest.fixture(scope="module")
def run(emulator: Emulator) -> emulated.Kernel:
    return emulated.Kernel(emulator, emulated.compiled(PROBE, "fp8_gemm"), "run", PARAMETERS)


def _by_lane(matrix: np.ndarray, per_lane: int) -> np.ndarray:
    """[16, 4 * per_lane] to what each lane holds: row lane % 16, indices (lane / 16) * per_lane on."""
    return np.stack([matrix[lane % 16, lane // 16 * per_lane :][:per_lane] for lane in range(64)])


@pytest.mark.parametrize(("kind", "per_lane"), [(0, 8), (1, 4), (2, 4)])
def test_matrix_instructions(run: emulated.Kernel, kind: int, per_lane: int) -> None:
    rng = np.random.default_rng(kind)
    a, b = (rng.integers(-8, 9, (16, 4 * per_lane)).astype(np.float64) for _ in range(2))
    start = rng.integers(-8, 9, (16, 16)).astype(np.float32)

    def encode(matrix: np.ndarray) -> np.ndarray:
        if kind == 0:
            table = {value: code for code, value in enumerate(emulated.fp8_fnuz_values())}
            return np.vectorize(table.__getitem__)(matrix).astype(np.uint8)
        return emulated.bf16(matrix) if kind == 1 else matrix.astype(np.float16)

    c = np.array([[start[lane // 16 * 4 + i, lane % 16] for i in range(4)] for lane in range(64)])
    assert run(MULTIPLY, _by_lane(encode(a), per_lane), _by_lane(encode(b), per_lane), c, kind) == 0
    got = np.array([[c[row // 4 * 16 + column, row % 4] for column in range(16)] for row in range(16)])
    np.testing.assert_array_equal(got, start + a @ b.T)


def test_fp8_is_the_fnuz_flavour() -> None:
    values = emulated.fp8_fnuz_values()
    assert np.nanmax(values) == 240
    assert values[0x40] == 1.0
    assert values[1] == 2.0**-10
    assert np.isnan(values).sum() == 1


def test_lane_exchange(run: emulated.Kernel) -> None:
    out = np.zeros((4, 128), np.float32)
    assert run(EXCHANGE, None, None, out, 0) == 0
    lanes = np.arange(128) % 64
    np.testing.assert_array_equal(out[0], lanes ^ 16)
    np.testing.assert_array_equal(out[1], lanes ^ 32)
    np.testing.assert_array_equal(out[2], np.arange(128) // 64)
    assert (out[3] == float(0x06010402)).all()


def test_buffers_end_where_they_say(run: emulated.Kernel) -> None:
    """24 of 32 dwords are inside for loads, 22 for stores; nothing else is touched, whole workgroup or not."""
    source, out = np.arange(24, dtype=np.float32), np.full(24, -1, np.float32)
    assert run(COPY, source, None, out, 96) == 0
    np.testing.assert_array_equal(out, [*range(22), -1, -1])


# (kernel, values of out, argument with the fault, without it, the check, what it says)
FAULTS = {
    "no barrier": (REVERSE, 256, 0, 1, "lds-race", "LDS byte"),
    "a barrier that one wave leaves out": (HALF_BARRIER, 128, 0, 1, "lds-race", "LDS byte"),
    "LDS that another workgroup wrote to": (UNINITIALISED, 64, 0, 1, "uninitialised", "what is stored to memory"),
    "store far behind": (STORE_AT, 1024, 2048, 0, "bounds", "write of 4 bytes"),
    "store far in front": (STORE_AT, 1024, -1024, 0, "bounds", "write of 4 bytes"),
    "store right behind": (STORE_AT, 5, 5, 4, "bounds", "write of 4 bytes"),
    "store right in front": (STORE_AT, 5, -1, 0, "bounds", "write of 4 bytes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_check_finds_a_fault_and_nothing_without_it(run: emulated.Kernel, fault: str) -> None:
    kernel, size, faulty, mended, check, message = FAULTS[fault]
    assert run(kernel, None, None, np.zeros(size, np.float32), mended) == 0      # asserts that there are no findings
    out = np.zeros(size, np.float32)
    status, findings = run.launch(kernel, None, None, out, faulty)
    assert status == 0
    found = [finding["message"] for finding in findings if finding["check"] == check]
    assert found, explain(findings)
    assert message in found[0]
    assert kernel != STORE_AT or not out.any()


def test_lanes_that_are_not_there_give_nothing(run: emulated.Kernel) -> None:
    """Half of a wave may exchange within itself; what it wants of the other half is 0, so that its result is wrong."""
    for mended in (1, 0):
        out = np.full(32, -1, np.float32)
        assert run(HALF_WAVE, None, None, out, mended) == 0
        np.testing.assert_array_equal(out, mended * np.arange(33, 65))


def test_a_grid_that_is_too_large_is_refused(run: emulated.Kernel) -> None:
    assert run(NOTHING, None, None, None, 1) == 0
    assert run(NOTHING, None, None, None, 0) == INVALID_CONFIGURATION
