# SPDX-License-Identifier: MIT
"""Packed files: their exact text, their refusals, and that compilers take them with the flags torch will use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import backends
from backends.errors import SourceError, ToolchainMissing
from backends.source import KernelSource, kernels
from scoring.popcorn.directives import MAX_SUBMISSION_BYTES
from submissions import lint, pack
from tests.submissions.conftest import HERE, ROOT, TREE, tiny

LABELS = {"cuda": "H100", "hip": "MI300", "cpu": "CPU"}
GOLDENS = HERE / "goldens"

# What torch's load_inline puts on the command line itself, and what the tree's builds do without.
TORCH_CUDA_FLAGS = ["-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__",
                    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__",
                    "--expt-relaxed-constexpr", "--compiler-options", "-fPIC"]


def real_kernels(language: str) -> list[pytest.param]:
    return [pytest.param(path, id=str(path.relative_to(ROOT / "kernels"))) for path in kernels(ROOT, language)]


# Text


@pytest.mark.parametrize("language", LABELS)
def test_golden(language: str) -> None:
    """After a change that is meant: WARPWAVE_UPDATE_GOLDENS=1 writes them anew; read the difference."""
    text = pack.pack(tiny(language), [LABELS[language]]).text
    golden = GOLDENS / f"tiny_{language}.txt"
    if os.environ.get("WARPWAVE_UPDATE_GOLDENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_the_same_bytes_in_another_process_and_folder(tmp_path: Path) -> None:
    script = ("import sys; from tests.submissions.conftest import tiny; from submissions.pack import pack; "
              "sys.stdout.write(pack(tiny('cuda'), ['H100', 'L4']).text)")
    outputs = set()
    for seed, folder in (("1", tmp_path), ("2", ROOT)):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        outputs.add(subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, check=True,
                                   capture_output=True).stdout)
    assert len(outputs) == 1


def test_the_checkouts_place_does_not_show(tree: Path) -> None:
    assert pack.pack(tiny("cuda", tree)).text == pack.pack(tiny("cuda")).text


@pytest.mark.parametrize("language", LABELS)
def test_header_and_hygiene(language: str) -> None:
    text = pack.pack(tiny(language), leaderboard="some-board").text
    assert text.startswith(f"#!POPCORN leaderboard some-board\n#!POPCORN gpus {LABELS[language]}\n")
    assert "stream" not in text.lower()
    assert "#include \"" not in text
    assert "numpy" not in text            # binding.py's flops needs it, the packed file does not
    assert str(ROOT) not in text
    errors = [item for item in lint.lint(text.encode(), "submission.py") if item.severity == "error"]
    assert errors == []


def test_defines_and_tunables_come_first() -> None:
    lines = pack.pack_source(tiny("cuda"), {"UNROLL": 2}).split("\n")
    assert lines[:3] == ["#define WARPWAVE_PACKED 1", "#define THREADS 64", "#define UNROLL 2"]
    assert "#define UNROLL 1" in pack.pack_source(tiny("cuda"))


def test_architectures_are_named() -> None:
    text = pack.pack(tiny("cuda"), ["H100", "L4"]).text
    flags = re.findall(r'"(-gencode[^"]*)"', text)
    assert flags == ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_89,code=sm_89",
                     "-gencode=arch=compute_89,code=compute_89"]
    assert '"--offload-arch=gfx942"' in pack.pack(tiny("hip")).text
    assert 'os.environ["PYTORCH_ROCM_ARCH"] = "gfx942"' in pack.pack(tiny("hip")).text


def test_the_best_gpu_is_the_default() -> None:
    assert pack.pack(tiny("cuda")).gpus == ("H100",)
    assert pack.pack(tiny("cuda"), ["B200"]).arches == ("sm_89",)     # sm_90a code would not load there


# Refusals


@pytest.mark.parametrize(("language", "gpu", "words"), [
    ("cuda", "MI300", "cannot run on MI300"), ("hip", "H100", "cannot run on H100"),
    ("cuda", "h100", "did you mean H100"), ("cuda", "Z9", "unknown GPU label"), ("hip", "MI355X", "MI355X runs gfx950"),
    ("cuda", "A100", "A100 runs sm_80"),
])
def test_gpus_it_cannot_be_packed_for(language: str, gpu: str, words: str) -> None:
    with pytest.raises(pack.PackError, match=words):
        pack.pack(tiny(language), [gpu])


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.parametrize(("file", "before", "after", "words"), [
    ("kernels/common/reverse.h", "Index", "upSTREAM index", r"kernels/common/reverse\.h:2: the letters 'stream'"),
    ("problems/axpy/binding.py", "Binding of", "Streams", None),       # the docstring is not packed
    ("problems/axpy/binding.py", "n, from the", "streams", "line .* of the packed file has the letters 'stream'"),
    ("problems/axpy/binding.py", "def case_of", "def size_of", "defines no case_of"),
    ("problems/axpy/binding.py", "def outputs", "def results", r"binding\.py:1: defines no outputs"),
    ("problems/axpy/binding.py", "_pages", "_build", "defines _build, which a packed file uses itself"),
    ("problems/axpy/binding.py", "import math", "import mathutils as math", "mathutils is not there"),
    ("kernels/common/reverse.h", '"status.h"', '"gone.h"', r"reverse\.h:5: \"gone\.h\" is in none of"),
    ("kernels/cuda/axpy/tiny.cu", "return LAUNCH_STATUS", "/* ''' \"\"\" */ return LAUNCH_STATUS", "triple quotes"),
])
def test_what_cannot_be_packed(tree: Path, file: str, before: str, after: str, words: str | None) -> None:
    change(tree / file, before, after)
    if words is None:
        pack.pack(tiny("cuda", tree))
        return
    with pytest.raises(pack.PackError, match=words):
        pack.pack(tiny("cuda", tree))


def test_either_kind_of_quotes_will_do(tree: Path) -> None:
    change(tree / "kernels/cuda/axpy/tiny.cu", "return LAUNCH_STATUS", "/* ''' */ return LAUNCH_STATUS")
    assert 'SOURCE = r"""' in pack.pack(tiny("cuda", tree)).text


