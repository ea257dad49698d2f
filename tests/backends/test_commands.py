# SPDX-License-Identifier: MIT
"""The exact commands, for every backend and target: no compiler is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

import backends
from backends._home import HOME
from backends._llvm import CONTROLS, Llvm
from backends.base import Device
from backends.cpu import CpuBackend
from backends.cuda import CudaBackend, ptx_command
from backends.errors import SourceError, UnknownBackend, UnknownTarget
from backends.rocm import RocmBackend
from backends.source import KernelSource
from backends.toolchain import Tool

OUT = Path("/out/kernel.so")
LLVM = Llvm(
    clang=("/zig", "clang"), lld=("/zig", "ld.lld"), resources=Path("/resources"), headers=Path("/amd/include"),
    bitcode=Path("/amd/lib"), cxx="/usr/bin/c++", host="x86_64-linux-gnu",
    system=("/usr/include/c++/12", "/usr/include/x86_64-linux-gnu/c++/12", "/usr/include"), version="clang 22",
)
FRONT_END = [
    "/zig", "clang", "-x", "hip", "-target", "x86_64-linux-gnu", "-nogpulib", "-nogpuinc", "-nostdinc", "-nostdinc++",
    "-isystem", "/resources/cuda_wrappers", "-isystem", "/usr/include/c++/12",
    "-isystem", "/usr/include/x86_64-linux-gnu/c++/12", "-isystem", "/resources", "-isystem", "/usr/include",
    "-isystem", "/amd/include", "-D__HIP_PLATFORM_AMD__", "-include", "__clang_hip_runtime_wrapper.h", "-cuid=1",
    "-std=c++17", "-O3", "--offload-arch=gfx942",
    "-I", "problems/scale", "-I", "kernels/hip", "-I", "kernels/common", "-DTHREADS=256",
]


@pytest.mark.parametrize(
    ("gpu", "gencode"),
    [
        ("H200", ["arch=compute_90a,code=sm_90a"]),
        ("H100", ["arch=compute_90a,code=sm_90a"]),
        ("L4", ["arch=compute_89,code=sm_89", "arch=compute_89,code=compute_89"]),
    ],
)
def test_nvcc(checkout: Path, gpu: str, gencode: list[str]) -> None:
    backend = CudaBackend(Tool(Path("/cuda/bin/nvcc"), "nvcc 13.0; host g++ (Debian 12) 12.2.0"))
    source = KernelSource.read(checkout / "kernels/cuda/scale/plain.cu", checkout)
    assert backend.command(source, OUT, backend.target(gpu), {"THREADS": 128, "EXTRA": 1}) == [
        "/cuda/bin/nvcc", "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr",
        *(f"-gencode={pair}" for pair in gencode), "-Xptxas", "-v", "-shared", "-cudart", "static",
        "-Xcompiler", "-fPIC,-fno-gnu-unique", "--no-compress",
        "-I", "problems/scale", "-I", "kernels/cuda", "-I", "kernels/common", "-DEXTRA=1", "-DTHREADS=128",
        "kernels/cuda/scale/plain.cu", "-o", "/out/kernel.so",
    ]


@pytest.mark.parametrize(("name", "gpu", "line", "gone"), [
    ("cuda", "H100", "nvcc --fmad=false -O1", "-O3"), ("rocm", "MI300", "clang -ffp-contract=off", ""),
    ("cpu", "CPU", "c++ -O0 -ffast-math", "-O2"),
])
def test_a_kernels_own_flags_are_part_of_its_commands_and_of_its_address(
    checkout: Path, name: str, gpu: str, line: str, gone: str,
) -> None:
    tool = Tool(Path("/compiler"), "any; host g++ (Debian 12) 12.2.0")
    backend = {"cuda": CudaBackend, "rocm": RocmBackend, "cpu": CpuBackend}[name](tool)
    path = checkout / f"kernels/{backend.language}/scale/plain{backend.suffix}"
    before = KernelSource.read(path, checkout)
    key = backend.key(before, backend.target(gpu))
    path.write_text(f"//!KERNEL flags {line}\n{path.read_text()}")
    source = KernelSource.read(path, checkout)
    command = backend.command(source, OUT, backend.target(gpu))
    assert set(line.split()[1:]) <= set(command)
    assert not gone or (gone not in command and gone in backend.command(before, OUT, backend.target(gpu)))
    assert backend.key(source, backend.target(gpu)) != key


def test_a_second_root_has_the_headers_of_the_project_and_its_own_first(tmp_path: Path) -> None:
    kernel = tmp_path / "kernels/cpu/fp8_gemm/mine.cpp"
    kernel.parent.mkdir(parents=True)
    kernel.write_text('#include "kernel.h"\n')
    (tmp_path / "kernels/common").mkdir()
    source = KernelSource.read(kernel, tmp_path)
    assert source.header == HOME / "problems/fp8_gemm/kernel.h"
    assert source.include_dirs == (
        HOME / "problems/fp8_gemm", tmp_path / "kernels/cpu", tmp_path / "kernels/common", HOME / "kernels/cpu",
        HOME / "kernels/common")
    own = tmp_path / "problems/fp8_gemm/kernel.h"
    own.parent.mkdir(parents=True)
    own.write_text("int fp8_gemm(void* queue);\n")
    assert source.header == own


def test_sister_gpus_share_what_is_built_for_one_of_them(checkout: Path) -> None:
    """``backends compile --gpu H100`` fills the cache for a run on an H200; another architecture is another library."""
    backend = CudaBackend(Tool(Path("/cuda/bin/nvcc"), "nvcc 13.0; host g++ (Debian 12) 12.2.0"))
    source = KernelSource.read(checkout / "kernels/cuda/scale/plain.cu", checkout)
    h200 = backend.key(source, backend.target("H200"))
    assert backend.key(source, backend.target("H100"), {}) == h200
    assert backend.key(source, backend.target("L4")) != h200
    assert backend.key(source, backend.target("H200"), {"THREADS": 128}) != h200


def test_the_ptx_of_a_command_is_for_its_virtual_architecture(checkout: Path) -> None:
    pairs = ["-gencode=arch=compute_89,code=sm_89", "-gencode=arch=compute_89,code=compute_89"]
    assert ptx_command(["nvcc", "-O3", *pairs, "-shared", "k.cu", "-o", "k.so"], Path("k.ptx")) == [
        "nvcc", "-ptx", "-O3", "-gencode=arch=compute_89,code=compute_89", "k.cu", "-o", "k.ptx"]


def test_clang_without_rocm(checkout: Path) -> None:
    backend = RocmBackend(LLVM)
    source = KernelSource.read(checkout / "kernels/hip/scale/plain.hip", checkout)
    commands = backend.commands(source, OUT, backend.target("MI300"))
    linked = [word for name in ("/amd/lib/ocml.bc", "/amd/lib/ockl.bc", "/out/kernel.oclc.bc")
              for word in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", name)]
    assert commands == [
        ["/zig", "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-x", "c", "-O3",
         "-DWARPWAVE_ISA_VERSION=9402", "-emit-llvm", "-c", str(CONTROLS), "-o", "/out/kernel.oclc.bc"],
        [*FRONT_END, "-gline-tables-only", "-fdebug-compilation-dir=.", "--cuda-device-only", "-S", "-Xclang",
         "-emit-obj", *linked, "kernels/hip/scale/plain.hip", "-o", "/out/kernel.device.o"],
        ["/zig", "ld.lld", "-shared", "--no-undefined", "/out/kernel.device.o", "-o", "/out/kernel.hsaco"],
        [*FRONT_END, "--cuda-host-only", "-c", "-fPIC", "-Xclang", "-fcuda-include-gpubinary", "-Xclang",
         "/out/kernel.hsaco", "kernels/hip/scale/plain.hip", "-o", "/out/kernel.host.o"],
        ["/usr/bin/c++", "-shared", "/out/kernel.host.o", "-o", "/out/kernel.so"],
    ]
    assert backend.command(source, OUT, backend.target("MI300")) == commands[1]


def test_hipcc(checkout: Path) -> None:
    backend = RocmBackend(Tool(Path("/opt/rocm/bin/hipcc"), "hipcc 6.4"))
    source = KernelSource.read(checkout / "kernels/hip/scale/plain.hip", checkout)
    assert backend.commands(source, OUT, backend.target("gfx942")) == [[
        "/opt/rocm/bin/hipcc", "-x", "hip", "-fPIC", "-shared", "-std=c++17", "-O3", "--offload-arch=gfx942",
        "-I", "problems/scale", "-I", "kernels/hip", "-I", "kernels/common", "-DTHREADS=256",
        "-gline-tables-only", "-fdebug-compilation-dir=.", "kernels/hip/scale/plain.hip", "-o", "/out/kernel.so",
    ]]


def test_cxx(checkout: Path) -> None:
    backend = CpuBackend(Tool(Path("/usr/bin/c++"), "c++ (Debian 12.2.0) 12.2.0"))
    source = KernelSource.read(checkout / "kernels/cpu/scale/plain.cpp", checkout)
    assert backend.command(source, OUT, backend.target()) == [
        "/usr/bin/c++", "-std=c++17", "-O2", "-fno-gnu-unique", "-fPIC", "-shared",
        "-I", "problems/scale", "-I", "kernels/cpu",
        "-I", "kernels/common", "-DBIAS=0", "kernels/cpu/scale/plain.cpp", "-o", "/out/kernel.so",
    ]


@pytest.mark.parametrize("version", ["Debian clang version 19.1.7", "Apple clang version 16.0.0"])
def test_a_flag_of_gcc_is_not_for_clang(checkout: Path, version: str) -> None:
    cpu = CpuBackend(Tool(Path("/usr/bin/c++"), version))
    source = KernelSource.read(checkout / "kernels/cpu/scale/plain.cpp", checkout)
    assert "-fno-gnu-unique" not in cpu.command(source, OUT, cpu.target())
    cuda = CudaBackend(Tool(Path("nvcc"), f"nvcc 13.0; host {version}"))
    source = KernelSource.read(checkout / "kernels/cuda/scale/plain.cu", checkout)
    assert "-fPIC" in cuda.command(source, OUT, cuda.target())


@pytest.mark.parametrize(("name", "arch"), [("cuda", "sm_90a"), ("cuda", "sm_89"), ("rocm", "gfx942"), ("cpu", "any")])
def test_portable_flags_are_part_of_the_command_and_name_no_path(checkout: Path, name: str, arch: str) -> None:
    backend = {"cuda": CudaBackend(Tool(Path("/x"), "nvcc 13")), "rocm": RocmBackend(LLVM),
               "cpu": CpuBackend(Tool(Path("/x"), "c++ 12"))}[name]
    file = {"cuda": "cuda/scale/plain.cu", "rocm": "hip/scale/plain.hip", "cpu": "cpu/scale/plain.cpp"}[name]
    source = KernelSource.read(checkout / "kernels" / file, checkout)
    flags = backend.portable_flags(arch)
    target = backend.target(arch) if arch != "any" else backend.target()
    assert set(flags) <= set(backend.command(source, OUT, target))
    assert not any("/" in flag for flag in flags)
    if name != "cpu":
        assert any(arch in flag for flag in flags)
        with pytest.raises(UnknownTarget):
            backend.portable_flags("sm_20")


def test_a_kernel_outside_the_checkout_keeps_its_full_path(checkout: Path, tmp_path: Path) -> None:
    own = tmp_path / "scale" / "mine.cu"
    own.parent.mkdir()
    own.write_text("//!KERNEL arch sm_90a\n")
    backend = CudaBackend(Tool(Path("nvcc"), "nvcc 13.0"))
    assert str(own) in backend.command(KernelSource.read(own, checkout), OUT, backend.target("H100"))


def test_an_unlisted_tunable_is_refused_before_any_compiler_runs(checkout: Path) -> None:
    backend = CudaBackend(Tool(Path("/none"), "nvcc 13.0"))
    source = KernelSource.read(checkout / "kernels/cuda/scale/plain.cu", checkout)
    with pytest.raises(SourceError, match="THREADS"):
        backend.command(source, OUT, backend.target(), {"THREADS": 1000})


# --- names ------------------------------------------------------------------------------------------------------

def test_backends_are_found_by_file() -> None:
    assert backends.names() == ["cpu", "cuda", "rocm"]
    assert [backends.get(name).name for name in backends.names()] == backends.names()
    assert [(backends.get(name).language, backends.get(name).suffix) for name in backends.names()] == [
        ("cpu", ".cpp"), ("cuda", ".cu"), ("hip", ".hip")]
    with pytest.raises(UnknownBackend, match="there are: cpu, cuda, rocm"):
        backends.get("metal")


def test_targets_have_the_facts_of_their_data_sheets() -> None:
    cuda, rocm = backends.get("cuda"), backends.get("rocm")
    assert [target.gpu for target in cuda.targets()] == ["H200", "H100", "L4"]
    h200, h100, l4 = cuda.targets()
    assert (h200.arch, h200.max_smem, h200.llc_bytes) == ("sm_90a", 227 * 1024, 60 * 2**20)
    assert (h100.llc_bytes, h100.peaks["bytes"], h200.peaks["bytes"]) == (50 * 2**20, 3.35e12, 4.8e12)
    assert (l4.arch, l4.max_smem, l4.peaks["fp8"]) == ("sm_89", 99 * 1024, 242.5e12)
    mi300 = rocm.target()
    assert (mi300.arch, mi300.fp8, mi300.warp_size, mi300.max_smem) == ("gfx942", "e4m3fnuz", 64, 65536)
    for target in (*cuda.targets(), mi300):
        assert set(target.peaks) == {"fp8", "bf16", "fp16", "fp32", "bytes"}
        assert target.peaks_source
    assert not backends.get("cpu").target().peaks


def test_a_target_goes_by_gpu_or_arch() -> None:
    cuda = backends.get("cuda")
    assert cuda.target("l4").gpu == "L4"
    assert cuda.target("SM_90A").gpu == "H200"
    with pytest.raises(UnknownTarget, match=r"there are: H200 \(sm_90a\), H100 \(sm_90a\), L4 \(sm_89\)"):
        cuda.target("B200")


def test_a_gpu_without_a_label_is_compiled_for_by_arch_and_claims_no_peaks() -> None:
    cuda = backends.get("cuda")
    known = cuda.target_for(Device(0, "NVIDIA H100 80GB HBM3", "H100", "sm_90a", 80 * 2**30))
    assert known == cuda.target("H100")
    other = cuda.target_for(Device(0, "NVIDIA H100 PCIe", "NVIDIA H100 PCIe", "sm_90a", 80 * 2**30, llc_bytes=7))
    assert (other.gpu, other.arch, other.llc_bytes, other.max_smem) == ("NVIDIA H100 PCIe", "sm_90a", 7, 232448)
    assert not other.peaks
    ada = cuda.target_for(Device(0, "NVIDIA L40S", "NVIDIA L40S", "sm_89", 48 * 2**30))
    assert (ada.arch, ada.llc_bytes, dict(ada.peaks)) == ("sm_89", 48 * 2**20, {})
    with pytest.raises(UnknownTarget, match="NVIDIA A100"):
        cuda.target_for(Device(0, "NVIDIA A100", "NVIDIA A100", "sm_80", 80 * 2**30))
