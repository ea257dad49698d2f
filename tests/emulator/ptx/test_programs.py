# SPDX-License-Identifier: MIT
"""CUDA programs, built by nvcc with a shared runtime and PTX, run on the emulated GPUs as they are."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from backends import __main__ as command
from backends.cuda import find_nvcc, require_host_compiler
from backends.errors import ToolchainMissing
from tests.emulator.ptx.driver import HEADER, Cuda

PROGRAM = Path(__file__).with_name("program.cu")
FACTS = r"""
#include <cstdio>
__global__ void answer(int* out) { *out = 42; }
__global__ void __launch_bounds__(256) shared(int* out) {
    __shared__ int table[10000];
    table[threadIdx.x] = *out;
    __syncthreads();
    *out = table[0];
}
int main() {
    int *out, value = 0;
    cudaMalloc(&out, sizeof *out);
    answer<<<1, 1>>>(out);
    cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost);
    cudaDeviceProp facts;
    if (cudaGetDeviceProperties(&facts, 0) != cudaSuccess) return 1;
    printf("%d|%s|%d.%d|%d of %d|%zu|%zu\n", value, facts.name, facts.major, facts.minor, facts.multiProcessorCount,
           facts.maxThreadsDim[1], facts.sharedMemPerBlockOptin, facts.totalGlobalMem >> 30);
    cudaFuncAttributes kernel;
    cudaPointerAttributes memory[2];
    int blocks = 0;
    if (cudaFuncGetAttributes(&kernel, shared) != cudaSuccess) return 2;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared, 128, 0);
    cudaPointerGetAttributes(&memory[0], out);
    cudaPointerGetAttributes(&memory[1], &value);
    cudaMemset2D(out, 1, 7, 1, 4);
    cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost);
    printf("%zu|%d|%d|%d|%d %d|%x\n", kernel.sharedSizeBytes, kernel.maxThreadsPerBlock,
           kernel.maxDynamicSharedSizeBytes, blocks, memory[0].type == cudaMemoryTypeDevice,
           memory[1].type == cudaMemoryTypeUnregistered, value);
    return cudaGetLastError();
}
"""
DRIVER = r"""
from cuda.bindings import driver as cu

PTX = b'''.version 8.8
.target sm_89
.address_size 64
.visible .entry k(.param .u64 pout) { .reg .b32 %r<2>; .reg .b64 %rd<4>;
ld.param.u64 %rd0, [pout]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1;
st.global.u32 [%rd2], %r0; ret; }
'''


def of(result):
    assert result[0] == cu.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) > 1 else None


of(cu.cuInit(0))
print(of(cu.cuDeviceGetName(64, 0)).split(b"\0")[0].decode())
of(cu.cuCtxSetCurrent(of(cu.cuDevicePrimaryCtxRetain(0))))
kernel = of(cu.cuModuleGetFunction(of(cu.cuModuleLoadData(PTX)), b"k"))
memory, numbers = of(cu.cuMemAlloc(128)), bytearray(128)
of(cu.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, ((memory,), (None,)), 0))
of(cu.cuMemcpyDtoH(numbers, memory, 128))
print(sum(memoryview(numbers).cast("I")))
"""
PARTS = ["saxpy", "sum", "collatz", "sorted", "halves", "tile", "locked", "meeting"]


def compiled(source: Path, folder: Path, *more: str) -> Path:
    try:
        nvcc = find_nvcc()
        require_host_compiler(nvcc)
    except ToolchainMissing as error:
        pytest.skip(str(error))
    out = folder / source.stem
    subprocess.run([nvcc.path, "-std=c++17", "-O2", "-lineinfo", "-cudart", "shared", *more,
                    "-gencode=arch=compute_89,code=compute_89", source, "-o", out], check=True, timeout=200)
    return out


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(PROGRAM, tmp_path_factory.mktemp("program"))


@pytest.mark.parametrize(("gpu", "multiprocessors"), [("L4", 58), ("H100", 132)])
def test_a_program_runs(
    program: Path, capfd: pytest.CaptureFixture[str], gpu: str, multiprocessors: int
) -> None:
    assert command.main(["emulate", "--gpu", gpu, "--", str(program)]) == 0
    printed = capfd.readouterr().out.splitlines()
    assert printed == [f"multiprocessors: {multiprocessors}", *(f"{part}: ok" for part in PARTS), "last: cudaSuccess"]


def test_a_program_of_the_driver_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Python, whose bindings load ``libcuda.so.1`` and ask it for each function."""
    pytest.importorskip("cuda.bindings.driver")
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    assert command.main(["emulate", "--gpu", "L4", "--", sys.executable, str(script)]) == 0, capfd.readouterr().err
    assert capfd.readouterr().out.split("\n") == ["NVIDIA L4 (emulated)", "496", ""]


