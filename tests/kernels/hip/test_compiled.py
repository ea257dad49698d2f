# SPDX-License-Identifier: MIT
"""Every mfma kernel as the gfx942 compiler makes it: no spills, no scratch, on the matrix cores, within LDS."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import backends
from backends.base import Binary, ToolchainMissing
from backends.source import KernelSource
from tests.kernels.hip.host import ROOT

pytestmark = pytest.mark.toolchain

# Upper half of the first word of the instruction's encoding.
FP8, BF16, FP16 = 0xD3F3, 0xD3E1, 0xD3CD
MATRIX_INSTRUCTIONS = {
    "fp8_gemm": {FP8}, "amd_fp8_mm": {FP8}, "flash_attention": {BF16, FP16}, "mla_decode": {BF16},
}
LDS_BYTES = 64 * 1024


@pytest.fixture(scope="module", params=sorted(MATRIX_INSTRUCTIONS))
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Binary]:
    """(problem, binary) for gfx942."""
    source = KernelSource.read(ROOT / f"kernels/hip/{request.param}/mfma.hip", ROOT)
    backend = backends.get("rocm")
    try:
        binary = backend.compile(source, backend.target("MI300"), cache_dir=tmp_path_factory.mktemp("cache"))
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    return request.param, binary


def test_nothing_spills(built: tuple[str, Binary]) -> None:
    kernels = built[1].usage.kernels
    assert kernels
    assert {(kernel.spill_bytes, kernel.scratch_bytes) for kernel in kernels} == {(0, 0)}


def test_two_waves_fit_each_simd(built: tuple[str, Binary]) -> None:
    """512 vector registers per lane and SIMD are shared by the waves on it; one wave alone hides nothing."""
    assert {kernel.name: kernel.registers for kernel in built[1].usage.kernels if kernel.registers > 256} == {}


def test_shared_memory_fits(built: tuple[str, Binary]) -> None:
    assert all(kernel.shared_bytes <= LDS_BYTES for kernel in built[1].usage.kernels)


def test_compiler_says_nothing(built: tuple[str, Binary]) -> None:
    assert [str(d) for d in built[1].diagnostics if d.severity in ("warning", "error")] == []


def test_matrix_cores_are_used(built: tuple[str, Binary]) -> None:
    problem, binary = built
    assert binary.code_object is not None
    with binary.code_object.open("rb") as file:
        text = ELFFile(file).get_section_by_name(".text").data()
    words = struct.unpack(f"<{len(text) // 4}I", text[: len(text) // 4 * 4])
    for encoding in MATRIX_INSTRUCTIONS[problem]:
        assert sum(word >> 16 == encoding for word in words) >= 64


def test_no_kernel_or_header_spells_the_refused_word() -> None:
    """Leaderboards refuse a source with these letters, comments included."""
    files = [path for path in sorted(Path(ROOT, "kernels/hip").rglob("*")) if path.is_file()]
    assert len(files) > 10
    assert [str(path) for path in files if "str" + "eam" in path.read_text().lower()] == []
