# SPDX-License-Identifier: MIT
"""The mma_sync attention kernels compute the right thing on emulated GPUs of each target."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cuda import planting
from tests.kernels.cuda.emulated import EmulatedKernel
from tests.kernels.cuda.latent_cases import case as mla_case
from tests.kernels.cuda.planting import Fault

ARCHES = ("sm_89", "sm_90a")


def built(problem, arch, root=None):
    return EmulatedKernel(f"{problem}/mma_sync", arch=arch, root=root)


@pytest.fixture(scope="module", params=ARCHES)
def flash(request):
    return built("flash_attention", request.param)


@pytest.fixture(scope="module")
def varlen():
    return built("flash_attention_varlen", "sm_90a")


@pytest.fixture(scope="module")
def backward():
    return built("flash_attention_bwd", "sm_89")


@pytest.fixture(scope="module", params=ARCHES)
def mla(request):
    return built("mla_decode", request.param)


def flash_case(batch, sq, sk, hq, hk, dim, causal, half=0):
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "half": half}


def varlen_case(batch, tq, tk, lens, hq, hk, dim, causal, half=0):
    return {"batch": batch, "tq": tq, "tk": tk, "lens": lens, "hq": hq, "hk": hk, "dim": dim, "causal": causal,
            "half": half}


@pytest.mark.parametrize("case", [
    flash_case(1, 1, 1, 1, 1, 64, 0),               # warps without a query
    flash_case(2, 50, 65, 2, 1, 64, 0, 1),          # grouped heads, tails on both sides
    flash_case(1, 150, 150, 1, 1, 64, 1),           # three query tiles, the first of which stops early
    flash_case(1, 17, 129, 2, 2, 128, 1),           # bottom-right mask
    flash_case(1, 97, 33, 1, 1, 128, 1, 1),         # rows that see no key, warps that see none
    flash_case(1, 40, 200, 1, 1, 128, 0),           # more key tiles than stages
    flash_case(1, 20, 64, 1, 1, 256, 0),
    flash_case(1, 66, 70, 1, 1, 256, 1, 1),
], ids=lambda case: "-".join(map(str, case.values())))
def test_flash_attention_of_few_queries_matches_the_reference(flash, case):
    flash.check(case)


@pytest.mark.parametrize("case", [
    flash_case(1, 3, 70, 8, 1, 64, 1),              # a tile of 24 pairs of a query and a head
    flash_case(2, 5, 100, 6, 1, 128, 1, 1),         # two of six heads share
    flash_case(1, 17, 9, 4, 1, 128, 1),             # two tiles, rows that see no key
    flash_case(1, 1, 70, 8, 2, 256, 0),
], ids=lambda case: "-".join(map(str, case.values())))
def test_heads_that_share_keys_share_tiles(flash, case):
    flash.check(case)


def test_parts_of_shared_tiles_are_merged(flash):
    flash.check(flash_case(1, 3, 1500, 4, 1, 64, 1), workspace_bytes=1 << 18, multiprocessors=58)
    assert flash.used_workspace


@pytest.mark.parametrize("case", [
    flash_case(2, 70, 65, 2, 1, 64, 0, 1),
    flash_case(1, 150, 150, 1, 1, 64, 1),
    flash_case(1, 97, 33, 1, 1, 128, 1, 1),
    flash_case(1, 70, 200, 1, 1, 128, 0),
    flash_case(1, 66, 70, 1, 1, 256, 1, 1),
    flash_case(1, 65, 140, 1, 1, 256, 0),
], ids=lambda case: "-".join(map(str, case.values())))
def test_flash_attention_in_whole_tiles_matches_the_reference(flash, case):
    flash.check(case, multiprocessors=1)                 # too few for tiles of few queries


@pytest.mark.parametrize("case", [
    flash_case(1, 3, 1500, 2, 1, 64, 1),
    flash_case(1, 5, 1300, 1, 1, 128, 0, 1),
    flash_case(1, 30, 400, 1, 1, 256, 1),
    flash_case(1, 135, 1300, 1, 1, 64, 1),          # the first rows see fewer key tiles than there are parts
], ids=lambda case: "-".join(map(str, case.values())))
def test_flash_attention_merges_split_keys(flash, case):
    part = case["batch"] * case["sq"] * case["hq"] * (case["dim"] + 1) * 4
    flash.check(case, workspace_bytes=2 * part + 4, multiprocessors=58)
    flash.check(case, workspace_bytes=16 * part, multiprocessors=58)
    assert flash.used_workspace


@pytest.mark.parametrize("case", [
    varlen_case(3, 40, 200, "mixed", 2, 1, 64, 0),          # tiles of pairs
    varlen_case(9, 330, 510, "mixed", 2, 2, 64, 1),         # without queries, without keys, one of either
    varlen_case(13, 500, 560, "mixed", 1, 1, 128, 1, 1),
    varlen_case(3, 200, 150, "tail", 1, 1, 256, 0),
    varlen_case(5, 5, 300, "decode", 8, 1, 128, 1),
], ids=lambda case: "-".join(map(str, case.values())))
def test_packed_sequences_match_the_reference(varlen, case):
    varlen.check(case, workspace_bytes=1 << 12)


def test_flash_attention_gives_the_same_bits_however_copies_and_warps_are_timed(flash):
    flash.same_in_every_schedule(flash_case(1, 130, 150, 1, 1, 64, 1))


def test_rows_without_keys_are_exact(flash):
    case = flash_case(1, 40, 8, 1, 1, 64, 1)
    o, lse = flash.run(case, flash.reference.generate_input(**case, seed=6, device="cpu"))
    assert not o[:, :32].any()
    assert torch.isneginf(lse[..., :32]).all()
    assert torch.isfinite(lse[..., 32:]).all()


@pytest.mark.parametrize("case", [
    mla_case(1, 16, 1),
    mla_case(4, 16, 130, "mixed"),                  # lengths 0, 1, page edges
    mla_case(3, 16, 100, "mixed", 2, 1),            # 32 rows; a query that sees no token
    mla_case(2, 64, 70, "ragged"),
    mla_case(3, 64, 66, "mixed", 2, 1),             # 128 rows
], ids=lambda case: "-".join(map(str, case.values())))
def test_mla_decode_matches_the_reference(mla, case):
    mla.check(case)


@pytest.mark.parametrize(("case", "processors"), [
    (mla_case(4, 16, 600, "mixed"), 8),             # chunks cut requests, an empty one among them
    (mla_case(40, 16, 130, "mixed"), 8),            # chunks of many requests, more than a warp has lanes
    (mla_case(3, 16, 300, "mixed", 2, 1), 16),
    (mla_case(1, 64, 400, "uniform"), 58),          # more blocks than the line has chunks
    (mla_case(2, 128, 260, "ragged"), 24),          # several row tiles per group
], ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value))
def test_mla_decode_cuts_the_line_of_tokens(mla, case, processors):
    part = case["sq"] * case["hq"] * 513 * 4
    mla.check(case, workspace_bytes=(case["batch"] + 3) * part + 4, multiprocessors=processors)
    mla.check(case, workspace_bytes=(case["batch"] + 2 * processors) * part, multiprocessors=processors)
    assert mla.used_workspace


def test_mla_decode_gives_the_same_bits_however_copies_and_warps_are_timed(mla):
    for case in (mla_case(2, 16, 260), mla_case(1, 64, 260)):
        mla.same_in_every_schedule(case)


@pytest.mark.parametrize("case", [
    flash_case(1, 1, 1, 1, 1, 64, 0),
    flash_case(1, 40, 70, 2, 1, 64, 1),             # grouped heads, bottom-right mask
    flash_case(1, 140, 33, 2, 2, 64, 1, 1),         # rows that see no key, a tile of queries without any
    flash_case(1, 200, 200, 1, 1, 64, 1),           # key tiles that start behind the first queries
    flash_case(2, 50, 130, 1, 1, 128, 0),
    flash_case(1, 131, 131, 2, 1, 128, 1, 1),
    flash_case(1, 30, 260, 4, 2, 128, 1),
    flash_case(2, 40, 70, 2, 1, 256, 1),            # two warps of a role each
    flash_case(1, 70, 33, 1, 1, 256, 1, 1),
], ids=lambda case: "-".join(map(str, case.values())))
def test_flash_attention_bwd_matches_the_reference(backward, case):
    backward.check(case, workspace_bytes=8 * case["batch"] * case["hq"] * case["sq"])
    assert backward.used_workspace


def test_flash_attention_bwd_gives_the_same_bits_however_copies_and_warps_are_timed(backward):
    backward.same_in_every_schedule(flash_case(1, 130, 150, 2, 1, 64, 1), workspace_bytes=1 << 16)
    backward.same_in_every_schedule(flash_case(1, 70, 70, 2, 1, 256, 1), workspace_bytes=1 << 16)


@pytest.mark.parametrize("half", [0, 1])
def test_steep_scores(flash, varlen, backward, half):
    """Beyond the range of fp32's exponentials, with maxima that jump between tiles of keys."""
    flash.check(flash_case(1, 20, 500, 4, 2, 64, 0, half) | {"steep": 1})
    varlen.check(varlen_case(2, 40, 700, "tail", 2, 1, 64, 1, half) | {"steep": 1}, workspace_bytes=1 << 12)
    for dim in (64, 256):
        backward.check(flash_case(1, 40, 500, 2, 1, dim, 1, half) | {"steep": 1}, workspace_bytes=1 << 16)


