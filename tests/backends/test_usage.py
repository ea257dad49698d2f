# SPDX-License-Identifier: MIT
"""Resource usage from real ptxas logs and from code objects, and occupancy against the vendors' own calculators."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from backends import _codeobject, _names, _occupancy, _ptxas
from backends.cuda import CudaBackend
from backends.toolchain import Tool

LOGS = Path(__file__).parent / "data" / "logs"
NVCC = CudaBackend(Tool(Path("nvcc"), "nvcc 13.0"))


def test_ptxas_functions_of_hopper() -> None:
    found = {report.name: report for report in _ptxas.functions((LOGS / "ptxas_sm_90a.log").read_text())}
    assert list(found) == ["_Z1kILi3EEvPfi", "_Z5free_Pfi", "_Z4slowPfi", "_Z5spillPfi"]
    assert found["_Z1kILi3EEvPfi"] == _ptxas.FunctionReport(
        "_Z1kILi3EEvPfi", "sm_90a", registers=12, shared_bytes=1024)
    assert found["_Z5spillPfi"] == _ptxas.FunctionReport(
        "_Z5spillPfi", "sm_90a", registers=64, stack_bytes=2088, spill_stores=3524, spill_loads=3544)
    assert found["_Z5free_Pfi"].stack_bytes == 256
    assert not found["_Z4slowPfi"].entry


def test_usage_of_ada_has_no_launch_bounds_without_the_library(tmp_path: Path) -> None:
    usage = NVCC.usage((LOGS / "ptxas_sm_89.log").read_text(), tmp_path / "none.so", NVCC.target("L4"))
    facts = {kernel.name: (kernel.registers, kernel.spill_bytes, kernel.shared_bytes, kernel.scratch_bytes)
             for kernel in usage.kernels}
    assert facts == {"k<3>": (12, 0, 1024, 0), "free_": (48, 0, 0, 256), "spill": (64, 4480, 0, 1576)} or facts == {
        "k": (12, 0, 1024, 0), "free_": (48, 0, 0, 256), "spill": (64, 4480, 0, 1576)}   # without a demangler
    assert usage.spill_bytes == 4480
    assert all(kernel.threads is None and kernel.occupancy is None for kernel in usage.kernels)


def test_a_function_that_is_called_and_spills_shows_up(tmp_path: Path) -> None:
    log = (
        "ptxas info    : Compiling entry function '_Z1kv' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1kv\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 100+16 bytes smem, 400 bytes cmem[0]\n"
        "ptxas info    : Function properties for _Z4slowv\n"
        "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
    )
    kernels = NVCC.usage(log, tmp_path / "none.so", NVCC.target("H100")).kernels
    assert [(kernel.name, kernel.registers, kernel.spill_bytes, kernel.shared_bytes) for kernel in kernels] == [
        ("k", 255, 0, 100), ("slow (called function)", 0, 28, 0)]


def test_a_log_without_a_report_is_no_usage(tmp_path: Path) -> None:
    assert NVCC.usage("", tmp_path / "none.so", NVCC.target("H100")).kernels == ()


# --- cubins -----------------------------------------------------------------------------------------------------

def test_no_cubin_in_what_only_looks_like_a_fat_binary() -> None:
    magic = struct.pack("<I", 0xBA55ED50)
    assert list(_ptxas.cubins(magic)) == []
    assert list(_ptxas.cubins(magic + struct.pack("<HHQ", 1, 16, 10**9) + b"\0" * 100)) == []
    empty_entries = magic + struct.pack("<HHQ", 1, 16, 64) + b"\0" * 64
    assert list(_ptxas.cubins(empty_entries)) == []


def test_cubins_are_found_behind_ptx() -> None:
    entry = struct.Struct("<HHIQ")
    ptx = entry.pack(1, 257, entry.size, 4) + b".ptx"
    cubin = entry.pack(2, 257, entry.size + 2, 8) + b"\0\0" + b"\x7fELFabcd"
    fat = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(ptx + cubin)) + ptx + cubin
    assert list(_ptxas.cubins(b"junk" + fat + b"junk")) == [b"\x7fELFabcd"]


# --- occupancy --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("registers", "shared", "threads", "warps"),
    [   # as NVIDIA's occupancy calculator has it for compute capability 9.0
        (32, 0, 1024, 64), (33, 0, 1024, 32), (64, 0, 256, 32), (128, 0, 128, 16), (168, 0, 384, 12), (255, 0, 256, 8),
        (16, 0, 32, 32), (32, 100 * 1024, 256, 16), (32, 227 * 1024, 128, 4), (32, 113 * 1024, 128, 8),
        (255, 0, 1024, 0),
    ],
)
def test_occupancy_of_hopper(registers: int, shared: int, threads: int, warps: int) -> None:
    assert _occupancy.nvidia(_occupancy.SM90, registers, shared, threads) * 64 == warps


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "warps"), [(40, 0, 256, 48), (64, 0, 256, 32), (32, 49 * 1024, 128, 8),
                                                  (32, 0, 32, 24), (32, 0, 1024, 32)])
def test_occupancy_of_ada(registers: int, shared: int, threads: int, warps: int) -> None:
    assert _occupancy.nvidia(_occupancy.SM89, registers, shared, threads) * 48 == warps


@pytest.mark.parametrize(
    ("vgprs", "sgprs", "lds", "threads", "waves"),
    [   # as LLVM's own "Occupancy" remark has it per SIMD, times four
        (64, 32, 0, 256, 32), (65, 32, 0, 256, 28), (128, 32, 0, 256, 16), (256, 32, 0, 256, 8), (512, 32, 0, 256, 4),
        (32, 102, 0, 64, 28), (32, 32, 32 * 1024, 256, 8), (32, 32, 64 * 1024, 512, 8), (128, 32, 0, 1024, 16),
        (257, 32, 0, 512, 0), (32, 32, 0, 128, 32),
    ],
)
def test_occupancy_of_cdna3(vgprs: int, sgprs: int, lds: int, threads: int, waves: int) -> None:
    assert _occupancy.cdna3(vgprs, sgprs, lds, threads) * 32 == waves


# --- code objects -----------------------------------------------------------------------------------------------

def bundle(entries: dict[str, bytes]) -> bytes:
    header = 32 + sum(24 + len(name) for name in entries)
    table, content = b"", b""
    for name, code in entries.items():
        table += struct.pack("<QQQ", header + len(content), len(code), len(name)) + name.encode()
        content += code
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + content


@pytest.mark.parametrize(
    "name", ["hipv4-amdgcn-amd-amdhsa--gfx942", "hip-amdgcn-amd-amdhsa-unknown-gfx942",
             "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-"])
def test_the_code_object_is_taken_out_of_a_bundle(tmp_path: Path, name: str) -> None:
    library = tmp_path / "kernel.so"
    packed = bundle({"host-x86_64-unknown-linux-gnu-": b"", "hipv4-amdgcn-amd-amdhsa--gfx940": b"other", name: b"code"})
    library.write_bytes(b"junk __CLANG_OFFLOAD_BUNDLE__" + packed + b"junk")
    assert _codeobject.extract(library, "gfx942") == b"code"
    with pytest.raises(ValueError, match="no code object for gfx90a"):
        _codeobject.extract(library, "gfx90a")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an ELF file at all"])
def test_what_is_no_code_object_has_no_metadata(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an ELF file"):
        _codeobject.metadata(data)


# --- names ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("void k<3>(float*, int)", "k<3>"),
        ("scale_kernel(float const*, float*)", "scale_kernel"),
        ("void a::b::k<a::Tile<1, (Mode)2>, float (*)(int)>(int)", "a::b::k<a::Tile<1, (Mode)2>, float (*)(int)>"),
        ("void (anonymous namespace)::k(float*)", "(anonymous namespace)::k"),
        ("plain_c_symbol", "plain_c_symbol"),
        ("std::vector<int, std::allocator<int> > f<2>(int)", "f<2>"),
    ],
)
def test_a_name_loses_return_type_and_parameters(full: str, short: str) -> None:
    assert _names.shorten(full) == short


@pytest.mark.parametrize(
    ("mangled", "name"),
    [("_Z1kILi3EEvPfi", "k"), ("_ZN2ab1cEv", "ab::c"), ("_ZN12_GLOBAL__N_14anonEPf", "(anonymous)::anon"),
     ("plain", "plain"), ("_Z", "_Z")],
)
def test_without_a_demangler_the_identifiers_remain(mangled: str, name: str) -> None:
    assert _names.plain(mangled) == name
    assert _names.demangle([mangled], [None]) == {mangled: name}


@pytest.mark.parametrize(
    ("text", "same"),
    [("void k<(int)3, (bool)1>(float *)", "k<3, true>"), ("void k<(bool)0, (int)-4>()", "k<false, -4>"),
     ("void k<(unsigned int)4, (long)7, (unsigned long)8>()", "k<4u, 7l, 8ul>"), ("k<(Mode)1>()", "k<(Mode)1>")],
)
def test_a_name_is_the_same_from_either_demangler(tmp_path: Path, text: str, same: str) -> None:
    program = tmp_path / "filter"
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    assert _names.demangle(["_Z1k"], [program]) == {"_Z1k": same}


def test_names_that_would_look_alike_stay_distinct() -> None:
    names = _names.demangle(["_Z1kILi3EEvPfi", "_Z1kILi4EEvPfi"], [None, None])
    assert len(set(names.values())) == 2


def test_a_demangler_that_fails_is_no_loss(tmp_path: Path) -> None:
    assert _names.demangle(["_Z1kv"], [tmp_path / "none"]) == {"_Z1kv": "k"}
