# SPDX-License-Identifier: MIT
"""``load_inline`` for a GPU that is not here: by the commands of the judge's side, not by torch's search for a toolkit.

What is for an emulated GPU becomes an extension that can be called. Other CUDA is compiled, and what it was compiled to
is kept for the judge; whatever calls it hears that there is no GPU.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import cpp_extension
from torch.utils.hipify import hipify_python

from scoring.ipc.requests import Extensions
from scoring.ipc.stand_in import NeedsGpu
from scoring.worker import places
from scoring.worker.failure import ExtensionError

LOG = 12_000         # characters of a compiler's messages that are told of one extension
TRANSLATED = "// !!!"
# Headers of a CUDA toolkit that torch's own headers include and a small toolkit lacks: the types they use of them.
_ABSENT = {
    "cublas_v2.h": "typedef struct cublasContext* cublasHandle_t; typedef int cublasStatus_t;",
    "cublasLt.h": "typedef struct cublasLtContext* cublasLtHandle_t;",
    "cusparse.h": "typedef struct cusparseContext* cusparseHandle_t; typedef int cusparseStatus_t; "
                  "extern \"C\" const char* cusparseGetErrorString(cusparseStatus_t);",
    "cusolver_common.h": "typedef int cusolverStatus_t;",
    "cusolverDn.h": "#include <cusolver_common.h>\ntypedef struct cusolverDnContext* cusolverDnHandle_t;",
}
# Device memory is the host's, so what C++ asks of a CUDA tensor is true of a CPU tensor.
_ON_HOST: Sequence[tuple[re.Pattern[str], str]] = tuple((re.compile(pattern), made) for pattern, made in (
    (r"\bis_cuda\s*\(\s*\)", "is_cpu()"),
    (r"\bkCUDA\b", "kCPU"),
    (r"\bDeviceType::CUDA\b", "DeviceType::CPU"),
    (r"\.cuda\s*\(\s*\)", ".cpu()"),
    (r"\"cuda(?::\d+)?\"", '"cpu"'),
    (r"(TORCH_LIBRARY_IMPL\s*\([^,()]*,\s*)CUDA\b", r"\1CPU"),
    (r"\btorch::cuda::synchronize\s*\([^()]*\)", "c10::cuda::device_synchronize()"),
    (r"\bhip/(?:amd_detail/amd_)?hip_(?:bf16|bfloat16)\.h\b", "hip/hip_bf16.h"),
    (r"\bhip/amd_detail/amd_hip_(fp8|fp16)\.h\b", r"hip/hip_\1.h"),
    (r"#\s*include\s*[<\"](?:ATen|c10|torch)/(?:hip|cuda)/[\w/]+\.h[>\"]", "#include <warpwave_torch.h>"),
))
_RUNTIME = ("-lcuda", "-lcudart", "-lcudart_static")       # the emulator is in the process already


class Builder:
    """Takes the place of torch's ``load_inline``."""

    def __init__(self, how: Extensions, text: str, built: list[dict[str, Any]], names: dict[str, str]):
        """``text``: of the submission, whose lines the compiler shall name. ``built`` gets name, log and seconds of
        every extension, and whether it failed. ``names`` gets what findings shall leave out of a file's name."""
        self.how, self.text, self.built, self.names = how, text, built, names
        self._theirs = cpp_extension.load_inline

    def load_inline(
        self, name: str, cpp_sources: Any, cuda_sources: Any = None, sycl_sources: Any = None, functions: Any = None,
        extra_cflags: Any = None, extra_cuda_cflags: Any = None, extra_sycl_cflags: Any = None,
        extra_ldflags: Any = None, extra_include_paths: Any = None, build_directory: Any = None, verbose: bool = False,
        with_cuda: Any = None, with_sycl: Any = None, is_python_module: bool = True,
        with_pytorch_error_handling: bool = True, keep_intermediates: bool = True, use_pch: bool = False,
        no_implicit_headers: bool = False,
    ) -> Any:
        """As torch's; raises ``ExtensionError`` with the compiler's messages."""
        gpu = _listed(cuda_sources)
        if not gpu and not with_cuda:
            return self._theirs(  # type: ignore[no-untyped-call]
                name, cpp_sources, functions=functions, extra_cflags=extra_cflags, extra_ldflags=extra_ldflags,
                extra_include_paths=extra_include_paths, is_python_module=is_python_module,
                with_pytorch_error_handling=with_pytorch_error_handling, no_implicit_headers=no_implicit_headers)
        started = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}-"))
        self.names[f"{folder}/"] = ""         # nvcc names files from the root
        host = [] if no_implicit_headers else ["#include <torch/extension.h>"]
        host += self._placed("cpp_sources", _listed(cpp_sources))
        host += _bindings(functions, with_pytorch_error_handling)
        headers = [] if no_implicit_headers else [
            "#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
        sources = {"main.cpp": host}
        if gpu:
            sources["cuda.cu"] = headers + self._placed("cuda_sources", gpu)
        written = {file: self._written(folder, file, "\n".join(parts) + "\n") for file, parts in sources.items()}
        shared = [f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H",
                  *(word for path in _listed(extra_include_paths) for word in ("-I", str(path))), *_torch_headers()]
        flags = {"main.cpp": self._host_flags(_words(extra_cflags), shared),
                 "cuda.cu": self._device_flags(_words(extra_cuda_cflags), shared, folder)}
        steps = {"main.cpp": [self.how.host], "cuda.cu": list(self.how.device)}
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"} | {"LC_ALL": "C"}
        compilers = _Compilers(folder, environment)
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(compilers.run, steps[file], written[file], flags[file]) for file in sources]
        text, failed = "".join(run.result() for run in runs), compilers.failed
        library = folder / f"{name}.so"
        if self.how.link and not failed:
            text += compilers.run([self._link(folder, gpu != [], library, _words(extra_ldflags))], folder, [])
            failed = compilers.failed
        self.built.append({"name": name, "failed": failed, "log": _shortened(text),
                           "seconds": time.monotonic() - started})
        if failed:
            raise ExtensionError(_told(text, folder))
        if verbose:
            sys.stdout.write(text)
        if not self.how.link:
            return _Uncallable(name, self.how.label) if is_python_module else str(library)
        return _imported(name, library) if is_python_module else _loaded(library)

    def _placed(self, argument: str, sources: Sequence[str]) -> list[str]:
        """The sources with the lines of the submission, or with their own where they are not in its text."""
        placed = []
        for number, source in enumerate(sources):
            found = places.numbered(source, self.text, self.how.shown)
            own = found == source and source.strip() and not source.startswith(TRANSLATED)
            placed.append(f'#line 1 "{argument}[{number}]"\n{source}' if own else found)
        return placed

    def _written(self, folder: Path, file: str, text: str) -> Path:
        """The source as a file. What runs here is about the host's memory. Where HIP is wanted, torch's own tool
        translates it, as on ROCm."""
        path = folder / file
        path.write_text(text, encoding="utf-8")
        if not self.how.link:
            return path
        if self.how.language == "hip" and not text.startswith(TRANSLATED):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                made = hipify_python.hipify(
                    project_directory=str(folder), output_directory=str(folder), header_include_dirs=[],
                    includes=[str(folder / "*")], extra_files=[str(path)], is_pytorch_extension=True,
                    hipify_extra_files_only=True)
            found = next((result.hipified_path for name, result in made.items() if Path(name) == path), None)
            text = Path(found or path).read_text(encoding="utf-8")
        for pattern, replacement in _ON_HOST:
            text = pattern.sub(replacement, text)
        path.write_text(text, encoding="utf-8")
        return path

    def _host_flags(self, theirs: Sequence[str], shared: Sequence[str]) -> list[str]:
        common = cpp_extension.COMMON_HIP_FLAGS if self.how.language == "hip" else []
        return [*_standard(theirs), "-w", "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE", *shared, *common, *theirs,
                *self._last()]

    def _device_flags(self, theirs: Sequence[str], shared: Sequence[str], folder: Path) -> list[str]:
        ours = [*_standard(theirs), *(() if any(re.match(r"-O", flag) for flag in theirs) else ("-O3",)),
                "-w", "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE", *shared]
        if self.how.language == "hip":
            kept = []
            for flag in theirs:
                named = re.match(r"--offload-arch=(\w+)", flag)
                if named and named[1] != "native":
                    if not named[1].startswith("gfx942"):
                        raise ExtensionError(f"error: {flag} is not for {self.how.label}, which is gfx942")
                    continue
                kept.append(flag)
            return [*ours, *cpp_extension.COMMON_HIP_FLAGS, *cpp_extension.COMMON_HIPCC_FLAGS, *kept, *self._last()]
        for header, text in _ABSENT.items():
            (folder / "absent").mkdir(exist_ok=True)
            (folder / "absent" / header).write_text(f"#pragma once\n{text}\n")
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{self.how.gpu['major']}.{self.how.gpu['minor']}")
        words = [*cpp_extension._get_cuda_arch_flags(list(theirs)), *theirs]
        if self.how.link:
            words = _as_ptx(words)
        last = [word for path in (*self.how.include, str(folder / "absent")) for word in ("-isystem", path)]
        return [*ours, *cpp_extension.COMMON_NVCC_FLAGS, *words, *last]

    def _last(self) -> list[str]:
        return [word for path in self.how.include for word in ("-idirafter", path)]

    def _link(self, folder: Path, gpu: bool, library: Path, theirs: Sequence[str]) -> list[str]:
        objects = [str(folder / "main.o"), *([str(folder / self.how.compiled)] if gpu else [])]
        place = Path(torch.__file__).parent / "lib"
        return [self.how.link, "-shared", *objects, f"-L{place}", f"-Wl,-rpath,{place}", "-lc10", "-ltorch_cpu",
                "-ltorch", "-ltorch_python", *(flag for flag in theirs if flag not in _RUNTIME), "-o", str(library)]


