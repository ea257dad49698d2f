# SPDX-License-Identifier: MIT
"""Kernels of products as the gfx942 compiler makes them: no spills, no scratch, on the matrix cores, within LDS."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.base import Binary
from backends.errors import ToolchainMissing
from backends.machine import files
from tests.kernels.hip.emulated import ROOT, compiled

pytestmark = pytest.mark.toolchain

FP8, BF16, FP16 = "v_mfma_f32_16x16x32_fp8_fp8", "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x16_f16"
MATRIX_INSTRUCTIONS = {
    "fp8_gemm": {FP8}, "amd_fp8_mm": {FP8}, "flash_attention": {BF16, FP16}, "mla_decode": {BF16},
    "amd_mla_decode": {BF16}, "amd_moe": {FP16},
    "flash_attention_varlen": {BF16, FP16}, "flash_attention_fp8": {FP8}, "flash_attention_bwd": {BF16, FP16},
    "mla_decode_fp8": {BF16},
}
OTHERS = {"flash_attention_bwd": ["one_pass"]}      # beside mfma
ONE_WAVE = {"flash_attention_bwd/one_pass"}         # on a SIMD: it puts other work beside its own products
LDS_BYTES = 64 * 1024


@pytest.fixture(scope="module", params=[
    f"{problem}/{variant}" for problem in sorted(MATRIX_INSTRUCTIONS)
    for variant in ["mfma", *OTHERS.get(problem, [])]])
def built(request: pytest.FixtureRequest) -> tuple[str, Binary]:
    """(problem/variant, binary) for gfx942."""
    try:
        return request.param, compiled(ROOT / f"kernels/hip/{request.param}.hip", request.param.split("/")[0])
    except ToolchainMissing as missing:
        pytest.skip(str(missing))


def test_nothing_spills(built: tuple[str, Binary]) -> None:
    kernels = built[1].usage.kernels
    assert kernels
    assert {(kernel.spill_bytes, kernel.scratch_bytes) for kernel in kernels} == {(0, 0)}


def test_its_waves_fit_each_simd(built: tuple[str, Binary]) -> None:
    """512 vector registers per lane and SIMD are shared by the waves on it; one alone hides what it does itself."""
    most = 512 if built[0] in ONE_WAVE else 256
    assert {kernel.name: kernel.registers for kernel in built[1].usage.kernels if kernel.registers > most} == {}


def test_shared_memory_fits(built: tuple[str, Binary]) -> None:
    assert all(kernel.shared_bytes <= LDS_BYTES for kernel in built[1].usage.kernels)


def test_compiler_says_nothing(built: tuple[str, Binary]) -> None:
    assert [str(d) for d in built[1].diagnostics if d.severity in ("warning", "error")] == []


def test_matrix_cores_are_used(built: tuple[str, Binary]) -> None:
    name, binary = built
    assert binary.code_object is not None
    products = [each.opcode for function in files.read(binary.code_object).functions for each in function.code
                if each.unit == "tensor"]
    for opcode in MATRIX_INSTRUCTIONS[name.split("/")[0]]:
        assert products.count(opcode) >= 64


def test_no_kernel_or_header_spells_the_refused_word() -> None:
    """Leaderboards refuse a source with these letters, comments included."""
    files = [path for path in sorted(Path(ROOT, "kernels/hip").rglob("*")) if path.is_file()]
    assert len(files) > 10
    assert [str(path) for path in files if "str" + "eam" in path.read_text().lower()] == []
