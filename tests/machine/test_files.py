# SPDX-License-Identifier: MIT
"""Machine code of files that are not the project's, and what the command line says of them."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import backends
from backends import _codeobject, _ptxas, cuda
from backends.emulator import hipcc
from backends.errors import ToolchainMissing
from backends.machine import cubin, files
from backends.source import KernelSource
from backends.toolchain import LOG, CompilingBackend
from scoring import cli

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"

pytestmark = pytest.mark.toolchain
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``scoring inspect`` with these arguments: (exit code, stdout, stderr)."""
    monkeypatch.chdir(ROOT)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main(["inspect", *map(str, arguments)])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A foreign file by its kind, made when it is first asked for; skips where there is no tool to make it."""
    folder = tmp_path_factory.mktemp("foreign")

    def nvcc(out: Path, *flags: str) -> Path:
        subprocess.run([str(cuda.find_nvcc().path), "-gencode=arch=compute_90a,code=sm_90a", *flags,
                        str(DATA / "waits.cu"), "-o", str(out)], check=True, capture_output=True)
        return out

    def triton(kind: str) -> Path:
        pytest.importorskip("triton")
        from tests.machine.data import triton_dot

        backend, arch, lanes = ("hip", "gfx942", 64) if kind == "hsaco" else ("cuda", 90, 32)
        compiled = triton_dot.compiled(folder / "triton", backend, arch, lanes)[kind]
        out = folder / f"dot.{kind}"
        out.write_bytes(compiled.encode() if isinstance(compiled, str) else compiled)
        return out

    def program() -> Path:
        assert hipcc.main([str(DATA / "saxpy.hip"), "-o", str(folder / "saxpy")]) == 0
        return folder / "saxpy"

    makers = {
        "cubin": lambda: nvcc(folder / "waits.cubin", "-cubin", "-lineinfo"),
        "ptx": lambda: nvcc(folder / "waits.ptx", "-ptx"),
        "library": lambda: nvcc(folder / "waits.so", "-shared", "-Xcompiler", "-fPIC", "-Xfatbin", "-compress-all"),
        "program": program, "triton cubin": lambda: triton("cubin"), "triton ptx": lambda: triton("ptx"),
        "triton hsaco": lambda: triton("hsaco"),
        "cuda source": lambda: DATA / "waits.cu", "hip source": lambda: DATA / "saxpy.hip",
        "submission": lambda: DATA / "inline_scale.py",
    }
    done: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in done:
            try:
                done[kind] = makers[kind]()
            except ToolchainMissing as error:
                pytest.skip(str(error))
        return done[kind]

    return get


WAITS = {"indexed", "reversed", "serial"}
FOREIGN = {
    "cubin": ("sm_90a", WAITS), "ptx": ("sm_90a", WAITS), "library": ("sm_90a", WAITS),
    "cuda source": ("sm_90a", WAITS), "submission": ("sm_90a", {"scale_kernel"}),
    "hip source": ("gfx942", {"saxpy"}), "program": ("gfx942", {"saxpy"}),
    "triton cubin": ("sm_90", {"dot"}), "triton ptx": ("sm_90", {"dot"}), "triton hsaco": ("gfx942", {"dot"}),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", FOREIGN)
def test_ten_foreign_files(run: Run, made: Callable[[str], Path], kind: str) -> None:
    arch, names = FOREIGN[kind]
    code, out, error = run(made(kind), "--json")
    assert (code, error) == (0, "")
    found = json.loads(out)["functions"]
    assert {function["name"].partition("(")[0] for function in found} == names
    assert {function["arch"].removesuffix("a") for function in found} == {arch.removesuffix("a")}
    for function in found:
        assert function["instructions"] == sum(function["mix"].values()) > 10
        assert function["resources"]["registers"] > 0
    if names == {"dot"}:
        (dot,) = found
        assert dot["mix"]["tensor"] > 0
        assert any(loop["mix"].get("tensor") for loop in dot["loops"])


HEADERS = {1: struct.Struct("<4sHHIQ"), 2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}


def compressed(bundle: bytes, version: int, method: str) -> bytes:
    """A bundle as clang-offload-bundler packs it (LLVM's description of ``CompressedOffloadBundle``)."""
    packed = zlib.compress(bundle) if method == "zlib" else pytest.importorskip("zstandard").compress(bundle)
    header = HEADERS[version]
    sizes = [len(bundle)] if version == 1 else [header.size + len(packed), len(bundle)]
    return header.pack(b"CCOB", version, ("zlib", "zstd").index(method), *sizes, 0x1234) + packed


@pytest.mark.parametrize("version", HEADERS)
@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_compressed_bundles(run: Run, made: Callable[[str], Path], tmp_path: Path, version: int, method: str) -> None:
    (code_object,) = _codeobject.carried(made("program").read_bytes())
    name = b"hipv4-amdgcn-amd-amdhsa--gfx942"
    bundle = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 128, len(code_object), len(name)) + name
    bundle = bundle.ljust(128, b"\0") + code_object
    packed = tmp_path / "packed"
    packed.write_bytes(b"some library CCOB by chance" + compressed(bundle, version, method) + bytes(64))
    code, out, error = run(packed, "--json")
    assert (code, error) == (0, "")
    assert [function["name"].partition("(")[0] for function in json.loads(out)["functions"]] == ["saxpy"]