def test_too_large(tree: Path) -> None:
    change(tree / "kernels/common/reverse.h", "Index", "x" * 1_000_000)
    with pytest.raises(pack.PackError, match="bytes packed"):
        pack.pack(tiny("cuda", tree))


def test_unknown_tunable_values_are_the_kernels_error() -> None:
    with pytest.raises(SourceError, match="tunable UNROLL"):
        pack.pack(tiny("cuda"), defines={"UNROLL": 3})


def test_a_name_that_is_neither_tunable_nor_define_is_refused() -> None:
    with pytest.raises(pack.PackError, match="UNROL is no tunable and no define of it; there are: UNROLL, THREADS"):
        pack.pack(tiny("cuda"), defines={"UNROL": 2})


def test_board_names_are_words() -> None:
    with pytest.raises(pack.PackError, match="no leaderboard name"):
        pack.pack(tiny("cuda"), leaderboard="two words")


# torch's own handling of the source


def test_hipify_leaves_a_packed_hip_source_alone(tmp_path: Path) -> None:
    """load_inline runs torch's hipify over the file on ROCm; its rewriting of launches would break LAUNCH."""
    hipify_python = pytest.importorskip("torch.utils.hipify.hipify_python")
    source = pack.pack_source(tiny("hip"))
    file = tmp_path / "cuda.cu"

    def hipified(text: str) -> str:
        file.write_text(text)
        hipify_python.HIPIFY_FINAL_RESULT.clear()
        result = hipify_python.hipify(
            project_directory=str(tmp_path), output_directory=str(tmp_path), header_include_dirs=[],
            extra_files=[str(file)], ignores=[], show_detailed=False, show_progress=False, is_pytorch_extension=True,
            clean_ctx=hipify_python.GeneratedFileCleaner(keep_intermediates=True))
        path = result[str(file)].hipified_path or str(file)
        return Path(path).read_text()

    assert hipified(source) == source
    assert hipified(source.removeprefix(backends.get("rocm").packing.first_line or "")) != source   # the line does it


def test_torch_adds_no_architecture_to_ours() -> None:
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    for arches in (["sm_90a"], ["sm_89"], ["sm_90a", "sm_89"]):
        assert cpp_extension._get_cuda_arch_flags(list(pack.device_flags(backends.get("cuda"), arches))) == []


# Compilers


def nvcc() -> Path:
    from backends.cuda import find_nvcc

    try:
        return find_nvcc().path
    except ToolchainMissing as error:
        pytest.skip(str(error))


