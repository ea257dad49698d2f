# SPDX-License-Identifier: MIT
"""Real compilations through the cache, on whatever compilers are here."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from backends import _codeobject, cuda, rocm
from backends.cpu import CpuBackend
from backends.errors import BackendError, CompileError, SourceError
from backends.source import KernelSource
from backends.toolchain import CompilingBackend, Tool

Get = Callable[[str], CompilingBackend]
Read = Callable[[str], KernelSource]
pytestmark = pytest.mark.toolchain


@pytest.mark.parametrize(("name", "gpu"), [("cuda", "H100"), ("cuda", "L4"), ("rocm", "MI300"), ("cpu", "CPU")])
def test_a_kernel_compiles_once_and_then_comes_from_the_cache(
    backend_of: Get, source_of: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, gpu: str
) -> None:
    backend, source = backend_of(name), source_of(name)
    target = backend.target(gpu)
    first = backend.compile(source, target, cache_dir=tmp_path / "cache")
    assert not first.cached
    assert first.seconds > 0
    assert first.diagnostics == ()
    assert first.path.is_file()
    assert str(first.path.parent) in " ".join(first.command)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a hit must not start a process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    started = time.perf_counter()
    second = backend.compile(source, target, cache_dir=tmp_path / "cache")
    assert time.perf_counter() - started < 0.5      # typically 3 ms; the slack is for a busy machine
    assert second.cached
    assert (second.path, second.usage, second.command) == (first.path, first.usage, first.command)
    assert backend.key(source, target) == first.digest
    assert backend.key(source, target, {"EXTRA": 1}) != first.digest


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_two_builds_of_a_kernel_in_one_process_share_no_state(
    backend_of: Get, checkout: Path, tmp_path: Path, name: str
) -> None:
    backend = backend_of(name)
    path = checkout / {"cpu": "kernels/cpu/scale/counts.cpp", "cuda": "kernels/cuda/scale/counts.cu"}[name]
    path.write_text(
        ("//!KERNEL arch sm_89 sm_90a\n" if name == "cuda" else "") + "//!KERNEL tune STEP=1,10\n"
        "template <typename T> struct Counter { static T total; };\n"
        "template <typename T> T Counter<T>::total = 0;\n"
        'extern "C" int scale() { return Counter<int>::total += STEP; }\n')
    source = KernelSource.read(path, checkout)
    target = backend.target("L4") if name == "cuda" else backend.target()
    counts = [ctypes.CDLL(str(backend.compile(source, target, {"STEP": step}, tmp_path / "cache").path)).scale
              for step in (1, 10)]
    assert [counts[0](), counts[1](), counts[0](), counts[1]()] == [1, 10, 2, 20]


def test_cuda_reports_registers_spills_and_launch_bounds(backend_of: Get, source_of: Read) -> None:
    backend = backend_of("cuda")
    binary = backend.compile(source_of("cuda"), backend.target("H100"))
    kernels = {kernel.name: kernel for kernel in binary.usage.kernels}
    assert set(kernels) == {"scale_kernel<256>", "unbounded", "spills", "dynamic"}
    scale, spills, unbounded = kernels["scale_kernel<256>"], kernels["spills"], kernels["unbounded"]
    assert (scale.threads, scale.shared_bytes, scale.spill_bytes, scale.occupancy) == (256, 1024, 0, 1.0)
    assert (spills.threads, spills.registers) == (1024, 64)      # 65536 registers over 1024 threads
    assert spills.spill_bytes > 0
    assert spills.scratch_bytes > 0
    assert (unbounded.threads, unbounded.occupancy) == (None, None)
    assert binary.usage.spill_bytes == spills.spill_bytes
    assert binary.code_object is None


def test_rocm_keeps_the_code_object_with_its_metadata(backend_of: Get, source_of: Read) -> None:
    backend = backend_of("rocm")
    binary = backend.compile(source_of("rocm"), backend.target())
    assert binary.code_object is not None
    code = binary.code_object.read_bytes()
    assert code.startswith(b"\x7fELF")
    assert _codeobject.metadata(code)["amdhsa.target"].startswith("amdgcn-amd-amdhsa--gfx942")
    (kernel,) = binary.usage.kernels
    assert (kernel.name, kernel.threads, kernel.shared_bytes) == ("scale_kernel<256>", 256, 1024)
    assert (kernel.spill_bytes, kernel.scratch_bytes, kernel.occupancy) == (0, 0, 1.0)
    assert kernel.scalar_registers
    assert code in binary.path.read_bytes()      # the library carries it for hipRegisterFatBinary


def test_rocm_compiles_what_real_hip_kernels_use(backend_of: Get, checkout: Path, tmp_path: Path) -> None:
    backend = backend_of("rocm")
    source = KernelSource.read(checkout / "kernels/hip/scale/features.hip", checkout)
    binary = backend.compile(source, backend.target(), cache_dir=tmp_path)
    kernels = {kernel.name.rpartition("::")[2]: kernel for kernel in binary.usage.kernels}
    assert set(kernels) == {"matrix_cores", "mathematics", "scale_kernel"}
    assert kernels["matrix_cores"].threads == 256
    assert kernels["mathematics"].shared_bytes == 1024
    assert kernels["scale_kernel"].threads == 1024
    assert binary.code_object is not None
    undefined = subprocess.run(["nm", "-D", "--undefined-only", str(binary.path)], capture_output=True, text=True,
                               check=True).stdout
    assert "__hipRegisterFatBinary" in undefined
    assert "hipLaunchKernel" in undefined


def test_source_lines_change_no_device_code(
    backend_of: Get, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_of("rocm")
    source = KernelSource.read(checkout / "kernels/hip/scale/features.hip", checkout)

    def sections(folder: str) -> dict[str, tuple[int, bytes]]:
        binary = backend.compile(source, backend.target(), cache_dir=tmp_path / folder)
        assert binary.code_object is not None
        with binary.code_object.open("rb") as file:
            return {section.name: (section["sh_addr"], section.data()) for section in ELFFile(file).iter_sections()}

    with_lines = sections("with")
    monkeypatch.setattr(rocm, "_LINES", ())
    without = sections("without")
    extra = {name for name in with_lines if name.startswith(".debug_")}
    assert ".debug_line" in extra
    assert str(checkout).encode() not in b"".join(with_lines[name][1] for name in extra)
    assert with_lines.keys() - extra == without.keys()
    assert all(with_lines[name] == without[name] for name in without.keys() - {".shstrtab"})


@pytest.fixture(scope="session")
def hip_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A libamdhip64.so that only writes down what it is told."""
    compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("stub") / "libamdhip64.so"
    source = Path(__file__).parent / "data" / "hip_stub.cpp"
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


