# SPDX-License-Identifier: MIT
"""mla_decode_fp8 on mma.sync: right when run on the host thread by thread, and without spills as ptxas makes it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests.kernels.cuda.built import bodies, built, spills
from tests.kernels.cuda.latent_emulation import ROOT, EmulatedLatent

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")
KERNEL = {"problem": "mla_decode_fp8", "variant": "mma_sync"}


@pytest.fixture(scope="module")
def mla(tmp_path_factory):
    return EmulatedLatent(tmp_path_factory.mktemp("emulated"), {}, arch=89, **KERNEL)


def case(batch, hq, sk, lens="uniform", sq=1, causal=0):
    return {"batch": batch, "sq": sq, "hq": hq, "sk": sk, "lens": lens, "causal": causal}


def name(value: Any) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@emulated
@pytest.mark.parametrize("size", [
    case(1, 16, 1),
    case(1, 16, 740),                        # every slot several times, NaN behind the last token
    case(4, 16, 130, "mixed"),               # lengths 0, 1, page edges
    case(3, 16, 100, "mixed", 2, 1),         # 32 rows; a query that sees no token
    case(2, 64, 200, "ragged"),
], ids=name)
def test_it_matches_the_reference(mla, size):
    for eager in (False, True):
        mla.check(size, eager=eager)
        assert mla.library.emulation_bank_conflicts() == 0


@emulated
@pytest.mark.parametrize(("size", "processors"), [
    (case(4, 16, 700, "mixed"), 8),          # chunks cut requests, an empty one among them
    (case(34, 16, 40, "mixed"), 4),          # chunks of many requests, more than a warp has lanes
    (case(1, 128, 300), 12),                 # several row tiles per group
], ids=name)
def test_it_cuts_the_line_of_tokens(mla, size, processors):
    part = size["sq"] * size["hq"] * 513 * 4
    mla.check(size, processors=processors, workspace_bytes=(size["batch"] + 2 * processors) * part)
    assert mla.used_workspace


@emulated
def test_pages_are_read_ahead_in_order(mla):
    mla.check(case(1, 16, 64 * 66 + 1))      # more than the page numbers of two reads


def check_late_scale(mla):
    """The largest scale comes late, in one group only, and is 2^20 times those before."""
    size = case(1, 16, 300)
    q, cache, *rest = mla.reference.generate_input(**size, seed=3, device="cpu")
    scales = cache.view(torch.uint8)[..., 512:528].contiguous().view(torch.float32)
    scales *= 2.0**-12
    scales[rest[0][0, 3].item(), 5, 0, 2] *= 2.0**20
    cache.view(torch.uint8)[..., 512:528] = scales.view(torch.uint8)
    data = (q * 2.0**-100, cache, *rest)     # queries below fp16's range, too: probabilities are equal
    passed, message = mla.reference.check_implementation(data, tuple(mla.run(size, data)))
    assert passed, message


@emulated
def test_scales_of_any_size(mla):
    check_late_scale(mla)


@emulated
def test_it_gives_the_same_bits_however_copies_are_timed(mla):
    size = case(2, 16, 260, "ragged")
    data = mla.reference.generate_input(**size, seed=5, device="cpu")
    late, early = (mla.run(size, data, eager=eager) for eager in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(late, early, strict=True))


FAULTS = {   # file under kernels/cuda/tile, text, its replacement
    "a slot is read before it has landed": ("coded_latent_ring.h", "cp_async_wait<kAhead - 1>();", ""),
    "NaN behind the length": ("coded_latent_ring.h", "i < valid);", "true);"),
    "the reference changes, what was accumulated does not": (
        "coded_latent_softmax.h", "scores.change = before / reference;", ""),
}
RUN = """
import sys; sys.path.insert(0, {root!r})
import pathlib
from tests.kernels.cuda.built import bodies, built, spills
from tests.kernels.cuda.latent_emulation import EmulatedLatent
from tests.kernels.cuda.test_coded_latent import check_late_scale
kernel = EmulatedLatent(pathlib.Path({out!r}), {{}}, pathlib.Path({kernels!r}),
                        problem="mla_decode_fp8", variant="mma_sync", arch=89)
check_late_scale(kernel)
for tokens in (90, 700):
    for eager in (False, True):
        kernel.check(dict(batch=1, sq=1, hq=16, sk=tokens, lens="uniform", causal=0), eager=eager)
"""


@emulated
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulation_notices(fault, tmp_path):
    """A check of the checks: each fault gives a wrong result or a deadlock."""
    file, text, replacement = FAULTS[fault]
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    header = tmp_path / "kernels/cuda/tile" / file
    source = header.read_text()
    assert source.count(text) == 1
    header.write_text(source.replace(text, replacement))
    script = RUN.format(root=str(ROOT), out=str(tmp_path), kernels=str(tmp_path / "kernels"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "AssertionError" in done.stderr or "emulation:" in done.stderr


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built("mla_decode_fp8/mma_sync", "sm_89")


class TestCompiled:
    pytestmark = pytest.mark.toolchain

    def test_nothing_spills(self, made):
        reports = spills(made[0])
        assert len(reports) >= 4
        assert set(reports) == {("0", "0", "0")}
        assert not [line for line in made[0].splitlines() if re.search(r"\b(warning|error)\b", line)]

    def test_codes_are_converted_in_pairs_and_multiplied_as_fp16(self, made):
        functions = bodies(made[1], "coded_latent")
        assert len(functions) >= 2
        for body in functions:
            assert "F2FP.F16.E4M3.UNPACK_B" in body
            assert "HMMA.16816.F32" in body
            assert "HMMA.16816.F32.BF16" in body     # rotary columns
            assert "LDSM.16.MT88.4" in body          # values
            assert "LDGSTS.E.BYPASS.128" in body