def test_a_bundle_that_nothing_here_unpacks_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(compressed(b"__CLANG_OFFLOAD_BUNDLE__", 3, "zstd"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    code, _, error = run(packed)
    assert code == 2
    assert "pip install zstandard" in error


def test_raw_is_the_disassembler_s_own_text(run: Run, made: Callable[[str], Path]) -> None:
    code, out, _ = run(made("cubin"), "--raw", "--function", "serial")
    assert code == 0
    assert "HGMMA" in out
    assert '//## File "' in out, "nvdisasm's own lines"
    code, out, _ = run(DATA / "waits.cu", "--raw", "--function", "serial")
    assert code == 0
    assert f'//## File "{DATA / "waits.cu"}", line' in out
    code, out, _ = run(made("program"), "--raw")
    assert code == 0
    assert "s_endpgm" in out
    assert run(made("cubin"), "--raw", "--stage", "ptx")[0] == 2


def test_what_ptxas_reports_is_in_the_cubin(tmp_path: Path) -> None:
    """Registers, stack and static shared memory of all functions, also where a build's log is not at hand.

    The functions are those of ptxas's report, however many the kernel file has.
    """
    backend = backends.get("cuda")
    assert isinstance(backend, CompilingBackend)
    source = KernelSource.read(ROOT / "kernels/cuda/mla_decode/mma_sync.cu", ROOT)
    for gpu in ("H100", "L4"):
        try:
            binary = backend.compile(source, backend.target(gpu))
        except ToolchainMissing as error:
            pytest.skip(str(error))
        reports = {each.name: each for each in _ptxas.functions((binary.path.parent / LOG).read_text())
                   if each.arch == binary.target.arch}
        bounds = _ptxas.launch_bounds(binary.path)
        entries = [entry for data in _ptxas.cubins(binary.path.read_bytes()) for entry in cubin.entries(data)]
        assert len(entries) > 1
        assert {entry.name for entry in entries} == set(reports)
        for entry in entries:
            report, found = reports[entry.name], entry.resources
            assert (found.registers, found.scratch_bytes, found.static_shared, found.threads) == (
                report.registers, report.stack_bytes, report.shared_bytes, bounds.get(entry.name))


def test_warnings_and_bounds_of_a_source(run: Run) -> None:
    code, out, _ = run(DATA / "waits.cu", "--json")
    assert code == 0
    found = json.loads(out)
    told = {(each["kind"], each["function"]) for each in found["warnings"]}
    assert told == {("serialised", "serial"), ("local", "indexed")}
    functions = {function["name"]: function for function in found["functions"]}
    lines = (DATA / "waits.cu").read_text().splitlines()
    places = {int(each["place"].rpartition(":")[2]) for each in functions["indexed"]["local_memory"]}
    assert any("known at run time only" in lines[line - 1] for line in places)
    assert functions["reversed"]["occupancy_is_bound"]
    assert functions["indexed"]["resources"]["dynamic_shared"] == 0      # it reaches no shared memory
    _, out, _ = run(DATA / "waits.cu", "--function", "reversed", "--shared", 100_000, "--json")
    (told_by_user,) = json.loads(out)["functions"]
    assert not told_by_user["occupancy_is_bound"]
    assert told_by_user["occupancy"] == pytest.approx(2 * 4 / 64)


def test_a_kernel_of_the_tree_in_words(run: Run) -> None:
    code, out, _ = run("--kernel", "flash_attention/mfma", "--function", "attend<Fp16, ForwardShape<64, 1>")
    assert code == 0
    # Most of it is inlined.
    assert re.search(r"attend<Fp16, ForwardShape<64, 1> >   kernels/hip/attention/forward\.h:\d+-\d+", out)
    assert "128 tensor" in out
    assert re.search(r"overlap: \d+ of 33 exponentials stand where a product is under way", out)
    assert "occupancy 25%" in out                                # static LDS alone: no bound


def test_stages_and_listing(run: Run) -> None:
    """A place stands once, above all instructions in a row that came from it, so a product need not be the first."""
    _, ir, _ = run(DATA / "saxpy.hip", "--stage", "ir")
    before, _, after = ir.partition("LLVM IR after optimisation")
    assert "alloca" in before
    assert "alloca" not in after
    assert "amdgpu_kernel void @_Z5saxpy" in after
    _, ptx, _ = run(DATA / "waits.cu", "--stage", "ptx", "--function", "serial")
    assert "wgmma.mma_async" in ptx
    assert "reversed" not in ptx
    _, asm, _ = run(DATA / "waits.cu", "--stage", "asm", "--function", "serial")
    assert re.search(r"waits\.cu:\d+ < .*waits\.cu:\d+\n(  [0-9a-f]+  .*\n)*  [0-9a-f]+  tensor +HGMMA", asm)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("arguments", "code", "told"), [
    ([DATA / "waits.cu", "--stage", "ir"], 2, "NVIDIA's compiler shows no LLVM IR; --stage ptx"),
    ([DATA / "saxpy.hip", "--stage", "ptx"], 2, "HIP kernels have no PTX; --stage ir"),
    ([DATA / "saxpy.hip", "--function", "nothing"], 2, "no function matches 'nothing'"),
    ([DATA / "saxpy.hip", "--stage", "ir", "--function", "nothing"], 2, "no function matches 'nothing'"),
    ([DATA / "saxpy.hip", "--function", "("], 2, "no regular expression"),
    (["--kernel", "fp8_gemm/naive"], 2, "host code"),
    ([DATA / "triton_dot.py"], 2, "Triton compiles it when it runs"),
    (["nowhere/file.cubin"], 2, "no such file"),
    ([__file__.replace("test_files.py", "data/inline_scale.py"), "--stage", "ir"], 2, "no LLVM IR"),
    ([ROOT / "LICENSE"], 2, "holds no GPU machine code"),
    ([], 2, "what is to be inspected?"),
    (["--kernel", "flash_attention/mffma"], 5, "did you mean"),
])
def test_one_sentence_for_what_cannot_be_shown(run: Run, arguments: list[object], code: int, told: str) -> None:
    got, out, error = run(*arguments)
    assert (got, out) == (code, "")
    assert told in error


def test_a_compiled_file_has_one_stage(run: Run, made: Callable[[str], Path]) -> None:
    code, _, error = run(made("cubin"), "--stage", "ptx")
    assert code == 2
    assert "it has the stage asm alone" in error


def test_a_missing_disassembler_is_exit_4(
    run: Run, made: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made("cubin")

    def none(program: str) -> list[Path]:
        raise ToolchainMissing(program, ["PATH"], f"pip install nvidia-cuda-{program}")

    monkeypatch.setattr(cuda, "tools", none)
    code, _, error = run(path)
    assert code == 4
    assert "pip install nvidia-cuda-nvdisasm" in error


def test_a_damaged_cubin_says_so(made: Callable[[str], Path], tmp_path: Path, run: Run) -> None:
    data = bytearray(made("cubin").read_bytes())
    data[48:52] = b"\xff\xff\xff\xff"              # the flags, which name the architecture
    (tmp_path / "bad.cubin").write_bytes(data)
    code, _, error = run(tmp_path / "bad.cubin")
    assert code == 2
    assert "cannot read this cubin" in error


def test_two_builds_side_by_side(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "two.cu"
    source.write_text("#ifndef STEP\n#define STEP 1\n#endif\n__global__ void k(float* x, int n) {\n"
                      "  for (int i = 0; i < n; ++i) x[i * STEP] += 1.0f;\n}\n")
    code, out, _ = run(source, "--diff", source)
    assert code == 0
    assert "1 function the same" in out
    code, out, _ = run(source, "--diff", f"{source}[STEP=3]", "--json")
    assert code == 0
    (pair,) = json.loads(out)["functions"]
    assert pair["diff"]


def test_backends_compile_prints_machine_code_of_both_vendors(capsys: pytest.CaptureFixture[str]) -> None:
    """The usage of all functions is printed, so which are disassembled is read from the headings of listings alone."""
    from backends.__main__ import main

    file = str(ROOT / "kernels/hip/flash_attention/mfma.hip")
    assert main(["compile", file, "--sass", "Fp16, ForwardShape<64, 1>"]) == 0
    out = capsys.readouterr().out
    assert "v_mfma_f32_16x16x16_f16" in out
    (name,) = re.findall(r"^(\S.*):$", out, re.MULTILINE)
    assert "attend<Fp16, ForwardShape<64, 1> >" in name
    assert main(["compile", str(ROOT / "kernels/cpu/fp8_gemm/naive.cpp"), "--sass"]) == 2
    assert "host code" in capsys.readouterr().err


def test_places_of_another_checkout_become_this_ones(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/k.cu").write_text("")
    from backends.machine.model import Function, Instruction, Place

    places = Place("/another/checkout/kernels/k.cu", 3), Place("/usr/x.h", 1)
    there = Function("k", "k", "sm_90a", (Instruction(0, "EXIT", "EXIT", "branch", places),), 16)
    (moved,) = files.localised([there], tmp_path)
    assert moved.code[0].places == (Place("kernels/k.cu", 3), Place("/usr/x.h", 1))


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="no c++filt: names are shortened by ourselves")
def test_names_are_short() -> None:
    assert files.short_names(["_Z1kILi3EEvPfi"]) == {"_Z1kILi3EEvPfi": "k<3>"}
