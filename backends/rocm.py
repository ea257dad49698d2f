# SPDX-License-Identifier: MIT
"""ROCm: hipcc where it is installed, else plain LLVM; resource usage from the code object; AMD's devices.

gfx942's FP8 is E4M3FNUZ: the bits of E4M3FN mean half the value there, and 0x80 is NaN.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backends import _amd, _codeobject, _emulated, _llvm, _names, _occupancy
from backends.base import (
    Availability,
    BackendError,
    Device,
    Diagnostic,
    KernelUsage,
    Target,
    ToolchainMissing,
    Usage,
)
from backends.source import KernelSource
from backends.toolchain import (
    CompilingBackend,
    Plan,
    Tool,
    define_flags,
    include_flags,
    relative,
    remembered,
    which,
)

CODE_OBJECT = "kernel.hsaco"
_MIN_HIP = (6, 0)     # the first release that knows gfx942
# Source lines for what runs or reads device code. No machine code changes; relative paths keep a build the same
# wherever the checkout lies.
_LINES = ("-gline-tables-only", "-fdebug-compilation-dir=.")
# Headers of ROCm that the triton wheel lacks, and what does the same without them.
_HEADERS = {
    "hip/hip_fp16.h": "_Float16",
    "hip/hip_bf16.h": "__bf16",
    "hip/hip_bfloat16.h": "__bf16",
    "hip/hip_fp8.h": "the clang builtins __builtin_amdgcn_cvt_*_fp8",
}

TARGETS = (
    Target("rocm", "MI300", "gfx942", 64, "e4m3fnuz", 64 * 2**10, 256 * 2**20,
           {"fp8": 2614.9e12, "bf16": 1307.4e12, "fp16": 1307.4e12, "fp32": 163.4e12, "bytes": 5.3e12},
           "AMD Instinct MI300X data sheet (dense, 2100 MHz)"),
)


class RocmBackend(CompilingBackend):
    """hipcc or clang. ``compiler`` replaces the search, for tests."""

    name = "rocm"
    language = "hip"
    suffix = ".hip"

    def __init__(self, compiler: Tool | _llvm.Llvm | None = None):
        self._compiler = compiler

    def targets(self) -> tuple[Target, ...]:
        return TARGETS

    def probe(self) -> Availability:
        devices, reasons, runtime = _emulated.devices(_amd.devices)
        runtime = runtime or str(_amd.runtime() or "")
        try:
            compiler = self.compiler()
        except ToolchainMissing as error:
            return Availability(None, None, devices, (str(error), *reasons), runtime)
        path = compiler.clang[0] if isinstance(compiler, _llvm.Llvm) else str(compiler.path)
        return Availability(path, compiler.version, devices, reasons, runtime)

    def compiler(self) -> Tool | _llvm.Llvm:
        """hipcc, else the parts of plain LLVM; raises ``ToolchainMissing`` with everything tried."""
        return self._compiler or find()

    def plan(
        self, source: KernelSource, out: Path, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> Plan:
        compiler = self.compiler()
        flags = [*self.portable_flags(target.arch), *include_flags(source), *define_flags(source.resolve(defines))]
        file = relative(source.path, source.root)
        if isinstance(compiler, _llvm.Llvm):
            steps = tuple(tuple(step) for step in compiler.steps(target.arch, flags, file, out, _LINES))
            return Plan(steps, compiler.version, CODE_OBJECT, _llvm.PRINCIPAL, (_llvm.CONTROLS,))
        step = (str(compiler.path), "-x", "hip", "-fPIC", "-shared", *flags, *_LINES, file, "-o", str(out))
        return Plan((step,), compiler.version, CODE_OBJECT)

    def portable_flags(self, arch: str) -> tuple[str, ...]:
        return ("-std=c++17", "-O3", f"--offload-arch={self.target(arch).arch}")

    def explain(
        self, diagnostics: tuple[Diagnostic, ...], step: Sequence[str], root: Path, scratch: Path
    ) -> tuple[Diagnostic, ...]:
        """What to do about AMD headers that the triton wheel does not carry."""
        return tuple(
            replace(diagnostic, message=f"{diagnostic.message}: it comes with ROCm alone; without ROCm use {instead}")
            if (instead := next((_HEADERS[name] for name in _HEADERS if f"'{name}' file not found" in
                                 diagnostic.message), "")) else diagnostic
            for diagnostic in diagnostics
        )

    def finish(self, build: Path, target: Target) -> None:
        """hipcc puts the device code into the library alone: take it out again."""
        if not (build / CODE_OBJECT).exists():
            (build / CODE_OBJECT).write_bytes(_codeobject.extract(build / "kernel.so", target.arch))

    def usage(self, log: str, library: Path, target: Target) -> Usage:
        """From the metadata of the code object beside ``library``; ``registers`` is the total of both vector files.

        Spills count four bytes a lane for a vector register and four a wave for a scalar one.
        """
        found = _codeobject.kernels(library.with_suffix(".hsaco").read_bytes())
        names = _names.demangle([kernel.name for kernel in found], [which("llvm-cxxfilt"), which("c++filt")])
        return Usage(tuple(
            KernelUsage(
                name=names[kernel.name], registers=kernel.vgprs, agprs=kernel.agprs, scalar_registers=kernel.sgprs,
                spill_bytes=4 * (kernel.vgpr_spills + kernel.sgpr_spills), shared_bytes=kernel.lds_bytes,
                scratch_bytes=kernel.scratch_bytes, threads=kernel.max_threads,
                occupancy=_occupancy.cdna3(kernel.vgprs, kernel.sgprs, kernel.lds_bytes, kernel.max_threads),
            )
            for kernel in found
        ))

    def runtime_libraries(self, device: Device | None) -> list[Path]:
        """What to load with RTLD_GLOBAL before a kernel's library, which leaves the HIP runtime's symbols undefined.

        For the emulated device this compiles the emulator if need be, and raises ``BackendError`` where it cannot.
        """
        if device is None:
            return []
        if device.emulated:
            return [_emulated.library()]
        runtime = _amd.runtime()
        return [runtime] if runtime is not None else []

    def prepare(self, available: Availability, report: Callable[[str], None]) -> Availability:
        """Compiles the emulator if it is to be used; without it there is no emulated device, and a reason instead."""
        if not any(device.emulated for device in available.devices):
            return available
        try:
            _emulated.library(report)
        except BackendError as error:
            kept = tuple(device for device in available.devices if not device.emulated)
            return replace(available, devices=kept, reasons=(*available.reasons, f"no emulated MI300X: {error}"))
        return available

    def telemetry(self, device: Device) -> dict[str, object]:
        return {} if device.emulated else _amd.telemetry(device)


def find() -> Tool | _llvm.Llvm:
    """hipcc (``HIPCC``, ``ROCM_PATH``, ``HIP_PATH``, PATH, /opt/rocm), else LLVM's parts.

    Raises ``ToolchainMissing``, at once if ``HIPCC`` itself is no use.
    """
    tried: list[str] = []
    for rung, path in _hipcc_ladder():
        answer = remembered(path, [str(path), "--version"], _behind(path)) if path.is_file() else None
        match = re.search(r"HIP version: (\d+)\.(\d+)[\w.-]*", answer or "")
        if match and (int(match[1]), int(match[2])) >= _MIN_HIP:
            return Tool(path, f"hipcc {match[0].removeprefix('HIP version: ')}", rung)
        why = ("no such file" if not path.is_file() else f"too old for gfx942: {match[0]}" if match
               else "does not answer --version")
        tried.append(f"{rung}: {path} ({why})")
        if rung == "HIPCC":
            raise ToolchainMissing("hipcc", tried, "HIPCC names a compiler that does not work; correct or unset it")
    try:
        return _llvm.find()
    except ToolchainMissing as error:
        raise ToolchainMissing("gfx942 compiler", [*(tried or ["PATH: hipcc (not found)"]), *error.tried],
                               error.hint) from error


def _hipcc_ladder() -> list[tuple[str, Path]]:
    places: list[tuple[str, Path]] = []
    if hipcc := os.environ.get("HIPCC"):
        places.append(("HIPCC", which(hipcc) or Path(hipcc)))
    for variable in ("ROCM_PATH", "HIP_PATH"):
        if home := os.environ.get(variable):
            places.append((variable, Path(home) / "bin" / "hipcc"))
    if path := which("hipcc"):
        places.append(("PATH", path))
    default = _llvm.DEFAULT_PREFIX / "bin" / "hipcc"
    return [*places, ("default prefix", default)] if default.is_file() else places


def _behind(hipcc: Path) -> list[Path]:
    """Files whose change means another compiler although hipcc itself, a small driver, stays the same."""
    home = hipcc.resolve().parent.parent
    return [path for path in (home / "llvm" / "bin" / "clang", home / ".info" / "version") if path.is_file()]


BACKEND = RocmBackend()