CALL = """
import ctypes, sys
from pathlib import Path
from backends.source import Signature
stub = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
call = Signature.read(Path(sys.argv[3])).bind(ctypes.CDLL(sys.argv[2]))
print(call(16, 32, 1000, 0.5, None, 0, 64), call(16, 32, 0, 0.5, None, 0, 64), flush=True)
stub.fail_launches(1)
print(call(16, 32, 1000, 0.5, None, 0, 64), flush=True)
"""


def test_the_hip_library_registers_and_launches_through_the_runtime(
    backend_of: Get, source_of: Read, hip_stub: Path
) -> None:
    backend, source = backend_of("rocm"), source_of("rocm")
    binary = backend.compile(source, backend.target())
    done = subprocess.run([sys.executable, "-c", CALL, str(hip_stub), str(binary.path), str(source.header)],
                          capture_output=True, text=True, check=True)
    kernel = "_Z12scale_kernelILi256EEvPKfPfif"
    assert done.stdout.splitlines() == [
        f"binary {binary.code_object.stat().st_size if binary.code_object else 0} bytes or more",
        f"function {kernel}",
        f"launch {kernel} grid 4 1 1 block 256 1 1 lds 0 queue 64 x 16 y 32 n 1000 factor 0.5",
        "0 -1",
        f"launch {kernel} grid 4 1 1 block 256 1 1 lds 0 queue 64 x 16 y 32 n 1000 factor 0.5",
        "98",
        "unregistered",
    ]


