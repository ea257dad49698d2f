# SPDX-License-Identifier: MIT
"""Hopper's MLA decode computes the right thing on an emulated H100."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel, copied
from tests.kernels.cuda.latent_cases import case, name
from tests.kernels.cuda.planting import Fault

KERNEL = "mla_decode/wgmma_tma"


def check_rises(mla, heads):
    """A few rows' references rise in even and odd pages, while products of the page before are still running."""
    size = case(1, heads, 330)
    q, cache, table, *rest = mla.reference.generate_input(**size, seed=7, device="cpu")
    for page, head, times in ((1, 3, 1.0), (2, 40, 1.0), (3, 40, 1.5), (4, 3, 2.0)):
        cache[table[0, page], 5, 0] = q[0, 0, head] * times
    data = (q, cache, table, *rest)
    mla.verify(size, data)


@pytest.fixture(scope="module")
def mla():
    """The code for 64 rows and more for any number of rows, in pairs of blocks where it can be."""
    return EmulatedKernel(KERNEL, {"SMALL_M_ROWS": 0, "PAIRS": 1})


@pytest.fixture(scope="module")
def shipped():
    return EmulatedKernel(KERNEL)


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("size", [
    case(1, 16, 1),
    case(1, 16, 64),
    case(1, 16, 330),                        # both stages several times, NaN behind the last token
    case(4, 16, 130, "mixed"),               # lengths 0, 1, page edges
    case(3, 16, 100, "mixed", 2, 1),         # 32 rows; a query that sees no token
    case(2, 64, 130, "ragged"),
    case(3, 64, 200, "mixed", 2, 1),         # pairs of blocks
    case(2, 128, 140, "ragged", 2, 1),       # two pairs
], ids=name)
def test_it_matches_the_reference(mla, size, schedule):
    mla.check(size, schedule=schedule)


@pytest.mark.parametrize(("size", "processors"), [
    (case(4, 16, 700, "mixed"), 8),          # chunks cut requests, an empty one among them
    (case(41, 64, 300, "mixed"), 8),         # chunks of many requests, more than a warp has lanes
    (case(1, 64, 400), 16),                  # more blocks than the line has chunks
    (case(3, 128, 900, "ragged"), 12),       # several pieces per pair
], ids=name)
def test_it_cuts_the_line_of_pages(mla, size, processors):
    part = size["sq"] * size["hq"] * 513 * 4
    mla.check(size, multiprocessors=processors, workspace_bytes=(size["batch"] + 2 * processors) * part)
    assert mla.used_workspace


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_queries_of_few_rows_come_when_those_before_are_read(mla, schedule):
    """Blocks with several requests: a product reads 64 rows, also where a request has 16."""
    mla.check(case(6, 16, 130, "mixed"), multiprocessors=2, workspace_bytes=1 << 22, schedule=schedule)


def test_pages_are_read_ahead_in_order(mla):
    mla.check(case(1, 16, 64 * 70 + 1))      # more than the page numbers of two reads


def test_it_gives_the_same_bits_however_copies_are_timed(mla):
    for size in (case(2, 16, 260), case(1, 128, 260)):
        mla.same_in_every_schedule(size)


@pytest.mark.parametrize("size", [
    case(1, 16, 1),
    case(1, 16, 330),                        # both warpgroups several times, NaN behind the last token
    case(4, 16, 130, "mixed"),               # lengths 0, 1, page edges
    case(3, 16, 330, "mixed", 2, 1),         # 32 rows; a query that sees no token
    case(2, 64, 330, "ragged"),
    case(2, 128, 330, "mixed", 2, 1),
], ids=name)
def test_the_shipped_choice_for_each_number_of_rows(shipped, size):
    shipped.check(size)
    part = size["sq"] * size["hq"] * 513 * 4
    shipped.check(size, multiprocessors=16, workspace_bytes=(size["batch"] + 32) * part)


