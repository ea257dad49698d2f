# SPDX-License-Identifier: MIT
"""Resident warps (waves) over the maximum, from the resources of a kernel and the limits of an SM or CU.

What a launch asks for in dynamic shared memory is not in a binary: without it the figure is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmLimits:
    """One NVIDIA SM. Source: CUDA C++ Programming Guide, technical specifications per compute capability."""

    warps: int
    blocks: int
    registers: int                     # 32-bit, per SM
    shared_bytes: int                  # for blocks, with what the system reserves
    register_granule: int = 256        # per warp
    shared_granule: int = 128
    shared_reserved: int = 1024        # taken by the system for each block
    partitions: int = 4                # a warp's registers come from one of them


SM90 = SmLimits(warps=64, blocks=32, registers=65536, shared_bytes=228 * 1024)
SM89 = SmLimits(warps=48, blocks=24, registers=65536, shared_bytes=100 * 1024)
SM86 = SmLimits(warps=48, blocks=16, registers=65536, shared_bytes=100 * 1024)
SM80 = SmLimits(warps=64, blocks=32, registers=65536, shared_bytes=164 * 1024)
BY_ARCH = {"sm_80": SM80, "sm_86": SM86, "sm_89": SM89, "sm_90": SM90, "sm_90a": SM90}


def nvidia(limits: SmLimits, registers: int, shared_bytes: int, threads: int) -> float:
    """Resident warps per SM over the maximum for blocks of ``threads``; 0.0 if not one block fits."""
    warps = _ceil_div(threads, 32)
    per_warp = _round_up(max(registers, 1) * 32, limits.register_granule)
    by_registers = limits.registers // limits.partitions // per_warp * limits.partitions // warps
    shared = _round_up(shared_bytes, limits.shared_granule) + limits.shared_reserved
    blocks = min(limits.blocks, limits.warps // warps, by_registers, limits.shared_bytes // shared)
    return blocks * warps / limits.warps


# One CDNA3 compute unit. Source: AMD Instinct MI300 ISA guide and LLVM's AMDGPU usage page.
CU_SIMDS = 4
CU_WAVES_PER_SIMD = 8
CU_VECTOR_REGISTERS = 512            # per lane and SIMD, architectural and accumulation ones together
CU_VECTOR_GRANULE = 8
CU_SCALAR_LIMIT = 100                # more scalar registers than this cost the eighth wave
CU_LDS_BYTES = 64 * 1024
CU_LDS_GRANULE = 512
CU_WORKGROUPS = 16                   # with a barrier, i.e. of more than one wave


def cdna3(vector_registers: int, scalar_registers: int, lds_bytes: int, threads: int) -> float:
    """Resident waves per CU over the maximum (32) for workgroups of ``threads``; 0.0 if not one fits.

    ``vector_registers`` is the total a lane holds, architectural and accumulation ones.
    """
    waves = _ceil_div(threads, 64)
    per_simd = CU_VECTOR_REGISTERS // _round_up(max(vector_registers, 1), CU_VECTOR_GRANULE)
    per_simd = min(per_simd, CU_WAVES_PER_SIMD - (scalar_registers > CU_SCALAR_LIMIT))
    groups = per_simd * CU_SIMDS // waves
    if waves > 1:
        groups = min(groups, CU_WORKGROUPS)
    if lds_bytes:
        groups = min(groups, CU_LDS_BYTES // _round_up(lds_bytes, CU_LDS_GRANULE))
    return groups * waves / (CU_SIMDS * CU_WAVES_PER_SIMD)


def _ceil_div(count: int, step: int) -> int:
    return -(-count // step)


def _round_up(count: int, step: int) -> int:
    return _ceil_div(count, step) * step