def test_the_library_is_called_through_its_signature(backend_of: Get, source_of: Read, tmp_path: Path) -> None:
    backend, source = backend_of("cpu"), source_of("cpu")
    binary = backend.compile(source, backend.target(), {"BIAS": 100}, cache_dir=tmp_path)
    call = source.signature().bind(ctypes.CDLL(str(binary.path)))
    x, y = (ctypes.c_float * 3)(1, 2, 3), (ctypes.c_float * 3)()
    arguments = [ctypes.addressof(x), ctypes.addressof(y), 3, 0.5, None, 77, None]
    assert call(*arguments) == 77
    assert list(y) == [100.5, 101.0, 101.5]
    assert call(*arguments[:2], 0, *arguments[3:]) == -1
    for wrong in (arguments[:-1], [*arguments, None], []):
        with pytest.raises(TypeError, match="scale takes 7 arguments"):
            call(*wrong)
    with pytest.raises(ctypes.ArgumentError):
        call(*arguments[:2], 2.5, *arguments[3:])
    with pytest.raises(ctypes.ArgumentError):
        call(1.5, *arguments[1:])
    assert math.isclose(y[0], 100.5)


def test_a_library_without_the_symbol_is_no_kernel(backend_of: Get, checkout: Path, tmp_path: Path) -> None:
    backend = backend_of("cpu")
    path = checkout / "kernels/cpu/scale/other.cpp"
    path.write_text('extern "C" int scale_typo() { return 0; }\n')
    source = KernelSource.read(path, checkout)
    binary = backend.compile(source, backend.target(), cache_dir=tmp_path)
    with pytest.raises(AttributeError, match="scale"):
        source.signature().bind(ctypes.CDLL(str(binary.path)))


@pytest.mark.parametrize("name", ["cuda", "rocm", "cpu"])
def test_a_header_that_changes_means_another_binary(
    backend_of: Get, source_of: Read, checkout: Path, tmp_path: Path, name: str
) -> None:
    backend, source = backend_of(name), source_of(name)
    key = backend.key(source, backend.target())
    header = checkout / "problems/scale/kernel.h"
    text = header.read_text()
    header.write_text(text + "\n#define CHANGED\n")
    assert backend.key(source, backend.target()) != key
    header.write_text(text)
    assert backend.key(source, backend.target()) == key


def test_an_edited_header_is_compiled_again(backend_of: Get, source_of: Read, checkout: Path, tmp_path: Path) -> None:
    backend, source = backend_of("cpu"), source_of("cpu")
    first = backend.compile(source, backend.target(), cache_dir=tmp_path)
    header = checkout / "kernels/common/status.h"
    header.write_text(header.read_text().replace("kUnsupportedShape = -1", "kUnsupportedShape = -7"))
    second = backend.compile(source, backend.target(), cache_dir=tmp_path)
    assert not second.cached
    assert second.path != first.path
    call = source.signature().bind(ctypes.CDLL(str(second.path)))
    assert call(None, None, 0, 0.0, None, 0, None) == -7


def test_a_source_that_changed_since_it_was_read_is_refused(backend_of: Get, source_of: Read, tmp_path: Path) -> None:
    backend, source = backend_of("cpu"), source_of("cpu")
    source.path.write_text(source.text + "\n// more\n")
    with pytest.raises(SourceError, match="read it again"):
        backend.compile(source, backend.target(), cache_dir=tmp_path)


def test_an_arch_the_kernel_does_not_list_is_refused(backend_of: Get, checkout: Path) -> None:
    backend = backend_of("cuda")
    path = checkout / "kernels/cuda/scale/hopper.cu"
    path.write_text("//!KERNEL arch sm_90a\n")
    with pytest.raises(SourceError, match="does not support sm_89; its arch line lists sm_90a"):
        backend.compile(KernelSource.read(path, checkout), backend.target("L4"))


BROKEN = {
    "cuda": ("kernels/cuda/scale/bad.cu", "//!KERNEL arch sm_90a\n#include \"launch.h\"\n\nint x = nothing;\n", 4),
    "rocm": ("kernels/hip/scale/bad.hip", "//!KERNEL arch gfx942\n#include \"launch.h\"\n\nint x = nothing;\n", 4),
    "cpu": ("kernels/cpu/scale/bad.cpp", "// none\n\nint x = nothing;\n", 3),
}


