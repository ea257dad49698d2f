# SPDX-License-Identifier: MIT
"""kernels/hip/mla_decode/mfma.hip on the emulated MI300X: O and LSE against fp64 attention over the same pages.

Slots that no token owns hold NaN, and the block table's entries beyond a request's pages point outside the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.kernels.hip import attention_cases, emulated
from tests.kernels.hip.conftest import Builder

UNSUPPORTED = -1
PAGE, COLUMNS, VALUES = 64, 576, 512
NAN, NOWHERE = 0x7FC0, 0x7FFFFFF0


@dataclass(frozen=True)
class Case:
    lengths: Sequence[int]
    hq: int = 16
    sq: int = 1
    causal: bool = False
    spare_pages: int = 1          # table entries per request beyond the longest one's

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def table_width(self) -> int:
        return -(-max(self.lengths) // PAGE) + self.spare_pages

    @property
    def scale(self) -> float:
        return COLUMNS**-0.5

    def operands(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
        """q, kv_cache, block_table, seqlens; and each request's tokens [length, 576]."""
        rng = np.random.default_rng([*self.lengths, self.hq, self.sq])
        pages = [-(-length // PAGE) for length in self.lengths]
        cache = np.full((sum(pages) + 2, PAGE, COLUMNS), NAN, np.uint16)
        numbers = iter(rng.permutation(len(cache)))
        table = np.full((self.batch, self.table_width), NOWHERE, np.int32)
        tokens = []
        for request, length in enumerate(self.lengths):
            own = emulated.bf16(rng.standard_normal((length, COLUMNS)))
            tokens.append(own)
            for page in range(pages[request]):
                number = next(numbers)
                table[request, page] = number
                part = own[page * PAGE : (page + 1) * PAGE]
                cache[number, : len(part)] = part
        q = emulated.bf16(rng.standard_normal((self.batch, self.sq, self.hq, COLUMNS)) * 2)
        return q, cache, table, np.array(self.lengths, np.int32), tokens


def run(kernel: emulated.Kernel, case: Case, parts: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """o (bit patterns) and lse, from poisoned outputs and workspace (room for ``parts``)."""
    q, cache, table, lengths, _ = case.operands()
    o = np.full((case.batch, case.sq, case.hq, VALUES), 0x7FFF, np.uint16)
    lse = np.full((case.batch, case.hq, case.sq), np.nan, np.float32)
    workspace_bytes = parts * case.batch * case.sq * case.hq * (VALUES + 1) * 4
    workspace = np.full(workspace_bytes, 0xFF, np.uint8) if parts else None
    status = kernel(
        q, cache, table, lengths, o, lse,
        case.batch, case.sq, case.hq, len(cache), case.table_width, int(case.causal), float(case.scale),
        workspace, workspace_bytes, None)
    assert status == 0
    return o, lse


def check(case: Case, o: np.ndarray, lse: np.ndarray) -> None:
    q, _, _, _, tokens = case.operands()
    for request, length in enumerate(case.lengths):
        kv = emulated.from_bf16(tokens[request])
        for query in range(case.sq):
            seen = length - (case.sq - 1 - query if case.causal else 0)
            want = attention_cases.attend(
                emulated.from_bf16(q[request, query]), kv, kv[:, :VALUES], np.full(case.hq, max(seen, 0)), case.scale)
            attention_cases.check(
                emulated.from_bf16(o[request, query]), lse[request, :, query].astype(np.float64), *want, unit=2.0**-8)


@pytest.mark.parametrize("lengths", [[1], [63, 64], [65, 0, 200], [31, 32, 33]])
@pytest.mark.parametrize("hq", [16, 64])
def test_lengths(hip_kernel: Builder, hq: int, lengths: list[int]) -> None:
    case = Case(lengths, hq=hq)
    check(case, *run(hip_kernel("mla_decode"), case))


def test_a_table_without_spare_entries(hip_kernel: Builder) -> None:
    """Looking up pages ahead must stop with the last one: behind it the table's memory ends."""
    case = Case([64, 128], spare_pages=0)
    check(case, *run(hip_kernel("mla_decode"), case))


@pytest.mark.parametrize("parts", [0, 2])
def test_more_pages_than_lanes(hip_kernel: Builder, parts: int) -> None:
    """67 pages: a wave holds 64 of the table's entries at a time."""
    case = Case([66 * PAGE + 3], spare_pages=0)
    check(case, *run(hip_kernel("mla_decode", SPLITS=2), case, parts=parts))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("hq", [16, 64, 128])
def test_two_queries(hip_kernel: Builder, hq: int, causal: bool) -> None:
    """With the causal limit, the first query of a request of length 1 sees nothing."""
    case = Case([1, 66, 0, 2], hq=hq, sq=2, causal=causal)
    o, lse = run(hip_kernel("mla_decode"), case)
    check(case, o, lse)
    assert np.isneginf(lse[0, :, 0]).all() == causal
    assert np.isneginf(lse[2]).all()
    assert not o[2].any()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("parts", [2, 8])
@pytest.mark.parametrize("causal", [False, True])
def test_split_kv(hip_kernel: Builder, parts: int, causal: bool) -> None:
    """Parts without a token of theirs must not be read: their rows hold NaN."""
    case = Case([200, 0, 65, 1, 130], sq=2, causal=causal)
    check(case, *run(hip_kernel("mla_decode", SPLITS=parts), case, parts=parts))


def test_split_kv_of_many_heads(hip_kernel: Builder) -> None:
    case = Case([100, 33], hq=128)
    check(case, *run(hip_kernel("mla_decode", SPLITS=2), case, parts=2))


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [1, 2])
def test_fewer_rows_per_workgroup(hip_kernel: Builder, tiles: int) -> None:
    case = Case([70, 3], hq=64)
    check(case, *run(hip_kernel("mla_decode", MAX_ROW_TILES=tiles, SPLITS=2), case, parts=2))


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_a_small_workspace_means_fewer_parts(hip_kernel: Builder, room: int) -> None:
    case = Case([300])
    check(case, *run(hip_kernel("mla_decode"), case, parts=room))
    check(case, *run(hip_kernel("mla_decode", SPLITS=8), case, parts=room))


@pytest.mark.parametrize(("hq", "sq"), [(16, 1), (16, 2), (128, 1)])
def test_calls_give_the_same_bits(hip_kernel: Builder, hq: int, sq: int) -> None:
    case = Case([130, 64], hq=hq, sq=sq)
    kernel = hip_kernel("mla_decode", SPLITS=2)
    o, lse = run(kernel, case, parts=2)
    check(case, o, lse)
    first = run(kernel, case, parts=2)
    np.testing.assert_array_equal(o, first[0])
    np.testing.assert_array_equal(lse, first[1])


def test_rows_that_do_not_fill_a_workgroup(hip_kernel: Builder) -> None:
    """48 rows in a workgroup of 64, and 80 in two of them."""
    for case in (Case([40, 70], hq=48), Case([40], hq=16, sq=5, causal=True)):
        check(case, *run(hip_kernel("mla_decode"), case))


def test_an_empty_table(hip_kernel: Builder) -> None:
    case = Case([0, 0], spare_pages=0)
    o, lse = run(hip_kernel("mla_decode"), case, parts=2)
    assert not o.any()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize("change", [{"batch": 0}, {"sq": 0}, {"hq": 8}, {"hq": 24}, {"scale": 0.0}])
def test_declines_what_it_cannot_do(hip_kernel: Builder, change: dict[str, float]) -> None:
    sizes = {"batch": 1, "sq": 1, "hq": 16, "scale": 0.1} | change
    o = np.full(VALUES, 0x7FFF, np.uint16)
    other = np.zeros(64, np.uint8)
    status = hip_kernel("mla_decode")(
        other, other, other, other, o, o, int(sizes["batch"]), int(sizes["sq"]), int(sizes["hq"]), 1, 1, 0,
        float(sizes["scale"]), None, 0, None)
    assert status == UNSUPPORTED
    assert (o == 0x7FFF).all()