@pytest.mark.parametrize("heads", [8, 40])
def test_rows_that_do_not_come_in_sixteens_are_refused(shipped, heads):
    """A warp stores sixteen: the last ones would lie behind the output."""
    with pytest.raises(AssertionError, match="status -1"):
        shipped.check(case(1, heads, 64))


def test_few_rows_give_the_same_bits_however_copies_are_timed(shipped):
    for size in (case(2, 16, 260), case(1, 16, 260, "uniform", 2, 1)):
        shipped.same_in_every_schedule(size, multiprocessors=3, workspace_bytes=1 << 20)


@pytest.mark.parametrize(("size", "processors"), [
    (case(2, 16, 640), 5),                   # two chunks of five pages each; one group has none
    (case(1, 16, 3000), 40),                 # 24 chunks of two pages, the first one shorter
    (case(2, 128, 700), 12),                 # three per request and row tile
], ids=name)
def test_equal_requests_are_cut_into_the_same_chunks(shipped, size, processors):
    shipped.check(size, multiprocessors=processors, workspace_bytes=1 << 23)
    assert shipped.used_workspace


@pytest.mark.parametrize("size", [
    case(2, 16, 640),
    case(3, 16, 180),                        # chunks of one and two pages, NaN behind the last token
    case(2, 8, 640, "uniform", 2, 1),        # 16 rows of two queries
], ids=name)
def test_two_chunks_of_a_request_are_a_cluster(shipped, size):
    shipped.check(size, multiprocessors=2 * size["batch"], workspace_bytes=1 << 22)
    assert not shipped.used_workspace


@pytest.mark.parametrize("size", [
    case(1, 16, 640),                        # a part for every block
    case(3, 16, 330, "mixed", 2, 1),         # two for some, of different requests
    case(1, 64, 400),
], ids=name)
def test_blocks_that_run_together_wait_for_each_other(mla, size):
    """One after the other, all but the last to store a part leave, and that one merges; the bits are the same."""
    mla.check(size, multiprocessors=5, workspace_bytes=1 << 22, schedule="random:2")
    mla.same_in_every_schedule(size, multiprocessors=5, workspace_bytes=1 << 22)