@pytest.mark.parametrize("name", ["cuda", "rocm", "cpu"])
def test_a_refusal_names_file_and_line_and_is_not_cached(
    backend_of: Get, checkout: Path, tmp_path: Path, name: str
) -> None:
    backend = backend_of(name)
    file, text, line = BROKEN[name]
    (checkout / file).write_text(text)
    for _ in range(2):
        with pytest.raises(CompileError, match="nothing") as caught:
            backend.compile(KernelSource.read(checkout / file, checkout), backend.target(), cache_dir=tmp_path)
        first = caught.value.diagnostics[0]
        assert (first.file, first.line, first.severity) == (file, line, "error")
        assert caught.value.command[0] == backend.command(
            KernelSource.read(checkout / file, checkout), tmp_path / "kernel.so", backend.target())[0]
    assert not list((tmp_path / "building").iterdir())


INLINE = {
    "cuda": ("kernels/cuda/scale/asm.cu", '//!KERNEL arch sm_90a\n#include "launch.h"\n__global__ void k(float* y) {\n'
             '    y[0] = 1.0f;\n    asm volatile("bogus.b32 %0;" :: "f"(y[1]));\n}\n', 5),
    "rocm": ("kernels/hip/scale/asm.hip", '//!KERNEL arch gfx942\n#include "launch.h"\n__global__ void k(float* y) {\n'
             '    y[0] = 1.0f;\n    asm volatile("v_bogus_b32 %0" :: "v"(y[1]));\n}\n', 5),
}


@pytest.mark.parametrize("name", ["cuda", "rocm"])
def test_bad_inline_assembly_is_traced_to_its_line(backend_of: Get, checkout: Path, tmp_path: Path, name: str) -> None:
    backend = backend_of(name)
    file, text, line = INLINE[name]
    (checkout / file).write_text(text)
    with pytest.raises(CompileError) as caught:
        backend.compile(KernelSource.read(checkout / file, checkout), backend.target(), cache_dir=tmp_path)
    assert (caught.value.diagnostics[0].file, caught.value.diagnostics[0].line) == (file, line)


def test_too_much_lds_is_refused(backend_of: Get, checkout: Path, tmp_path: Path) -> None:
    backend = backend_of("rocm")
    path = checkout / "kernels/hip/scale/lds.hip"
    path.write_text('//!KERNEL arch gfx942\n#include "launch.h"\n__global__ void k(float* y) {\n'
                    "    __shared__ float s[20000];\n    s[threadIdx.x] = y[0];\n    __syncthreads();\n"
                    "    y[1] = s[threadIdx.x ^ 1];\n}\n")
    with pytest.raises(CompileError, match=r"local memory \(80000\) exceeds limit \(65536\)"):
        backend.compile(KernelSource.read(path, checkout), backend.target(), cache_dir=tmp_path)


def test_a_device_function_that_is_nowhere_is_refused(backend_of: Get, checkout: Path, tmp_path: Path) -> None:
    backend = backend_of("rocm")
    path = checkout / "kernels/hip/scale/undefined.hip"
    path.write_text('//!KERNEL arch gfx942\n#include "launch.h"\n__device__ float elsewhere(float);\n'
                    "__global__ void k(float* y) { y[0] = elsewhere(y[1]); }\n")
    with pytest.raises(CompileError, match="elsewhere"):
        backend.compile(KernelSource.read(path, checkout), backend.target(), cache_dir=tmp_path)


def test_a_cache_that_cannot_be_written_says_so(source_of: Read, backend_of: Get, tmp_path: Path) -> None:
    backend = backend_of("cpu")
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="WARPWAVE_CACHE_DIR"):
        backend.compile(source_of("cpu"), backend.target(), cache_dir=tmp_path / "file")


def test_a_compiler_that_vanished_is_an_error_with_its_name(source_of: Read, tmp_path: Path) -> None:
    backend = CpuBackend(Tool(tmp_path / "gone", "gone 1.0"))
    with pytest.raises(CompileError, match="gone cannot be started"):
        backend.compile(source_of("cpu"), backend.target(), cache_dir=tmp_path)


def test_a_backend_compiles_for_its_own_targets_only(source_of: Read, backend_of: Get) -> None:
    with pytest.raises(BackendError, match="cpu does not compile for H200"):
        backend_of("cpu").compile(source_of("cpu"), cuda.TARGETS[0])
