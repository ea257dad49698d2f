# SPDX-License-Identifier: MIT
"""kernels/hip/flash_attention_varlen/mfma.hip on the emulated MI300X: what the problem's cases leave out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.kernels.hip import attention_cases, emulated
from tests.kernels.hip.conftest import Builder

UNSUPPORTED = -1
DIM = 64


def operands(lengths: Sequence[tuple[int, int]], hq: int, hk: int) -> list[np.ndarray]:
    """q, k, v (bf16 bit patterns), cu_seqlens_q and cu_seqlens_k of sequences of (queries, keys)."""
    rng = np.random.default_rng([hq, *(keys for _, keys in lengths)])
    starts = [np.cumsum([0, *part]).astype(np.int32) for part in zip(*lengths, strict=True)]
    shapes = ((starts[0][-1], hq, DIM), *[(starts[1][-1], hk, DIM)] * 2)
    return [*(emulated.bf16(rng.standard_normal(shape)) for shape in shapes), *starts]


def run(
    kernel: emulated.Kernel, data: list[np.ndarray], causal: bool, workspace_bytes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """o (bit patterns) and lse, from poisoned outputs."""
    q, k, _, starts_q, starts_k = data
    o = np.full(q.shape, 0x7FFF, np.uint16)
    lse = np.full((q.shape[1], len(q)), np.nan, np.float32)
    workspace = np.full(workspace_bytes, 0xFF, np.uint8) if workspace_bytes else None
    longest = [int(np.diff(starts).max()) for starts in (starts_q, starts_k)]
    status = kernel(
        *data, o, lse, len(starts_q) - 1, len(q), len(k), *longest, q.shape[1], k.shape[1], DIM, 0, int(causal),
        DIM**-0.5, workspace, workspace_bytes, None)
    assert status == 0
    return o, lse


def check(data: list[np.ndarray], causal: bool, o: np.ndarray, lse: np.ndarray) -> None:
    q, k, v = (emulated.from_bf16(x) for x in data[:3])
    got, group = emulated.from_bf16(o), q.shape[1] // k.shape[1]
    for first, last, first_key, last_key in zip(data[3], data[3][1:], data[4], data[4][1:], strict=False):
        mine, keys = slice(first, last), slice(first_key, last_key)
        queries, count = last - first, last_key - first_key
        visible = np.clip(np.arange(queries) + 1 + count - queries, 0, count) if causal else np.full(queries, count)
        for head in range(q.shape[1]):
            want = attention_cases.attend(
                q[mine, head], k[keys, head // group], v[keys, head // group], visible, DIM**-0.5)
            attention_cases.check(got[mine, head], lse[head, mine].astype(np.float64), *want, unit=2.0**-8)


@pytest.mark.parametrize("workspace_bytes", [0, 4096])
def test_many_sequences_and_heads(hip_kernel: Builder, workspace_bytes: int) -> None:
    """70 sequences: a wave looks twice. More workgroups than run at once: they are sorted where there is room."""
    data = operands([(1 + i % 3, i % 7) for i in range(70)], hq=10, hk=5)
    check(data, True, *run(hip_kernel("flash_attention_varlen"), data, True, workspace_bytes))


def test_one_query_tile_per_wave(hip_kernel: Builder) -> None:
    data = operands([(70, 140), (3, 2)], hq=2, hk=1)
    check(data, True, *run(hip_kernel("flash_attention_varlen", QUERY_TILES=1), data, True, 64))


@pytest.mark.parametrize("change", [{"batch": 0}, {"hq": 3, "hk": 2}, {"hk": 0}, {"dim": 96}, {"scale": 0.0}])
def test_declines_what_it_cannot_do(hip_kernel: Builder, change: dict[str, float]) -> None:
    sizes = {"batch": 1, "hq": 2, "hk": 1, "dim": 64, "scale": 0.1} | change
    o, other = np.full(64, 0x7FFF, np.uint16), np.zeros(64, np.uint16)
    status = hip_kernel("flash_attention_varlen")(
        other, other, other, other, other, o, o, int(sizes["batch"]), 1, 1, 1, 1, int(sizes["hq"]), int(sizes["hk"]),
        int(sizes["dim"]), 0, 0, float(sizes["scale"]), None, 0, None)
    assert status == UNSUPPORTED
    assert (o == 0x7FFF).all()
