# SPDX-License-Identifier: MIT
"""kernels/hip/flash_attention/mfma.hip on the emulated MI300X: O and LSE against fp64 attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.kernels.hip import attention_cases, emulated
from tests.kernels.hip.conftest import Builder

UNSUPPORTED = -1


@dataclass(frozen=True)
class Case:
    batch: int
    sq: int
    sk: int
    hq: int
    hk: int
    dim: int
    causal: bool = False
    half: bool = False          # fp16 instead of bf16
    scale: float = 0.0          # 0: 1 / sqrt(dim)
    spread: float = 1.0         # standard deviation of q

    def operands(self) -> list[np.ndarray]:
        """q, k, v as bit patterns."""
        rng = np.random.default_rng([self.batch, self.sq, self.sk, self.hq, self.dim])
        shapes = ((self.batch, self.sq, self.hq, self.dim), *[(self.batch, self.sk, self.hk, self.dim)] * 2)
        values = [rng.standard_normal(shape) for shape in shapes]
        values[0] *= self.spread
        return [x.astype(np.float16).view(np.uint16) if self.half else emulated.bf16(x) for x in values]

    def decode(self, bits: np.ndarray) -> np.ndarray:
        return bits.view(np.float16).astype(np.float64) if self.half else emulated.from_bf16(bits)

    @property
    def softmax_scale(self) -> float:
        return self.scale or self.dim**-0.5


def run(kernel: emulated.Kernel, case: Case, operands: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """o (bit patterns) and lse, from poisoned outputs."""
    o = np.full(operands[0].shape, 0x7FFF, np.uint16)
    lse = np.full((case.batch, case.hq, case.sq), np.nan, np.float32)
    status = kernel(
        *operands, o, lse, case.batch, case.sq, case.sk, case.hq, case.hk, case.dim,
        int(case.half), int(case.causal), float(case.softmax_scale), None, 0, None)
    assert status == 0
    return o, lse


def check(case: Case, operands: list[np.ndarray], o: np.ndarray, lse: np.ndarray) -> None:
    q, k, v = (case.decode(x) for x in operands)
    got = case.decode(o)
    unit = 2.0**-11 if case.half else 2.0**-8
    visible = np.full(case.sq, case.sk)
    if case.causal:
        visible = np.clip(np.arange(case.sq) + 1 + case.sk - case.sq, 0, case.sk)
    for batch in range(case.batch):
        for head in range(case.hq):
            own = head // (case.hq // case.hk)
            want = attention_cases.attend(
                q[batch, :, head], k[batch, :, own], v[batch, :, own], visible, case.softmax_scale)
            attention_cases.check(got[batch, :, head], lse[batch, head].astype(np.float64), *want, unit=unit)


@pytest.mark.parametrize("half", [False, True], ids=["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize(("sq", "sk"), [(1, 1), (17, 65), (130, 130)])
def test_attention(hip_kernel: Builder, dim: int, sq: int, sk: int, causal: bool, half: bool) -> None:
    case = Case(1, sq, sk, 2, 1, dim, causal, half)
    operands = case.operands()
    check(case, operands, *run(hip_kernel("flash_attention"), case, operands))


@pytest.mark.parametrize("dim", [64, 128])
def test_one_query_tile_per_wave(hip_kernel: Builder, dim: int) -> None:
    case = Case(1, 70, 140, 2, 1, dim, causal=True)
    operands = case.operands()
    check(case, operands, *run(hip_kernel("flash_attention", QUERY_TILES=1), case, operands))


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize(("sq", "sk"), [(1, 200), (65, 17), (130, 1), (200, 70)])
def test_queries_and_keys_of_different_length(hip_kernel: Builder, dim: int, sq: int, sk: int) -> None:
    """More queries than keys: the first ones see nothing."""
    case = Case(1, sq, sk, 1, 1, dim, causal=True)
    operands = case.operands()
    o, lse = run(hip_kernel("flash_attention"), case, operands)
    check(case, operands, o, lse)
    blind = max(sq - sk, 0)
    assert not o[0, :blind].any()
    assert np.isneginf(lse[0, 0, :blind]).all()


@pytest.mark.parametrize(("hq", "hk"), [(3, 3), (6, 2), (5, 1)])
def test_grouped_heads_and_batches(hip_kernel: Builder, hq: int, hk: int) -> None:
    case = Case(3, 20, 33, hq, hk, 64, causal=True)
    operands = case.operands()
    check(case, operands, *run(hip_kernel("flash_attention"), case, operands))


@pytest.mark.parametrize(("hq", "dim", "causal"), [(310, 64, False), (310, 128, False), (160, 128, True)])
def test_more_workgroups_than_compute_units(hip_kernel: Builder, hq: int, dim: int, causal: bool) -> None:
    """Whole workgroups, and after 304 of them those that have half as many queries."""
    case = Case(1, 20, 200, hq, 1, dim, causal)
    operands = case.operands()
    check(case, operands, *run(hip_kernel("flash_attention"), case, operands))


@pytest.mark.parametrize("heads", [104, 105])
def test_longest_workgroups_of_all_heads_come_first(hip_kernel: Builder, heads: int) -> None:
    """Three workgroups a head, more than there are compute units; heads that the dies share evenly, or not."""
    case = Case(1, 520, 70, heads, 1, 64, causal=True)
    operands = case.operands()
    check(case, operands, *run(hip_kernel("flash_attention"), case, operands))


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_calls_give_the_same_bits(hip_kernel: Builder, dim: int) -> None:
    case = Case(1, 100, 150, 1, 1, dim, causal=True)
    operands = case.operands()
    kernel = hip_kernel("flash_attention")
    o, lse = run(kernel, case, operands)
    check(case, operands, o, lse)
    first = run(kernel, case, operands)
    np.testing.assert_array_equal(o, first[0])
    np.testing.assert_array_equal(lse, first[1])


@pytest.mark.parametrize("spread", [0.0, 30.0])
def test_flat_and_peaked_rows(hip_kernel: Builder, spread: float) -> None:
    """All scores equal; and scores so far apart that one key takes all, with maxima that rise late."""
    case = Case(1, 33, 300, 1, 1, 64, spread=spread)
    operands = case.operands()
    operands[1] = operands[1][:, np.argsort(case.decode(operands[1])[0, :, 0, 0])]
    check(case, operands, *run(hip_kernel("flash_attention"), case, operands))


def test_softmax_scale_is_used(hip_kernel: Builder) -> None:
    case = Case(1, 40, 70, 1, 1, 64, scale=1.5)
    operands = case.operands()
    check(case, operands, *run(hip_kernel("flash_attention"), case, operands))


def test_nan_stays_in_its_query(hip_kernel: Builder) -> None:
    case = Case(1, 40, 70, 1, 1, 128)
    operands = case.operands()
    operands[0][0, 7, 0, 100] = 0x7FC0
    o, _ = run(hip_kernel("flash_attention"), case, operands)
    nan = np.isnan(case.decode(o))
    assert nan[0, 7].all()
    assert nan.sum() == 128


@pytest.mark.parametrize("change", [
    {"dim": 96}, {"batch": 0}, {"sq": 0}, {"sk": 0}, {"hq": 3, "hk": 2}, {"hk": 0}, {"scale": -1.0}])
def test_declines_what_it_cannot_do(hip_kernel: Builder, change: dict[str, int]) -> None:
    case = Case(**({"batch": 1, "sq": 8, "sk": 8, "hq": 2, "hk": 1, "dim": 64} | change))
    o = np.full(64, 0x7FFF, np.uint16)
    status = hip_kernel("flash_attention")(
        *[np.zeros(64, np.uint16) for _ in range(3)], o, o,
        case.batch, case.sq, case.sk, case.hq, case.hk, case.dim, 0, 0, float(case.softmax_scale),
        None, 0, None)
    assert status == UNSUPPORTED
    assert (o == 0x7FFF).all()