@pytest.mark.parametrize("factor", [2.0**-110, 2.0**110])
def test_parts_of_any_magnitude(mla, factor):
    """Parts are stored in 16 bits, but values that fp16 could not hold are right as well."""
    size = case(1, 16, 640)
    q, cache, *rest = mla.reference.generate_input(**size, seed=6, device="cpu")
    data = (q * 0, cache * factor, *rest)
    whole, cut = (
        mla.run(size, data, multiprocessors=5, workspace_bytes=space)[0].float() / factor for space in (0, 1 << 22))
    assert mla.used_workspace
    torch.testing.assert_close(cut, whole, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("heads", [64, 128])
def test_scores_that_rise_by_far(mla, heads):
    check_rises(mla, heads)


@pytest.mark.parametrize(("heads", "longest", "length", "processors"), [
    (16, 1280, 640, 9), (16, 1280, 130, 9), (16, 1280, 640, 4),
    (64, 700, 330, 6), (64, 700, 330, 2),       # loads begin before lengths are known
    (128, 700, 330, 12), (128, 700, 330, 4),
])
def test_equal_requests_shorter_than_their_table(shipped, heads, longest, length, processors):
    """The host chose the number of chunks for the longest request: chunks are shorter, or the first has no page.

    With four blocks of 16 rows, two of them are a cluster, as which they have nothing to do. The fewest of 64 rows have
    a request each."""
    size = case(2, heads, longest)
    data = shipped.reference.generate_input(**size, seed=5, device="cpu")
    data[3].fill_(length)
    shipped.verify(size, data, multiprocessors=processors, workspace_bytes=1 << 23)
    assert shipped.used_workspace == (heads == 16 or processors > heads // 32)


def test_equal_requests_are_cut_between_them_only(shipped):
    size = case(6, 16, 640)                  # 11 steps each; 4 chunks of 17, or 3 of 22
    data = shipped.reference.generate_input(**size, seed=5, device="cpu")
    uncut = shipped.run(size, data)
    for processors, same in ((4, False), (6, True)):
        found = shipped.run(size, data, multiprocessors=processors, workspace_bytes=1 << 20)
        assert torch.equal(uncut[0], found[0]) == same
        assert shipped.used_workspace != same


def check_lengths(mla, lengths, heads, queries, processors):
    """Requests have few parts on average, as which their merge is launched: all its blocks share the long ones."""
    size = case(len(lengths), heads, max(lengths), "uniform", queries, queries - 1)
    assert processors // len(lengths) + 1 < 8
    data = mla.reference.generate_input(**size, seed=5, device="cpu")
    data[3].copy_(torch.tensor(lengths))
    for table, length in zip(data[2], lengths, strict=True):
        for number, page in enumerate(table.tolist()):
            data[1][page, max(0, min(64, length - 64 * number)):] = torch.nan
    mla.verify(size, data, multiprocessors=processors, workspace_bytes=1 << 23)
    assert mla.used_workspace


SPARE = [64, 64 * 64 + 5, 1, 0, 64, 64, 1, 0, 2, 3, 4, 64], 16, 1, 24   # 17 parts; 4 of 12 merging blocks have no rows


@pytest.mark.parametrize(("lengths", "heads", "queries", "processors"), [
    ([1, 64 * 80 - 3, 63] + [0, 64, 1, 64] * 4, 16, 1, 132),      # 81 parts, the first without a token
    SPARE,
    ([100, 64 * 52 + 1, 64, 0, 1, 64 * 50, 64 * 20, 0], 16, 2, 50),   # 32 rows; of 18, 18 and 8 parts
    ([1, 64 * 12 + 1, 0, 200], 64, 1, 20),                        # merged by the blocks that have the parts
], ids=["16 rows", "16 rows, idle blocks", "32 rows", "64 rows"])
def test_long_requests_among_short_ones(shipped, lengths, heads, queries, processors):
    check_lengths(shipped, lengths, heads, queries, processors)


@pytest.mark.parametrize(("size", "processors"), [
    (case(1, 16, 64 * 280), 141),           # 16 rows, 140 parts: more than are asked for at once
    (case(5, 16, 700, "mixed"), 40),         # 80 rows
    (case(4, 16, 900, "ragged", 2, 1), 32),  # 128 rows
], ids=name)
def test_many_parts_of_every_request(shipped, size, processors):
    assert processors // size["batch"] + 1 >= 8
    shipped.check(size, multiprocessors=processors, workspace_bytes=1 << 23)
    assert shipped.used_workspace


@pytest.mark.parametrize(("lengths", "processors", "cut"), [
    ([64, 64 * 17, 100, 0, 128, 64 * 12, 1, 128, 128], 18, {1, 5}),     # long ones apart, each in several groups
    ([100] * 5 + [64 * 20] + [65] * 5, 12, {5}),
    ([200, 64, 1, 190, 70, 130, 0], 8, set()),                          # two to a group
], ids=["two long", "one long", "two each"])
def test_requests_that_fit_into_a_chunk_are_left_whole(shipped, lengths, processors, cut):
    """They have the bits of requests that no other block has a part of."""
    size = case(len(lengths), 128, max(lengths))
    data = shipped.reference.generate_input(**size, seed=5, device="cpu")
    data[3].copy_(torch.tensor(lengths))
    for table, length in zip(data[2], lengths, strict=True):
        for number, page in enumerate(table.tolist()):
            data[1][page, max(0, min(64, length - 64 * number)):] = torch.nan
    whole = shipped.run(size, data, multiprocessors=processors)
    found = shipped.run(size, data, multiprocessors=processors, workspace_bytes=1 << 23)
    passed, message = shipped.reference.check_implementation(data, tuple(found))
    assert passed, message
    assert shipped.used_workspace == bool(cut)
    assert {b for b in range(len(lengths)) if not torch.equal(found[0][b], whole[0][b])} == cut


# Counts stores that L2 is to keep.
STORE = "    asm volatile(\"st.global.L2::cache_hint"
COUNTED = """static __device__ int kept_stores;
extern "C" __attribute__((used)) int kept() {
    int count = 0;
    const int none = 0;
    cudaMemcpyFromSymbol(&count, kept_stores, sizeof count);
    cudaMemcpyToSymbol(kept_stores, &none, sizeof none);
    return count;
}
/// Store 16 bytes, aligned."""


def test_what_large_calls_do(tmp_path):
    """All calls are large ones, of which up to 9 pages keep their output in L2."""
    root = copied(
        tmp_path,
        ("mla/wgmma_mainloop.h", "kKeptPages = 10240", "kKeptPages = 9"),
        (f"{KERNEL}.cu", "kManyPages = 2048", "kManyPages = 0"),
        ("ptx/ldst.h", "/// Store 16 bytes, aligned.", COUNTED),
        ("mla/wgmma_mainloop.h", "keeps(piece) ? policy_evict_last() : policy_evict_normal()", "keeps(piece) ? 1 : 2"),
        ("ptx/ldst.h", STORE, f"    if (policy == 1) atomicAdd(&kept_stores, 1);\n{STORE}"),
    )
    kernel = EmulatedKernel(KERNEL, {"SMALL_M_ROWS": 0, "PAIRS": 0, "EARLY_START": 0}, root=root)
    for batch, length, expected in ((3, 180, 3), (4, 180, 0), (3, 100, 0)):   # 9 pages, 12, and 6 where 9 are expected
        size = case(batch, 64, 180)
        data = kernel.reference.generate_input(**size, seed=5, device="cpu")
        data[3].fill_(length)
        kernel.verify(size, data, multiprocessors=batch, workspace_bytes=1 << 22)
        # Outputs that L2 keeps, 16 bytes a store.
        assert kernel.library(batch).kept() == expected * 64 * 1024 // 16
    kernel.check(case(2, 128, 330, "ragged"))
    kernel.check(case(3, 16, 400, "mixed", 2, 1), multiprocessors=8, workspace_bytes=1 << 21)


# Warpgroup 1 waits for its product with the other's values and gives them back, behind either of two comments.
GIVEN_BACK = "\n                wgmma_wait<0>();\n                wgmma_results(out);\n                release(0, 1);"
GIVEN_BACK_FAULT = GIVEN_BACK.replace("wgmma_wait", "if (!FAULT) wgmma_wait", 1)


@pytest.mark.parametrize("heads", [16, 64])
def test_steep_scores(shipped, heads):
    """Beyond the range of fp32's exponentials, with maxima that jump between pages; parts of both kinds are merged."""
    size = case(2, heads, 700) | {"steep": 1}
    part = heads * 514 * 4
    shipped.check(size, multiprocessors=4, workspace_bytes=64 * part)


FAULTS = {
    "a stage is loaded while it is read": Fault(
        "mla/wgmma_producer.h", "mbarrier_wait(memory.empty(stage, part), parity ^ 1);", shows="shared-race"),
    "scores before their panel": Fault(
        "mla/wgmma_mainloop.h", "mbarrier_wait(full + panel * 8, parity);", shows="shared-race"),
    "softmax before the scores": Fault(
        "mla/wgmma_mainloop.h", "                begin_accepting();\n                wgmma_wait<0>();\n",
        "                begin_accepting();\n                if (!FAULT) wgmma_wait<0>();\n", shows="in-flight"),
    "P before it is there": Fault(
        "mla/wgmma_mainloop.h", "named_barrier_sync(kReadyBarrier + (group ^ 1), 256);",
        "named_barrier_arrive(kReadyBarrier + (group ^ 1), 256);", shows="uninitialised"),
    "references rise: a product is still under way": Fault(
        "mla/wgmma_mainloop.h", f"none does.{GIVEN_BACK}", f"none does.{GIVEN_BACK_FAULT}", shows="in-flight"),
    "references rise: one warp waits alone": Fault(
        "mla/wgmma_mainloop.h", "factor[1] != 1.0f)) rescale(out, factor);",
        "factor[1] != 1.0f)) { if (FAULT) wgmma_wait<0>(); rescale(out, factor); }", shows="collective"),
    "values in front of scores are freed while they are read": Fault(
        "mla/wgmma_mainloop.h", "wgmma_wait<1>();\n                    release(1, 0);",
        "if (!FAULT) wgmma_wait<1>();\n                    release(1, 0);", shows="shared-race"),
    "values are freed before the exponentials while they are read": Fault(
        "mla/wgmma_mainloop.h", f"500 cycles later.{GIVEN_BACK}", f"500 cycles later.{GIVEN_BACK_FAULT}",
        shows="shared-race"),
    "pages of the request that was expected": Fault(
        "mla/wgmma_producer.h", "if (expected) return numbers;", "if (expected || FAULT) return numbers;",
        shows="barrier"),
    "NaN behind the length": Fault("mla/wgmma_mainloop.h", "clear_tail(group, length - first_token);"),
    "one block of a pair frees a stage": Fault(
        "mla/wgmma.h", "4 * Shape::kPair", "(FAULT ? 4 : 4 * Shape::kPair)", shows="shared-race"),
    "the references of the other page": Fault(
        "mla/wgmma_mainloop.h", "memory.references(group ^ 1)[row(half)];",
        "memory.references(FAULT ? group : group ^ 1)[row(half)];", shows="uninitialised"),
    "sums before the other's are there": Fault(
        "mla/wgmma_mainloop.h", "named_barrier_sync(kSumBarrier + (group ^ 1), 256);",
        "named_barrier_arrive(kSumBarrier + (group ^ 1), 256);", shows="shared-race"),
    "shares: codes of a part that saw no token": Fault(
        "mla/wgmma_mainloop.h", "codes[unit * 32] = make_uint4(0, 0, 0, 0);"),
    "shares: those of someone who left": Fault(
        "mla/workspace.h", "now < kLeft ? kOwnShare : kAllShares",
        "now < kLeft || FAULT ? kOwnShare : kAllShares"),
    "shares: notes before they are there": Fault("mla/gather.h", "cp_async_wait<1>();", shows="shared-race"),
    "shares: codes before they are there": Fault("mla/gather.h", "cp_async_wait<0>();", shows="shared-race"),
    "shares: counts are not set back": Fault("mla/workspace.h", "if (done(last) == parts - 1) *at = 0;"),
}
FEW_FAULTS = {
    "a page is loaded while it is read": Fault(
        "mla/small_m.h", "mbarrier_wait(memory.empty(stage, part), tile / Shape::kStages % 2 ^ 1);", shows="mbarrier"),
    "a page's first part is asked for, and the others are not told": Fault(
        "mla/small_m.h", "other < Shape::kParts; ++other)", "other < (FAULT ? 1 : Shape::kParts); ++other)",
        shows="barrier"),
    "maxima before all warps stored theirs": Fault(
        "mla/small_m_mainloop.h", "        group_barrier();\n        bool raised",
        "        if (!FAULT) group_barrier();\n        bool raised", shows="uninitialised"),
    "one warpgroup's sums": Fault(
        "mla/small_m_mainloop.h", "sum = group == 0 ? x + y : y + x;", "sum = x;"),
    "the weights of another row": Fault(
        "mla/small_m_mainloop.h", "__shfl_sync(0xffffffffu, row_factor, row_of(slot));",
        "__shfl_sync(0xffffffffu, row_factor, FAULT ? slot : row_of(slot));"),
    "cluster: the other's output before it is there": Fault(
        "mla/small_m.h", "cluster_barrier();   // both blocks have left their outputs",
        "if (!FAULT) cluster_barrier();", shows="cluster"),
    "cluster: the weight of the other's rows": Fault(
        "mla/small_m.h", "Exp2()(its_lse * kLog2E - shift)",
        "Exp2()((FAULT ? own_lse : its_lse) * kLog2E - shift)"),
    "merge of few parts: outputs that were never written": Fault(
        "mla/combine.h", "if (factor != 0.0f) add_weighted(sum[v], factor, x[s][v]);",
        "if (s0 + s < list.count) add_weighted(sum[v], factor, x[s][v]);"),
    "merge of many parts: outputs that were never written": Fault(
        "mla/combine.h", "if (factor != 0.0f) add_weighted(sum, factor, x[i]);",
        "if (s0 + i * kSharers + sharer < list.count) add_weighted(sum, factor, x[i]);"),
    "merge of many parts: the part that starts the request": Fault(
        "mla/combine.h", "(k == 0 && s == 0 ? start : rest_lse",
        "(k == 0 && s == 0 && !FAULT ? start : rest_lse"),
    "equal requests: the merge has another one's parts": Fault(
        "mla/combine.h", "first = request * cut.shares,",
        "first = (FAULT ? request ^ 1 : request) * cut.shares,"),
    "merge of a long request: nobody has the items of blocks without rows": Fault(
        "mla/combine.h", "a.schedule.batch * spare + request * busy + share",
        "(FAULT ? block : a.schedule.batch * spare + request * busy + share)"),
    "merge: another request on the line": Fault("mla/schedule.h", "place.request += first;", shows="global-race"),
    "line: requests behind the 32nd": Fault(
        "mla/schedule.h", "place.start += __shfl_sync(0xffffffffu, behind, 31);"),
}


def built(root, few, heads):
    kernel = EmulatedKernel(KERNEL, {"PAIRS": 1, "SMALL_M_ROWS": few}, root=root)

    def check(fault):
        if fault.startswith("references rise"):
            check_rises(kernel, heads[-1])
            return
        # What a merge gets must hold a part that starts a request and has no token.
        batch, tokens, processors = {
            "merge": (4, 700, 8), "share": (4, 700, 8)}.get(fault[:5], (2, 500, 4))
        if fault.startswith("merge of many"):
            batch, tokens, processors = 2, 1500, 60
        if fault.startswith("merge of a long"):
            check_lengths(kernel, *SPARE)
        if fault.startswith("equal"):
            kernel.check(case(2, 16, 700), multiprocessors=6, workspace_bytes=1 << 22)
        if fault.startswith("cluster"):
            kernel.check(case(2, 16, 640), multiprocessors=4, workspace_bytes=1 << 22)
        if fault.startswith("line"):
            kernel.check(case(48, 16, 130, "mixed"), multiprocessors=8, workspace_bytes=1 << 22)
        calls = 2 if fault.startswith("shares") else 1      # what one leaves behind, the next finds
        for number in (heads[:1] if processors > 4 else heads) * calls:
            kernel.check(
                case(batch, number, tokens, "mixed" if processors > 4 else "ragged"),
                multiprocessors=processors, workspace_bytes=1 << 23 if processors > 4 else 0)

    return kernel, check


def planted(root):
    return built(root, 0, (16, 128))


def planted_for_few_rows(root):
    return built(root, 32, (16,))


@pytest.mark.parametrize(("table", "build"), [(FAULTS, planted), (FEW_FAULTS, planted_for_few_rows)],
                         ids=["many rows", "few rows"])
def test_faults_are_noticed(tmp_path, table, build):
    """A check of the checks."""
    planting.noticed(planting.outcomes(tmp_path, table, build), table)
