# SPDX-License-Identifier: MIT
"""Sources that are no kernels of a checkout: a plain .cu or .hip file, and the device code inside a submission.

They are compiled for the device alone, as they are, with the folder of the file as include folder. A submission is
read, never run: its device code is what it hands to ``load_inline`` as plain text.
"""

from __future__ import annotations

import ast
import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from backends import _diagnostics, _llvm, _process, cuda, rocm
from backends.base import Target
from backends.errors import BackendError, CompileError
from backends.machine import files, stages
from backends.machine.model import Image
from backends.toolchain import Tool, define_flags, package_folder

_TIMEOUT = 600.0
_TORCH = re.compile(r"\b(?:torch|at|c10)::|#\s*include\s*<(?:torch|ATen|c10)/")
_KERNEL = re.compile(r"\b__global__\b")


def is_submission(path: Path) -> bool:
    """Whether ``inspect`` should look for device code in a Python file."""
    return path.suffix == ".py"


def device_code(path: Path) -> tuple[str, str]:
    """(language, text) of the device code in a submission: all string constants that define a kernel, joined.

    Raises ``BackendError`` where there is none as plain text, with what to do.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BackendError(f"{path} cannot be read as Python: {error}") from error
    constants = [node.value for node in ast.walk(tree)
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [text for text in constants if _KERNEL.search(text) and "{" in text]
    if not found:
        jit = any(isinstance(node, ast.Attribute) and node.attr == "jit" for node in ast.walk(tree))
        what = ("Triton compiles it when it runs; inspect a .cubin or .hsaco from Triton's cache (~/.triton/cache)"
                if jit else "write the source that it compiles to a .cu or .hip file and inspect that")
        raise BackendError(f"{path} has no device code as plain text: {what}")
    text = "\n".join(dict.fromkeys(found))
    return ("hip" if "hip/hip_" in text else "cuda"), text


def target_of(language: str, gpu: str | None) -> Target:
    """The target of a GPU label or arch, else the first of the language's. Raises ``UnknownTarget``."""
    return (rocm.BACKEND if language == "hip" else cuda.BACKEND).target(gpu)


def compile_source(
    path: Path, language: str, text: str, target: Target, defines: Mapping[str, str], wanted: files.Wanted,
) -> Image:
    """Compile ``text``, found in ``path``, for the device alone and read the result.

    Raises ``CompileError`` with the compiler's messages, ``ToolchainMissing``, ``BackendError``.
    """
    with _staged(path, language, text) as source:
        out = source.parent / "device.out"
        steps, version = _steps(path, language, text, target, defines, source, out)
        log = "".join(_run(step, path, source.parent) for step in steps)
        data = out.read_bytes()
        found = files.of_code_object(data, wanted) if language == "hip" else files.of_cubin(data, wanted)
        found = [files.renamed(function, str(source), str(path)) for function in found]
        return files.image(found, str(path), wanted, version, log, text)


def stage_of_source(
    stage: str, path: Path, language: str, text: str, target: Target, defines: Mapping[str, str],
) -> dict[str, str]:
    """The texts of a stage of such a source by title, with places in ``path``. Raises as ``compile_source`` does."""
    stages.refuse(stage, target.backend)
    with _staged(path, language, text) as source:
        steps, _ = _steps(path, language, text, target, defines, source, source.parent / "device.out")
        principal = min(_llvm.PRINCIPAL, len(steps) - 1)
        for step in steps[:principal]:
            _run(step, path, source.parent)
        found = stages.texts(stage, steps[principal], source.parent, source.parent)
        return {title: each.replace(str(source), str(path)) for title, each in found.items()}


@contextlib.contextmanager
def _staged(path: Path, language: str, text: str) -> Iterator[Path]:
    """The source as a file of its own in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="warpwave-inspect-") as name:
        source = Path(name) / f"{path.stem}.{'hip' if language == 'hip' else 'cu'}"
        source.write_text(text, encoding="utf-8")
        yield source


def _steps(
    path: Path, language: str, text: str, target: Target, defines: Mapping[str, str], source: Path, out: Path
) -> tuple[list[list[str]], str]:
    flags = ["-I", str(path.absolute().parent), *define_flags(defines)]
    return (_hip if language == "hip" else _cuda)(source, out, target, flags, _TORCH.search(text) is not None)


def _run(step: list[str], path: Path, folder: Path) -> str:
    """The compiler's messages; raises ``CompileError``."""
    done = _process.run(step, folder / "log", folder, _TIMEOUT, {"TMPDIR": str(folder)})
    log = done.output.replace(f"{folder}/", "")
    if done.returncode != 0:
        parsed = _diagnostics.parse(log, path.absolute().parent, path.name)
        first = next((str(each) for each in _diagnostics.errors(parsed)), log.strip()[:200])
        raise CompileError(f"{path}: the compiler refused it: {first}", parsed, log, step)
    return log


def _cuda(source: Path, out: Path, target: Target, flags: list[str], torch: bool) -> tuple[list[list[str]], str]:
    nvcc = cuda.find_nvcc()
    cuda.require_host_compiler(nvcc)
    virtual = f"compute_{target.arch.removeprefix('sm_')}"
    headers = []
    if torch:
        folders = [folder / "include" for folder in package_folder("torch")]
        headers = [word for folder in folders for place in (folder, folder / "torch/csrc/api/include")
                   for word in ("-I", str(place))]
        headers += ["-include", "torch/types.h"]
    return [[str(nvcc.path), "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr",
             f"-gencode=arch={virtual},code={target.arch}", "-Xptxas", "-v", *headers, *flags, "-cubin", str(source),
             "-o", str(out)]], nvcc.version


def _hip(source: Path, out: Path, target: Target, flags: list[str], torch: bool) -> tuple[list[list[str]], str]:
    if torch:
        raise BackendError(f"{source.name} includes torch's headers, which need ROCm: inspect the library that torch "
                           "built")
    compiler = rocm.BACKEND.compiler()
    words = ["-std=c++17", "-O3", f"--offload-arch={target.arch}", *flags]
    lines = ("-gline-tables-only",)
    if isinstance(compiler, Tool):
        return [[str(compiler.path), "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", *words, *lines,
                 str(source), "-o", str(out)]], compiler.version
    library = out.with_name("kernel.so")
    steps = compiler.steps(target.arch, words, str(source), library, lines)[: _llvm.PRINCIPAL + 2]
    steps[-1][-1] = str(out)
    return steps, compiler.version