class _Uncallable(ModuleType):
    """The module of an extension that was compiled for a GPU that is not here."""

    def __init__(self, name: str, label: str):
        super().__init__(name)
        self._label = label

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_arguments: Any, **_options: Any) -> Any:
            raise NeedsGpu(f"{name} was compiled for {self._label}, and there is none here")

        return refuse


def _as_ptx(flags: Sequence[str]) -> list[str]:
    """Flags of nvcc that ask for the PTX of the GPUs whose machine code these ask for. Of an architecture by itself
    (``-arch=sm_90a``), as of pairs (``-gencode=arch=compute_90a,code=sm_90a``)."""
    return [re.sub(r"^(-{1,2}(?:gpu-architecture|arch|code|gpu-code)=|.*\bcode=)sm_", r"\1compute_", flag)
            if not re.match(r"sm_\d", flag) else f"compute_{flag[3:]}" for flag in flags]


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str | Path) else list(value)


def _words(flags: Any) -> list[str]:
    """Flags as a shell splits them, which torch has read them; without those that keep intermediate files."""
    words = [word for flag in _listed(flags) for word in shlex.split(str(flag))]
    return [word for word in words if not word.lstrip("-").startswith("save-temps")]


def _standard(flags: Sequence[str]) -> list[str]:
    return [] if any(flag.startswith("-std=") for flag in flags) else ["-std=c++20"]