def compile_cuda(kernel: KernelSource, folder: Path, *more: str) -> None:
    file = folder / "cuda.cu"
    file.write_text(pack.pack_source(kernel))
    arch = pack.pack(kernel).arches
    # Up to PTX, not optimised: that the optimiser and ptxas take it, the builds of the tree show
    # (test_packing_changes_no_device_code).
    flags = [flag.replace("code=sm_", "code=compute_") for flag in pack.device_flags(backends.get("cuda"), arch)]
    flags += ["-Xcicc", "-O0", *more]
    command = [str(nvcc()), *TORCH_CUDA_FLAGS, *flags, "-c", str(file), "-o", str(folder / "cuda.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled(5)
@pytest.mark.toolchain
@pytest.mark.parametrize("path", [*kernels(TREE, "cuda"), *real_kernels("cuda")])
def test_packed_cuda_kernels_compile(path: Path, tmp_path: Path) -> None:
    root = TREE if path.is_relative_to(TREE) else ROOT
    compile_cuda(KernelSource.read(path, root), tmp_path)


@pytest.mark.toolchain
def test_packing_changes_no_device_code(tmp_path: Path) -> None:
    """PTX of the tree's file, built as packed, and of the packed file."""
    kernel = tiny("cuda")
    packed = tmp_path / "tiny.cu"
    packed.write_text(pack.pack_source(kernel))
    texts = []
    for file, more in ((packed, []), (kernel.path, ["-DTHREADS=64", "-DUNROLL=1", "-DWARPWAVE_PACKED",
                                                    *(f"-I{folder}" for folder in kernel.include_dirs)])):
        out = tmp_path / "out.ptx"
        subprocess.run([str(nvcc()), "-std=c++17", "-O3", "-ptx", "-arch=compute_90a", *more,
                        str(file), "-o", str(out)], check=True, capture_output=True)
        # Names of the anonymous namespace hold a hash of the file's path.
        texts.append(re.sub(r"_GLOBAL__N__[0-9a-f_]+", "anonymous", out.read_text()))
    assert texts[0] == texts[1]
    assert texts[0].count(".entry") == 2


@pytest.mark.toolchain
@pytest.mark.parametrize(("language", "arch"), [("cuda", "sm_90a"), ("cuda", "sm_89"), ("hip", "gfx942")])
def test_packed_files_are_compiled_with_the_trees_flags(language: str, arch: str) -> None:
    """Whatever a packed file asks for, the tree's build has too, but for taking back what torch adds."""
    backend = backends.get({"cuda": "cuda", "hip": "rocm"}[language])
    try:
        command = " ".join(backend.command(tiny(language), Path("out.so"), backend.target(arch)))
    except ToolchainMissing as error:
        pytest.skip(str(error))
    flags = [flag for flag in pack.device_flags(backends.of_language(language), [arch]) if not flag.startswith("-U")]
    assert [flag for flag in flags if flag not in command.split()] == []
    assert set(backend.portable_flags(arch)) == set(flags)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: HIP's headers are compiled once for a cache."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.sampled(4)
@pytest.mark.toolchain
@pytest.mark.parametrize("path", [*kernels(TREE, "hip"), *real_kernels("hip")])
def test_packed_hip_kernels_compile(path: Path, tmp_path: Path, cache: Path) -> None:
    if "rocm" not in backends.names():
        pytest.skip("there is no rocm backend yet to ask for a compiler")
    backend = backends.get("rocm")
    available = backend.probe()
    if not available.can_compile:
        pytest.skip("; ".join(available.reasons))
    root = TREE if path.is_relative_to(TREE) else ROOT
    kernel = KernelSource.read(path, root)
    file = tmp_path / "kernels/hip" / kernel.problem / "packed.hip"
    file.parent.mkdir(parents=True)
    file.write_text(pack.pack_source(kernel))
    # A source with nothing around it: no header of the project is in reach.
    alone = KernelSource(file, tmp_path, kernel.problem, "packed", "hip", file.read_text(), arches=kernel.arches)
    binary = backend.compile(alone, backend.target("gfx942"), cache_dir=cache)
    assert kernel.signature().symbol.encode() in binary.path.read_bytes()


@pytest.mark.parametrize("path", [path for language in LABELS for path in real_kernels(language)])
def test_every_kernel_of_the_tree_packs(path: Path) -> None:
    text = pack.pack(KernelSource.read(path, ROOT)).text
    assert len(text.encode()) < MAX_SUBMISSION_BYTES
    errors = [item for item in lint.lint(text.encode(), "submission.py") if item.severity == "error"]
    # A CUDA kernel of an AMD board packs under its own GPU's label, for a board of that name elsewhere.
    assert [item for item in errors if "is no GPU of leaderboard" not in item.message] == []


@pytest.mark.parametrize(("language", "line"), [
    ("cuda", "nvcc --fmad=false"), ("hip", "clang -ffp-contract=off"), ("cpu", "c++ -ffp-contract=off"),
])
def test_a_kernels_own_flags_are_packed(tree: Path, language: str, line: str) -> None:
    path = tiny(language, tree).path
    path.write_text(f"//!KERNEL flags {line}\n{path.read_text()}")
    text = pack.pack(tiny(language, tree)).text
    assert f'"{line.split()[1]}"' in text
