# SPDX-License-Identifier: MIT
"""kernels/hip/flash_attention_bwd on the emulated MI300X: what the problem's cases leave out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.hip import emulated
from tests.kernels.hip.conftest import Builder

UNSUPPORTED, TOO_SMALL = -1, -2
HEADS, DIM, SCALE = 2, 64, 0.125


def operands(sq: int, sk: int, apart: float | None = None) -> list[np.ndarray]:
    """q, k, v, o, dout (bf16 bit patterns [1, length, 2, 64]) and lse of full attention. ``apart``: element 0 of all
    queries; its negative, of all keys.
    """
    rng = np.random.default_rng([sq, sk])
    values = [rng.standard_normal((1, length, HEADS, DIM)) for length in (sq, sk, sk, sq)]
    if apart is not None:
        values[0][..., 0], values[1][..., 0] = apart, -apart
    q, k, v, dout = (emulated.bf16(each) for each in values)
    scores = SCALE * np.einsum("bihc,bjhc->bhij", emulated.from_bf16(q), emulated.from_bf16(k))
    lse = np.log(np.exp(scores).sum(-1))
    o = np.einsum("bhij,bjhc->bihc", np.exp(scores - lse[..., None]), emulated.from_bf16(v))
    return [q, k, v, emulated.bf16(o), dout, lse.astype(np.float32)]


def gradients(data: list[np.ndarray]) -> list[np.ndarray]:
    """dq, dk, dv in fp64."""
    q, k, v, o, dout = (emulated.from_bf16(x) for x in data[:5])
    p = np.exp(SCALE * np.einsum("bihc,bjhc->bhij", q, k) - data[5][..., None])
    delta = np.einsum("bihc,bihc->bhi", dout, o)[..., None]
    ds = SCALE * p * (np.einsum("bihc,bjhc->bhij", dout, v) - delta)
    return [np.einsum("bhij,bjhc->bihc", ds, k), np.einsum("bhij,bihc->bjhc", ds, q),
            np.einsum("bhij,bihc->bjhc", p, dout)]


def run(kernel: emulated.Kernel, data: list[np.ndarray], workspace_bytes: int) -> tuple[int, list[np.ndarray]]:
    outputs = [np.full(data[i].shape, 0x7FFF, np.uint16) for i in range(3)]
    workspace = np.full(max(workspace_bytes, 1), 0xFF, np.uint8)
    status = kernel(*data, *outputs, 1, data[0].shape[1], data[1].shape[1], HEADS, HEADS, DIM, 0, 0, SCALE,
                    workspace, workspace_bytes, None)
    return status, outputs


def test_a_workspace_of_eight_bytes_per_row_is_enough(hip_kernel: Builder) -> None:
    """130 rows of a head count as 256. Two calls give the same bits, and they are gradients."""
    data, room = operands(130, 70), 8 * HEADS * 256
    kernel = hip_kernel("flash_attention_bwd")
    status, outputs = run(kernel, data, room)
    assert status == 0
    for got, again, want in zip(outputs, run(kernel, data, room)[1], gradients(data), strict=True):
        np.testing.assert_array_equal(got, again)
        np.testing.assert_allclose(emulated.from_bf16(got), want, atol=0.02 * np.abs(want).max())
    status, outputs = run(kernel, data, room - 1)
    assert status == TOO_SMALL
    assert all((output == 0x7FFF).all() for output in outputs)


@pytest.mark.parametrize("change", [{"batch": 0}, {"hq": 3, "hk": 2}, {"hk": 0}, {"dim": 192}, {"scale": 0.0}])
def test_declines_what_it_cannot_do(hip_kernel: Builder, change: dict[str, float]) -> None:
    sizes = {"batch": 1, "hq": 2, "hk": 1, "dim": 64, "scale": 0.1} | change
    out, other = np.full(64, 0x7FFF, np.uint16), np.zeros(4096, np.uint16)
    status = hip_kernel("flash_attention_bwd")(
        *[other] * 6, out, out, out, int(sizes["batch"]), 1, 1, int(sizes["hq"]), int(sizes["hk"]), int(sizes["dim"]),
        0, 0, float(sizes["scale"]), other, 8192, None)
    assert status == UNSUPPORTED
    assert (out == 0x7FFF).all()


def test_one_pass_needs_room_for_the_sums_of_dq(hip_kernel: Builder) -> None:
    """130 rows of a head count as 256. A second call finds what the first one left in the sums, and is as right."""
    data, room = operands(130, 150), (8 + 4 * DIM) * HEADS * 256
    kernel = hip_kernel("flash_attention_bwd", "one_pass")
    for _ in range(2):
        status, outputs = run(kernel, data, room)
        assert status == 0
        for got, want in zip(outputs, gradients(data), strict=True):
            np.testing.assert_allclose(emulated.from_bf16(got), want, atol=0.02 * np.abs(want).max())
    status, outputs = run(kernel, data, room - 1)
    assert status == TOO_SMALL
    assert all((output == 0x7FFF).all() for output in outputs)


def test_one_pass_hides_keys_beyond_the_last(hip_kernel: Builder) -> None:
    """All scores near -312: a key of zeros that does not exist would have a weight of e^312, and 0 * inf reach dq."""
    data = operands(70, 40, apart=50.0)
    status, outputs = run(hip_kernel("flash_attention_bwd", "one_pass"), data, 1 << 20)
    assert status == 0
    for got, want in zip(outputs, gradients(data), strict=True):
        assert np.isfinite(emulated.from_bf16(got)).all()
        np.testing.assert_allclose(
            emulated.from_bf16(got)[..., 1:], want[..., 1:], atol=0.02 * np.abs(want[..., 1:]).max())