def test_what_the_driver_refuses_is_no_error_of_the_runtime(cuda: Cuda) -> None:
    """Triton tries an attribute that few devices have; the runtime's last error is for its own callers."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    text = HEADER.format(target="sm_90a") + ".visible .entry k() { ret; }"
    assert cuda.library.cuModuleLoadData(ctypes.byref(module), text.encode()) == 0
    assert cuda.library.cuModuleGetFunction(ctypes.byref(function), module, b"k") == 0
    cuda.library.cudaGetLastError()
    assert cuda.library.cuFuncSetAttribute(function, 16, 1) == 1
    assert cuda.library.cudaGetLastError() == 0
    cuda.library.cuModuleUnload(module)


@pytest.mark.parametrize("width", [32, 64])
def test_local_memory_has_addresses_of_both_widths(cuda: Cuda, width: int) -> None:
    """Triton's are of 32 bits, nvcc's of 64."""
    out, register = np.zeros(32, np.uint32), "%r4" if width == 32 else "%rd4"
    cuda.launch(f""".visible .entry k(.param .u64 pout) {{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .local .align 8 .b8 depot[16];
ld.param.u64 %rd0, [pout]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1;
mov.u{width} {register}, depot; st.local.u32 [{register}+4], %r0; ld.local.u32 %r5, [{register}+4];
st.global.u32 [%rd2], %r5; ret; }}""", [out])
    assert out.tolist() == list(range(32))


def test_packed_ptx_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """nvcc packs PTX unless it is told not to, and the program asks for the facts of its GPU."""
    source = tmp_path / "facts.cu"
    source.write_text(FACTS)
    for flag in ("--compress-mode=size", "--no-compress"):
        assert command.main(["emulate", "--gpu", "L4", "--", str(compiled(source, tmp_path, flag))]) == 0
        assert capfd.readouterr().out.splitlines() == [
            "42|NVIDIA L4 (emulated)|8.9|58 of 1024|101376|24", "40000|256|49152|2|1 1|7070707"]


def test_a_gpu_may_have_other_multiprocessors(cuda: Cuda) -> None:
    numbers = np.zeros(1, np.uint32)
    text = """.visible .entry k(.param .u64 pout) { .reg .b32 %r<2>; .reg .b64 %rd<2>;
ld.param.u64 %rd0, [pout]; mov.u32 %r0, %nsmid; st.global.u32 [%rd0], %r0; ret; }"""
    cuda.set(multiprocessors=8)
    try:
        assert cuda.attribute(16) == 8
        cuda.launch(text, [numbers])
        assert numbers[0] == 8
    finally:
        cuda.set(multiprocessors=0)
    assert cuda.attribute(16) == 132
    with pytest.raises(AssertionError):
        cuda.set(multiprocessors=1025)


def test_products_of_fragments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """wmma, whose fragments only its own instructions know: sums of small integers, which are exact."""
    assert command.main(["emulate", "--gpu", "L4", "--", str(compiled(PROGRAM.with_name("wmma.cu"), tmp_path))]) == 0
    kinds = ["f16", "f16 sums", "f16 tall", "f16 wide", "bf16", "bf16 tall", "bf16 wide", "tf32"]
    assert capfd.readouterr().out.splitlines() == [f"{kind}: ok" for kind in kinds]


def test_a_write_behind_an_array_is_told_with_its_line(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["emulate", "--gpu", "L4", "--json", "--", str(program), "behind"]) == 1
    told = json.loads(capfd.readouterr().out)
    assert told["status"] == 0
    (finding,) = told["findings"]
    line = next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "void behind" in text)
    assert (finding["check"], finding["line"], Path(finding["file"]).name) == ("bounds", line, PROGRAM.name)
    assert "lane 31: 4 bytes" in finding["message"]


def test_kernels_print_as_the_host_does(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["emulate", "--gpu", "H100", "--", str(program), "prints"]) == 0
    device, host, rest = capfd.readouterr().out.split("-\n")
    assert device == host
    assert device.count("\n") == 9
    counts, *lines = rest.splitlines()
    assert counts == "0 2"                   # arguments, not characters
    assert lines.count("plain") == lines.count("5 six") == 32
    assert lines[-4:] == [f"thread {thread} of block 0" for thread in (3, 11, 19, 27)]


def test_an_assertion_fails_with_its_line(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["emulate", "--gpu", "L4", "--json", "--", str(program), "asserts"]) == 1
    out, err = capfd.readouterr()
    (finding,) = json.loads(out)["findings"]
    line = next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "the 41st value" in text)
    assert (finding["check"], finding["line"], finding["file"]) == ("assert", line, str(PROGRAM))
    told = (f"{PROGRAM}:{line}: void asserts(const int *): block: [1,0,0], thread: [{{}},{{}},0] "
            "Assertion `values[i] < 40` failed.")
    assert [each for each in err.splitlines() if "Assertion" in each] == [
        told.format(thread % 8, thread // 8) for thread in range(8, 32)]
    assert finding["message"] == told.format(0, 1) + " So do 23 more threads of its warp."
    assert "cudaErrorAssert: device-side assert triggered" in err


def test_a_program_without_a_shared_runtime_is_told_how_to_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that has the name of the driver in it, and does not ask the loader for it: its own runtime will."""
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/true").read_bytes() + b"libcuda.so.1\0")
    program.chmod(0o755)
    assert command.main(["emulate", "--gpu", "L4", "--", str(program)]) == 2
    assert "build it with nvcc -cudart shared" in capsys.readouterr().err
    assert command.main(["emulate", "--gpu", "B200", "--", "/bin/true"]) == 2
    assert "no emulated B200; there are MI300, H100, H200, L4" in capsys.readouterr().err


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(PROGRAM.with_name("graphs.cu"), tmp_path_factory.mktemp("graphs"))


def test_graphs_and_captured_streams(graphs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["emulate", "--gpu", "L4", "--", str(graphs)]) == 0
    printed = capfd.readouterr().out.splitlines()
    assert len(printed) == 24
    assert [line for line in printed if not line.endswith(": ok")] == []


def test_a_fault_in_a_graph_is_told_when_it_is_launched(graphs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["emulate", "--gpu", "L4", "--", str(graphs), "behind"]) == 1
    out, err = capfd.readouterr()
    assert out.splitlines() == ["captured", "cudaErrorIllegalAddress"]
    assert "bounds" in err
    assert "graphs.cu" in err
