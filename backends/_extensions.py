# SPDX-License-Identifier: MIT
"""How the GPU code that a Python submission gives to torch's ``load_inline`` is built where that GPU is not.

HIP for MI300 becomes a library for the emulated device, and so does CUDA where its GPU is emulated. Else CUDA is
compiled for its GPU, and nothing is linked. The commands are data, because the submission runs in a sandbox, and its
compilers with it. Whoever runs them replaces three words: ``@SOURCE@`` by a path, ``@OUT@`` by a folder, and
``@FLAGS@`` by flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backends import _llvm, cuda, rocm
from backends.base import Device, Target
from backends.cpu import find_cxx
from backends.emulator import build
from backends.emulator.hipcc import HEADERS
from backends.toolchain import Tool

_TORCH = HEADERS.parent / "torch"       # what torch's builds for GPUs have and its CPU builds lack
SOURCE, OUT, FLAGS = "@SOURCE@", "@OUT@", "@FLAGS@"
# What torch.cuda says of a GPU: name, compute capability, multiprocessors, threads of a warp, memory.
_GPUS: Mapping[str, tuple[str, tuple[int, int], int, int, int]] = {
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 132, 32, 80 * 2**30),
    "H200": ("NVIDIA H200", (9, 0), 132, 32, 141 * 2**30),
    "L4": ("NVIDIA L4", (8, 9), 58, 32, 24 * 2**30),
    "MI300": ("AMD Instinct MI300X (emulated)", (9, 4), 304, 64, 192 * 2**30),
}


@dataclass(frozen=True)
class Extensions:
    """``device``: commands that make ``@OUT@/<compiled>`` of a GPU source. ``host``: one that makes ``main.o``
    there of a C++ source, or only checks it. ``link``: the linker; "" if nothing is linked, so nothing can run.

    ``gpu``: what torch.cuda says of the GPU. ``version``: of CUDA or HIP. ``reads``: files that compilers read besides
    the system's. ``include`` comes after all other include folders.
    """

    language: str
    label: str
    device: tuple[tuple[str, ...], ...]
    compiled: str
    host: tuple[str, ...]
    link: str
    include: tuple[str, ...]
    reads: tuple[str, ...]
    version: str
    gpu: Mapping[str, object] = field(hash=False)


def of(target: Target, device: Device | None) -> Extensions | None:
    """How ``load_inline`` works for ``target``; None where the device runs what torch itself builds.

    Raises ``ToolchainMissing`` where a compiler is missing, ``BackendError`` where the emulator cannot be built.
    """
    if target.backend == "rocm" and device is not None and device.emulated:
        return _hip(target)
    if target.backend == "cuda" and (device is None or device.emulated):
        return _cuda(target, device is not None)
    return None


def _hip(target: Target) -> Extensions:
    compiler, cxx = rocm.BACKEND.compiler(), str(find_cxx().path)
    lines = ("-gline-tables-only", "-fdebug-compilation-dir=.")
    arch = f"--offload-arch={target.arch}"
    if isinstance(compiler, Tool):
        steps = [[str(compiler.path), "-x", "hip", "-c", "-fPIC", arch, *lines, FLAGS, SOURCE, "-o", f"{OUT}/gpu.o"]]
        made, headers, reads = "gpu.o", compiler.path.resolve().parent.parent / "include", []
    else:
        *steps, _link = compiler.steps(target.arch, [arch, FLAGS], SOURCE, Path(OUT) / "gpu.so", lines)
        made, headers = "gpu.host.o", compiler.headers
        reads = [Path(compiler.clang[0]).parent, Path(compiler.lld[0]).parent, compiler.resources, compiler.headers,
                 compiler.bitcode, _llvm.CONTROLS]
    host = (cxx, "-c", "-fPIC", FLAGS, "-isystem", str(headers), SOURCE, "-o", f"{OUT}/main.o")
    return Extensions(
        "hip", "MI300", tuple(tuple(step) for step in steps), made, host, cxx, (str(HEADERS), str(_TORCH)),
        tuple(str(path) for path in (*reads, HEADERS, _TORCH)),
        build.hip_version(headers), _facts(target))


def _cuda(target: Target, runs: bool) -> Extensions:
    """``runs``: on an emulated GPU, which takes PTX."""
    nvcc = cuda.BACKEND.compiler()
    cxx = str(find_cxx().path)
    made = "gpu.o" if runs else "gpu.fatbin"
    what = ("-c", "--no-compress") if runs else ("-fatbin",)
    step = (str(nvcc.path), *what, "-lineinfo", "-Xptxas", "-v", "-Xcompiler", "-fPIC", FLAGS, SOURCE, "-o",
            f"{OUT}/{made}")
    home = nvcc.path.resolve().parent.parent
    headers = [folder for folder in (home / "include", home / "targets/x86_64-linux/include") if folder.is_dir()]
    found = [word for folder in headers for word in ("-isystem", str(folder))]
    host = (cxx, *(("-c", "-fPIC", "-o", f"{OUT}/main.o") if runs else ("-fsyntax-only",)), FLAGS, *found, SOURCE)
    version = nvcc.version.partition(" ")[2].partition(";")[0] or nvcc.version
    ours = (str(_TORCH),) if runs else ()
    return Extensions("cuda", target.gpu, (step,), made, host, cxx if runs else "", ours, (str(home), *ours), version,
                      _facts(target))


def _facts(target: Target) -> Mapping[str, object]:
    known = _GPUS.get(target.gpu)
    name, capability, units, lanes, memory = known or (target.gpu, (0, 0), 1, target.warp_size, 2**34)
    return {"name": name, "major": capability[0], "minor": capability[1], "multi_processor_count": units,
            "warp_size": lanes, "total_memory": memory,
            "gcnArchName": f"{target.arch}:sramecc+:xnack-" if target.backend == "rocm" else "",
            "shared_memory_per_block": 65536 if target.backend == "rocm" else 49152,
            "shared_memory_per_block_optin": target.max_smem, "shared_memory_per_multiprocessor": target.max_smem,
            "max_threads_per_multi_processor": 2048, "regs_per_multiprocessor": 65536,
            "L2_cache_size": target.llc_bytes, "is_integrated": 0, "is_multi_gpu_board": 0}
