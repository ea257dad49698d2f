# SPDX-License-Identifier: MIT
"""mla_decode_fp8 on wgmma: right on an emulated H100, and as ptxas should make it."""

from __future__ import annotations

import re

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.built import bodies, built, spills
from tests.kernels.cuda.emulated import EmulatedKernel, copied
from tests.kernels.cuda.latent_cases import case, check_late_scale, name
from tests.kernels.cuda.planting import Fault

KERNEL = "mla_decode_fp8/wgmma_bulk"


@pytest.fixture(scope="module")
def mla():
    return EmulatedKernel(KERNEL)


def space(size, processors):
    """Bytes of a workspace with room for all parts."""
    return (size["batch"] + 2 * processors) * size["sq"] * size["hq"] * 513 * 4


def stale(folder):
    """What a block reads of the lengths before the kernel before has ended is wrong."""
    return copied(folder, ("mla/fp8_small_m_shape.h", "memory.lengths()[b] = peek(a.schedule.seqlens + b);",
                           "memory.lengths()[b] = peek(a.schedule.seqlens + b) / 2 + 1;"))


@pytest.fixture(scope="module")
def hurried(tmp_path_factory):
    return EmulatedKernel(KERNEL, root=stale(tmp_path_factory.mktemp("stale")))


@pytest.mark.parametrize("size", [
    case(1, 16, 1),
    case(1, 16, 740),                        # every slot several times, NaN behind the last token
    case(4, 16, 130, "mixed"),               # lengths 0, 1, page edges
    case(3, 16, 100, "mixed", 2, 1),         # 32 rows; a query that sees no token
    case(1, 64, 400),
    case(2, 64, 100, "mixed", 2, 1),         # two blocks per request
], ids=name)
def test_it_matches_the_reference(mla, size):
    for schedule in ("late", "eager"):
        mla.check(size, schedule=schedule)


@pytest.mark.parametrize(("size", "processors", "together", "parts"), [
    (case(4, 16, 700, "mixed"), 8, True, True),    # chunks cut requests, an empty one among them
    (case(34, 16, 40, "mixed"), 4, True, True),    # chunks of many requests, more than a warp has lanes
    (case(7, 16, 40, "mixed"), 4, True, False),    # cut in starts alone
    (case(3, 64, 700, "ragged"), 5, False, True),
    (case(2, 16, 570, "mixed"), 13, False, True),  # one request of more parts than its batch has on average
    (case(4, 16, 1030, "mixed"), 27, False, True),
    (case(2, 16, 1100, "mixed"), 17, False, True),  # in so many that blocks of a second kernel merge
], ids=name)
def test_it_cuts_the_line_of_pages(mla, size, processors, together, parts):
    mla.check(size, multiprocessors=processors, workspace_bytes=space(size, processors))
    assert mla.used_workspace == parts
    if together:                             # blocks wait for each other's parts
        mla.check(size, multiprocessors=processors, workspace_bytes=space(size, processors), schedule="random:1")


@pytest.mark.parametrize(("size", "processors", "parts"), [
    (case(3, 16, 600), 6, False),            # two blocks to a request
    (case(2, 16, 590), 9, False),            # four, of which the first has fewer pages
    (case(1, 16, 1700), 2, False),           # so many pages that blocks keep step
    (case(3, 16, 64), 8, False),             # a block without pages in each; a cluster without a request
    (case(2, 16, 600), 7, False),            # three
    (case(1, 16, 600), 11, False),           # eight instead of ten, of which three have no page
    (case(2, 16, 600, "ragged"), 4, True),   # clusters of two, but chunks anywhere
    (case(2, 16, 700, "mixed"), 8, True),
], ids=name)
def test_clusters_add_up_parts_of_equal_requests(mla, size, processors, parts):
    mla.check(size, multiprocessors=processors, workspace_bytes=space(size, processors))
    assert mla.used_workspace == parts


@pytest.mark.parametrize(("size", "processors", "blocks", "parts"), [
    (case(1, 16, 600), 11, 8, True), (case(2, 16, 500), 8, 2, True), (case(1, 16, 700), 9, 2, True),
], ids=name)
def test_parts_are_merged_where_clusters_have_no_room(tmp_path, size, processors, blocks, parts):
    """On a GPU without clusters of so many blocks."""
    text = "    answer = (told ? count : 0) + 1;"
    root = copied(tmp_path, ("common/launch_cluster.h", text, f"    if (cluster >= {blocks}) count = 0;\n{text}"))
    mla = EmulatedKernel(KERNEL, root=root)
    mla.check(size, multiprocessors=processors, workspace_bytes=space(size, processors))
    assert mla.used_workspace == parts


