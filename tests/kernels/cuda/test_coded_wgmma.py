# SPDX-License-Identifier: MIT
"""mla_decode_fp8 on wgmma: right when run on the host thread by thread, and as ptxas should make it."""

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
KERNEL = {"problem": "mla_decode_fp8", "variant": "wgmma_bulk"}
ADDER_BITS = 13      # fraction bits the tensor cores keep of e4m3 products' sums


@pytest.fixture(scope="module")
def mla(tmp_path_factory):
    made = EmulatedLatent(tmp_path_factory.mktemp("emulated"), {}, **KERNEL)
    made.library.emulation_adder(ADDER_BITS)
    return made


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
    case(1, 64, 400),
    case(2, 64, 100, "mixed", 2, 1),         # two blocks per request
], ids=name)
def test_it_matches_the_reference(mla, size):
    for eager in (False, True):
        mla.check(size, eager=eager)
        assert mla.library.emulation_bank_conflicts() == 0


@emulated
@pytest.mark.parametrize(("size", "processors"), [
    (case(4, 16, 700, "mixed"), 8),          # chunks cut requests, an empty one among them
    (case(34, 16, 40, "mixed"), 4),          # chunks of many requests, more than a warp has lanes
    (case(3, 64, 700, "ragged"), 5),
    (case(2, 16, 700), 5),                   # equal requests, cut alike
], ids=name)
def test_it_cuts_the_line_of_pages(mla, size, processors):
    part = size["sq"] * size["hq"] * 513 * 4
    mla.check(size, processors=processors, workspace_bytes=(size["batch"] + 2 * processors) * part)
    assert mla.used_workspace


@emulated
def test_pages_are_read_ahead_in_order(mla):
    mla.check(case(1, 16, 64 * 66 + 1))      # more than the page numbers of two reads


def check_late_scale(mla, heads):
    """The largest scale comes late, in one group only, and is 2^20 times those before."""
    size = case(1, heads, 300)
    q, cache, *rest = mla.reference.generate_input(**size, seed=3, device="cpu")
    scales = cache.view(torch.uint8)[..., 512:528].contiguous().view(torch.float32)
    scales *= 2.0**-12
    scales[rest[0][0, 3].item(), 5, 0, 2] *= 2.0**20
    cache.view(torch.uint8)[..., 512:528] = scales.view(torch.uint8)
    data = (q * 2.0**-100, cache, *rest)     # queries below fp16's range, too: probabilities are equal
    passed, message = mla.reference.check_implementation(data, tuple(mla.run(size, data)))
    assert passed, message


def check_rising_scores(mla, heads):
    """Each page's scores exceed those before by more than a reference for exponents allows for."""
    size = case(1, heads, 300)
    q, cache, *rest = mla.reference.generate_input(**size, seed=4, device="cpu")
    rotary = cache.view(torch.uint8)[..., 528:].contiguous().view(torch.bfloat16)
    q[..., 512:], rotary[:] = 1.0, 0.0
    for page, number in enumerate(rest[0][0].tolist()):
        rotary[number] = 4.0 * page          # 18 more in each score
    cache.view(torch.uint8)[..., 528:] = rotary.view(torch.uint8)
    data = (q, cache, *rest)
    passed, message = mla.reference.check_implementation(data, tuple(mla.run(size, data)))
    assert passed, message


@emulated
@pytest.mark.parametrize("heads", [16, 64])
def test_references_are_raised(mla, heads):
    check_late_scale(mla, heads)
    check_rising_scores(mla, heads)


@emulated
@pytest.mark.parametrize("heads", [16, 64])
def test_it_gives_the_same_bits_however_copies_are_timed(mla, heads):
    size = case(1, heads, 260)
    data = mla.reference.generate_input(**size, seed=5, device="cpu")
    late, early = (mla.run(size, data, eager=eager) for eager in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(late, early, strict=True))