def _torch_headers() -> list[str]:
    include = Path(torch.__file__).parent / "include"
    folders = [include, include / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_paths()["include"])]
    return [word for folder in folders for word in ("-isystem", str(folder))]


def _bindings(functions: Any, handling: bool) -> list[str]:
    if functions is None:
        return []
    named = functions if isinstance(functions, Mapping) else {name: name for name in _listed(functions)}
    lines = []
    for name, text in named.items():
        function = f"torch::wrap_pybind_function({name})" if handling else name
        lines.append(f'    m.def("{name}", {function}, {json.dumps(str(text))});')
    return ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"]


class _Compilers:
    """Runs commands at the same time. Once one fails, ``failed`` is true and the others end."""

    def __init__(self, folder: Path, environment: Mapping[str, str]):
        self._folder, self._environment = folder, environment
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self.failed = False

    def run(self, steps: Sequence[Sequence[str]], source: Path, flags: Sequence[str]) -> str:
        """What the steps say, up to the first that fails; nothing of one that ends because another has failed."""
        said = ""
        for step in steps:
            words = [word for part in step for word in (flags if part == "@FLAGS@" else [
                part.replace("@SOURCE@", str(source)).replace("@OUT@", str(self._folder))])]
            with self._lock:
                if self.failed:
                    return said
                process = subprocess.Popen(words, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
                self._running.append(process)
            printed = process.communicate()[0].decode(errors="replace")
            with self._lock:
                self._running.remove(process)
                if process.returncode and self.failed:
                    return said
                if process.returncode:
                    self.failed = True
                    for other in self._running:
                        os.killpg(other.pid, signal.SIGKILL)
                    return said + printed
            said += printed
        return said


def _told(log: str, folder: Path) -> str:
    """The compiler's words from its first error on, without our folder."""
    text = log.replace(f"{folder}/", "")
    first = re.search(r"^.*\b(?:error|fatal)\b.*$", text, re.MULTILINE)
    return text[first.start() if first else 0:][:4000].strip()


def _shortened(log: str) -> str:
    """What ptxas said of kernels, and the rest as far as there is room."""
    lines = [line for line in log.splitlines() if "ptxas info" in line or "bytes stack frame" in line]
    return "\n".join(lines)[-LOG:] if lines else log[-LOG:]


def _imported(name: str, library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_file_location(name, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _loaded(library: Path) -> str:
    torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    return str(library)
