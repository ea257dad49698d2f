# SPDX-License-Identifier: MIT
"""Triton source to a gfx942 code object or to PTX, on a machine without a GPU.

Triton's own launcher is not used: it would build a driver stub with a C compiler and ask it for a device. Only
``triton.compile`` is called, for the target of the GPU; what it caches goes where the tests say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from backends._cache import default_folder
from scoring.worker.gpu import stop_at_ptx
from tests.emulator.programs.program import Launch

_TARGETS = {"MI300": GPUTarget("hip", "gfx942", 64), "H100": GPUTarget("cuda", 90, 32), "L4": GPUTarget("cuda", 89, 32)}
_OF_AMD = ("matrix_instr_nonkdim", "kpack", "waves_per_eu")       # options
stop_at_ptx()
_TYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
    torch.float8_e4m3fnuz: "fp8e4b8", torch.float8_e5m2fnuz: "fp8e5b16", torch.bool: "i1",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint64: "u64", torch.uint32: "u32", torch.uint16: "u16", torch.uint8: "u8",
}


@dataclass(frozen=True)
class Compiled:
    """A code object and how to launch it. ``order``: the parameters that are passed, in order, with Triton's types."""

    binary: bytes
    assembly: str
    name: str
    threads: int
    shared: int
    order: tuple[tuple[str, str], ...]


def type_of(value: torch.Tensor | int | float) -> str:
    """Triton's name of an argument's type: what its own launcher would have chosen."""
    if isinstance(value, torch.Tensor):
        return "*" + _TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -2**31 <= value < 2**31 else "i64"


def attributes(value: torch.Tensor | int | float, buffer_ops: bool) -> list[list[Any]]:
    """What the compiler may assume: 16-byte aligned, a multiple of 16, less than 2 GiB (which buffer access needs)."""
    if isinstance(value, torch.Tensor):
        aligned = [["tt.divisibility", 16]] if value.data_ptr() % 16 == 0 else []
        return [*aligned, *([["tt.pointer_range", 32]] if buffer_ops else [])]
    return [["tt.divisibility", 16]] if isinstance(value, int) and value % 16 == 0 else []


def compile_launch(launch: Launch, folder: Path | None = None, gpu: str = "MI300") -> Compiled:
    """Compile ``launch.kernel`` for these arguments. ``folder``: where Triton keeps its cache."""
    target = _TARGETS[gpu]
    # What is kept of NVIDIA's targets holds no machine code, as nobody else's cache does.
    os.environ["TRITON_CACHE_DIR"] = str((folder or default_folder()) / ("triton" if gpu == "MI300" else "triton-ptx"))
    signature: dict[str, str] = {}
    hints: dict[tuple[int, ...], list[list[Any]]] = {}
    for position, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
            continue
        value = launch.arguments[name]
        signature[name] = type_of(value)
        if found := attributes(value, launch.buffer_ops):
            hints[(position,)] = found
    constants: Mapping[str, Any] = dict(launch.constants)
    source = ASTSource(launch.kernel, signature, constants, hints)
    options = {"enable_fp_fusion": True, **launch.options}      # said, or Triton warns that its default will change
    if target.backend == "cuda":
        options = {name: value for name, value in options.items() if name not in _OF_AMD}
    with triton.knobs.amd.scope():
        triton.knobs.amd.use_buffer_ops = launch.buffer_ops
        triton.knobs.amd.use_buffer_atomics = launch.buffer_ops
        built = triton.compile(source, target=target, options=options)
    meta = built.metadata
    if meta.global_scratch_size or meta.profile_scratch_size:
        raise ValueError(f"{meta.name} wants Triton's global scratch, which this harness does not allocate")
    order = tuple((name, kind) for name, kind in signature.items() if kind != "constexpr")
    binary, assembly = ("hsaco", "amdgcn") if target.backend == "hip" else ("cubin", "ptx")
    threads = meta.num_warps * target.warp_size
    return Compiled(built.asm[binary], built.asm[assembly], meta.name, threads, meta.shared, order)