@pytest.fixture(scope="module")
def twice():
    """It merges in a second kernel, always."""
    return EmulatedKernel(KERNEL, {"LAST_MERGES": 0})


@pytest.mark.parametrize(("kernel", "size", "processors", "launches"), [
    ("mla", case(8, 16, 200, "mixed"), 5, 1),
    ("mla", case(9, 16, 200, "mixed"), 5, 2),     # more requests
    ("mla", case(2, 16, 1100), 17, 2),            # more parts
    ("mla", case(2, 16, 600), 7, 1),              # clusters add up: nothing is left to do
    pytest.param("twice", case(8, 16, 200, "mixed"), 5, 2, marks=pytest.mark.slow),
    pytest.param("twice", case(2, 16, 600), 7, 2, marks=pytest.mark.slow),
], ids=name)
def test_a_second_kernel_runs_where_requests_or_parts_are_many(request, kernel, size, processors, launches):
    kernel = request.getfixturevalue(kernel)
    assert len(kernel.counted(size, multiprocessors=processors, workspace_bytes=space(size, processors))) == launches


@pytest.mark.parametrize(("size", "processors"), [
    (case(4, 16, 700, "mixed"), 8), (case(3, 16, 600, "ragged"), 5),
    (case(1, 16, 500, "uniform", 3), 9),      # 48 rows: three blocks to a chunk
    (case(4, 16, 1030, "mixed"), 27),         # more parts than are weighed at once
], ids=name)
def test_the_last_block_merges_whichever_it_is(mla, size, processors):
    mla.same_in_every_schedule(size, multiprocessors=processors, workspace_bytes=space(size, processors))
    mla.check(size, multiprocessors=processors, workspace_bytes=space(size, processors), schedule="random:2")


@pytest.mark.parametrize(("size", "processors"), [
    (case(3, 16, 600), 6), (case(4, 16, 500, "mixed"), 5), (case(34, 16, 40, "mixed"), 4),
], ids=name)
def test_lengths_may_change_until_the_kernel_before_has_ended(hurried, size, processors):
    hurried.check(size, multiprocessors=processors, workspace_bytes=space(size, processors))


def test_pages_are_read_ahead_in_order(mla):
    mla.check(case(1, 16, 64 * 66 + 1))      # more than the page numbers of two reads


@pytest.mark.parametrize("seed", range(1, 6))
def test_copies_land_in_any_order(mla, seed):
    mla.check(case(1, 16, 700), multiprocessors=1, schedule=f"random:{seed}")


def check_rising_scores(mla, heads):
    """Each page's scores exceed those before by more than a reference for exponents allows for."""
    size = case(1, heads, 300)
    q, cache, *rest = mla.reference.generate_input(**size, seed=4, device="cpu")
    rotary = cache.view(torch.uint8)[..., 528:].contiguous().view(torch.bfloat16)
    q[..., 512:], rotary[:] = 1.0, 0.0
    for page, number in enumerate(rest[0][0].tolist()):
        rotary[number] = 4.0 * page          # 18 more in each score
    cache.view(torch.uint8)[..., 528:] = rotary.view(torch.uint8)
    mla.verify(size, (q, cache, *rest))


@pytest.mark.parametrize("heads", [16, 64])
def test_references_are_raised(mla, heads):
    check_late_scale(mla, heads)
    check_rising_scores(mla, heads)


@pytest.mark.parametrize("heads", [16, 64])
def test_it_gives_the_same_bits_however_copies_are_timed(mla, heads):
    mla.same_in_every_schedule(case(1, heads, 260))


@pytest.mark.parametrize("heads", [16, 64])
def test_steep_scores(mla, heads):
    """Beyond the range of fp32's exponentials, with maxima that jump between pages."""
    size = case(2, heads, 700) | {"steep": 1}
    mla.check(size, multiprocessors=4, workspace_bytes=space(size, 4))