FAULTS = {   # file under kernels/cuda/tile, text, what stands for it where FAULT is its number, heads
    "a slot is filled while it is read": (
        "wgmma_coded_produce.h", "mbarrier_wait(memory.empty(slot), parity);",
        "if (FAULT) mbarrier_wait(memory.empty(slot), parity);", 16),
    "NaN behind the length": (
        "wgmma_coded_consume.h", "if (first_token + Shape::kTokens > length) clear_tail",
        "if (FAULT && first_token + Shape::kTokens > length) clear_tail", 16),
    "the reference for scales changes, the output does not": (
        "wgmma_coded_consume.h", "change = before / state.reference;",
        "if (FAULT) change = before / state.reference;", 16),
    "queries are e4m3": (
        "wgmma_coded_terms.h", "make_uint4(smaller[0],", "make_uint4(0, 0, 0, 0); if (FAULT) "
        "*reinterpret_cast<uint4*>(at + Shape::kPanelBytes) = make_uint4(smaller[0],", 16),
    "weights are read before they are there": (
        "wgmma_coded_wide_values.h", "mbarrier_wait(memory.ready(buffer), tile / 2 % 2);",
        "if (FAULT) mbarrier_wait(memory.ready(buffer), tile / 2 % 2);", 64),
    "the output does not follow the references": (
        "wgmma_coded_wide_values.h", "if (memory.changed()[buffer] != 0)",
        "if (FAULT && memory.changed()[buffer] != 0)", 64),
}
RUN = """
import sys; sys.path.insert(0, {root!r})
import ctypes, os, pathlib
from tests.kernels.cuda.latent_emulation import EmulatedLatent
from tests.kernels.cuda.test_coded_wgmma import KERNEL, check_late_scale, check_rising_scores
kernel = EmulatedLatent(pathlib.Path({out!r}), {{}}, pathlib.Path({kernels!r}), **KERNEL)
for number, heads in enumerate({heads}):
    child = os.fork()
    if child == 0:
        ctypes.c_int.in_dll(kernel.library, "emulation_fault").value = number
        check_late_scale(kernel, heads or 16)
        check_rising_scores(kernel, heads or 16)
        for tokens in (90, 700):
            for eager in (False, True):
                kernel.check(dict(batch=1, sq=1, hq=heads or 16, sk=tokens, lens="uniform", causal=0), eager=eager)
        os._exit(0)
    print("fault", number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0, flush=True)
"""


@emulated
def test_the_emulation_notices(tmp_path):
    """A check of the checks: each fault gives a wrong result or a deadlock, and none (number 0) does not."""
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    folder = tmp_path / "kernels/cuda/tile"
    (folder / "fault.h").write_text(
        '#pragma once\nextern "C" { inline __attribute__((used)) int emulation_fault = 0; }\n')
    for number, (file, text, replacement, _) in enumerate(FAULTS.values(), 1):
        source = (folder / file).read_text()
        assert source.count(text) == 1
        source = source.replace(text, replacement.replace("FAULT", f"emulation_fault != {number}"))
        (folder / file).write_text('#include "tile/fault.h"\n' + source)
    heads = [0, *(fault[3] for fault in FAULTS.values())]
    script = RUN.format(root=str(ROOT), out=str(tmp_path), kernels=str(tmp_path / "kernels"), heads=heads)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [f"fault {number} {number > 0}" for number in range(len(heads))]


@pytest.fixture(scope="module")
def made():
    """(ptxas log, library)"""
    return built("mla_decode_fp8/wgmma_bulk")


class TestCompiled:
    pytestmark = pytest.mark.toolchain

    def test_nothing_is_serialised_and_no_loop_of_products_spills(self, made):
        log, library = made
        assert not [line for line in log.splitlines() if re.search(r"\b(warning|error)\b|Performance Loss", line)]
        assert len(spills(log)) >= 4
        for body in bodies(library, "coded_pages") + bodies(library, "merge_latent"):
            assert not re.search(r"\b(LDL|STL)\b", body)
        for body in bodies(library, "coded_wide"):   # 64 rows: what outlives a piece's loop, and queries on their way
            for between in re.split(r"\bHGMMA\b", body)[1:-1]:
                if between.count("\n") < 200:
                    assert not re.search(r"\b(LDL|STL)\b", between)

    def test_codes_reach_wgmma_through_registers(self, made):
        functions = bodies(made[1], "coded_pages") + bodies(made[1], "coded_wide")
        assert len(functions) >= 3
        for body in functions:
            assert "F2FP.F16.E4M3.UNPACK_B" in body
            assert re.search(r"HGMMA\.64x\d+x16\.F32 R\d+, R\d+, gdesc", body)
            assert re.search(r"HGMMA\.64x\d+x16\.F32\.BF16 R\d+, R\d+, gdesc", body)   # rotary columns
            assert "LDSM.16.MT88.4" in body          # values
            assert "UBLKCP" in body
        for body in bodies(made[1], "coded_pages"):      # 16 rows' keys: not converted
            assert re.search(r"QGMMA\.64x16x32\.F32\.E4M3\.E4M3 R\d+, R\d+, gdesc", body)
