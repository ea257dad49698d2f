# SPDX-License-Identifier: MIT
"""Kernels written in assembly, launched on the emulator, and what it counted."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.runtime import SUCCESS, Hip

_CLANG = [sys.executable, "-m", "ziglang", "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-g",
          "-x", "assembler"]
_LINK = [sys.executable, "-m", "ziglang", "ld.lld", "-shared"]

_SOURCE = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
{body}
  s_endpgm
.Lend:
.size kernel, .Lend - kernel
.rodata
.p2align 6
.amdhsa_kernel kernel
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 48
  .amdhsa_accum_offset {accum_offset}
  .amdhsa_group_segment_fixed_size {lds}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: {kernarg}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 48
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
    .args: [{arguments}]
...
.end_amdgpu_metadata
"""


def code_object(body: str, folder: Path, pointers: int = 0, lds: int = 0, vgprs: int = 64) -> bytes:
    """A kernel ``kernel`` of these instructions, half of its vector registers accumulation ones. s[0:1] point to the
    arguments, which are ``pointers`` addresses; s2 is the workgroup's number, v0 the thread's."""
    arguments = ", ".join(
        f"{{.size: 8, .offset: {8 * i}, .value_kind: global_buffer, .address_space: global}}" for i in range(pointers))
    source, relocatable, output = folder / "kernel.s", folder / "kernel.o", folder / "kernel.hsaco"
    source.write_text(_SOURCE.format(body=body, vgprs=vgprs, accum_offset=vgprs // 8 * 4, lds=lds,
                                     kernarg=max(8 * pointers, 8), arguments=arguments))
    for command in ([*_CLANG, "-c", str(source), "-o", str(relocatable)],
                    [*_LINK, str(relocatable), "-o", str(output)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return output.read_bytes()


def launch(hip: Hip, binary: bytes, grid: int, block: int, buffers: Sequence[np.ndarray] = ()) -> None:
    """Runs it on host memory."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert hip.hipModuleLoadData(ctypes.byref(module), binary) == SUCCESS
    try:
        assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"kernel") == SUCCESS
        values = [ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
        status = hip.hipModuleLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, None, pointers, None)
        assert status == SUCCESS, hip.hipGetErrorString(status)
        assert hip.hipDeviceSynchronize() == SUCCESS
    finally:
        hip.hipModuleUnload(module)


def option(hip: Hip, name: str, value: object) -> None:
    assert hip.warpwave_emulator_set(name.encode(), str(value).encode()) == 0


def take_counters(hip: Hip) -> list[dict[str, Any]]:
    """Of the launches since the last call."""
    hip.library.warpwave_emulator_take_counters.restype = ctypes.c_void_p
    hip.library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
    text = hip.library.warpwave_emulator_take_counters()
    try:
        return list(json.loads(ctypes.string_at(text)))
    finally:
        hip.library.warpwave_emulator_free(text)