FAULTS = {
    "a page is taken for the other group's": Fault(
        "mla/fp8_small_m_shape.h", "Shape::kPageBarriers", "(FAULT ? 5 : Shape::kPageBarriers)",
        "shared-race", times=2),
    "a slot is filled while it is read": Fault(
        "mla/fp8_producer.h", "mbarrier_wait(memory.empty(slot), parity);", shows="shared-race"),
    "NaN behind the length": Fault(
        "mla/fp8_small_m_mainloop.h", "if (first_token + Shape::kTokens > length) clear_tail",
        "if (!FAULT && first_token + Shape::kTokens > length) clear_tail", "uninitialised"),
    "the reference for scales changes, the output does not": Fault(
        "mla/fp8_small_m_mainloop.h", "change = before / state.reference;"),
    "references are raised for the first page alone": Fault(
        "mla/fp8_small_m_mainloop.h", "named_barrier_any(kFp8GroupBarrier + group, 128, above)",
        "named_barrier_any(kFp8GroupBarrier + group, 128, !FAULT && above)"),
    "queries are e4m3": Fault(
        "mla/fp8_small_m_products.h", "smaller = pack_e4m3(x[0] - low.x, x[1] - low.y, x[2] - high.x, x[3] - high.y);",
        "smaller = 0;"),
    "lengths are not read again": Fault(
        "mla/fp8_small_m_shape.h", "if (checks ? check(lane) : told()) return;", "return;"),
    "the first part of a request is left out": Fault(
        "mla/fp8_small_m_merge.h", "for (int s0 = 0; s0 < cut.count;", "for (int s0 = FAULT ? 1 : 0; s0 < cut.count;"),
    "a number stays for the next launch": Fault("mla/fp8_small_m_merge.h", "*numbers[i] = 0;"),
    "a part of a cluster keeps its weight": Fault(
        "mla/fp8_small_m_mainloop.h", "weight[s] = Exp2()(lse[s] * kLog2E - shift);", "weight[s] = 1.0f;"),
}
WIDE_FAULTS = {           # of 64 rows
    "weights are read before they are there": Fault(
        "mla/fp8_wide.h", "mbarrier_wait(memory.ready(buffer), tile / 2 % 2);", shows="uninitialised"),
    "the output does not follow the references": Fault(
        "mla/fp8_wide.h", "if (memory.changed()[buffer] != 0)",
        "if (!FAULT && memory.changed()[buffer] != 0)"),
}


def planted(root):
    kernel = EmulatedKernel(KERNEL, root=stale(root))

    def check(fault):
        if fault in (planting.NONE, "a page is taken for the other group's"):     # copies land in any order
            for seed in range(1, 9):
                kernel.check(case(1, 16, 700), multiprocessors=1, schedule=f"random:{seed}")
        for heads in {planting.NONE: (16, 64)}.get(fault, (64,) if fault in WIDE_FAULTS else (16,)):
            check_late_scale(kernel, heads)
            check_rising_scores(kernel, heads)
            for tokens in (90, 700):
                kernel.check(case(1, heads, tokens))
        if fault not in WIDE_FAULTS:
            for size, processors in ((case(4, 16, 200, "mixed"), 5), (case(3, 16, 400), 6),
                                     (case(4, 16, 300, "ragged"), 5), (case(4, 16, 700, "mixed"), 8)):
                kernel.check(size, multiprocessors=processors, workspace_bytes=space(size, processors))

    return kernel, check


def test_faults_are_noticed(tmp_path):
    """A check of the checks."""
    table = FAULTS | WIDE_FAULTS
    planting.noticed(planting.outcomes(tmp_path, table, planted), table)


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built(KERNEL)


class TestCompiled:
    pytestmark = pytest.mark.toolchain

    def test_nothing_is_serialised_and_no_loop_of_products_spills(self, made):
        log, library = made
        assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]
        assert len(spills(log)) >= 4
        for body in bodies(library, "fp8_small_m") + bodies(library, "merge_latent"):
            assert not re.search(r"\b(LDL|STL)\b", body)
        for body in bodies(library, "fp8_wide"):   # 64 rows: what outlives a piece's loop, and queries on their way
            for between in re.split(r"\bHGMMA\b", body)[1:-1]:
                if between.count("\n") < 200:
                    assert not re.search(r"\b(LDL|STL)\b", between)

    def test_codes_reach_wgmma_through_registers(self, made):
        functions = bodies(made[1], "fp8_small_m") + bodies(made[1], "fp8_wide")
        assert len(functions) >= 3
        for body in functions:
            assert "F2FP.F16.E4M3.UNPACK_B" in body
            assert re.search(r"HGMMA\.64x\d+x16\.F32 R\d+, R\d+, gdesc", body)
            assert re.search(r"HGMMA\.64x\d+x16\.F32\.BF16 R\d+, R\d+, gdesc", body)   # rotary columns
            assert "LDSM.16.MT88.4" in body          # values
            assert "UBLKCP" in body
        for body in bodies(made[1], "fp8_small_m"):      # 16 rows: addresses of a warp, keys not converted
            products = body[body.index("GMMA"):body.rindex("GMMA")]
            assert products.count("R2UR") < 20
            assert re.search(r"QGMMA\.64x32x32\.F32\.E4M3\.E4M3 R\d+, R\d+, gdesc", body)