def test_steep_scores_of_tokens(mla):
    mla.check(mla_case(2, 64, 500) | {"steep": 1})


FAULTS = {   # of each kernel: faults that the runs above must be able to see
    "flash_attention": {
        "copies overwrite a stage in use": Fault(
            "attention/mma_sync_forward.h", "__syncthreads();  // the step's tiles are there",
            "if (FAULT) __syncwarp(); else __syncthreads();  // the step's tiles are there", "shared-race"),
        "mask one key late": Fault(
            "attention/mma_sync_forward.h", "+ 1 + keys - queries", "+ 1 + FAULT + keys - queries"),
    },
    "flash_attention_varlen": {
        "a row of the next sequence is written": Fault(
            "attention/varlen.h", "(tile.queries << pack) - tile.first_row)",
            "(tile.queries << pack) - tile.first_row + FAULT)", "global-race"),  # two blocks write it
    },
    "flash_attention_bwd": {
        "gradients of keys: mask one key late": Fault(
            "attention/mma_sync_backward.h", "key > first_query + column + ahead",
            "key > first_query + column + ahead + FAULT"),
        "gradients of queries: mask one key late": Fault(
            "attention/mma_sync_backward.h", "8 * half + ahead + 1", "8 * half + ahead + 1 + FAULT"),
    },
    "mla_decode": {
        "unused slots are read": Fault(
            "mla/mma_sync.h", "length - step * Tile::kTokens;",
            "FAULT ? Tile::kTokens : length - step * Tile::kTokens;"),
        "softmax before all parts of the scores": Fault(
            "mla/mma_sync.h", "__syncthreads();  // all parts",
            "if (FAULT) __syncwarp(); else __syncthreads();  // all parts", "uninitialised"),
    },
}


def planted(problem, root):
    kernel = built(problem, "sm_90a", root)
    case = {"mla_decode": mla_case(2, 16, 100, "ragged"), "flash_attention_varlen": varlen_case(
        3, 90, 100, "tail", 1, 1, 64, 1)}.get(problem, flash_case(1, 40, 200, 1, 1, 64, 1))
    return kernel, lambda _fault: kernel.check(case, workspace_bytes=1 << 10 if problem[-3:] in ("bwd", "len") else 0)


@pytest.mark.parametrize("problem", FAULTS)
def test_faults_are_noticed(tmp_path, problem):
    """A check of the checks."""
    planting.noticed(planting.outcomes(tmp_path, FAULTS[problem], planted, problem), FAULTS[problem])
