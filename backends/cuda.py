# SPDX-License-Identifier: MIT
"""CUDA: nvcc command lines, the search for nvcc, resource usage from ptxas, NVIDIA's devices.

Hopper's tensor cores need ``compute_90a``/``sm_90a``: code for plain ``sm_90`` may not use wgmma, and torch's own
architecture detection never names the ``a``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backends import _emulated, _names, _nvidia, _occupancy, _process, _ptxas
from backends._diagnostics import shorten
from backends.base import Availability, Device, GpuLabel, KernelUsage, Packing, Target, Usage
from backends.errors import BackendError, Diagnostic, ToolchainMissing
from backends.source import KernelSource
from backends.toolchain import (
    CompilingBackend,
    Plan,
    Tool,
    define_flags,
    include_flags,
    package_folder,
    relative,
    remembered,
    separate_statics,
    variables,
    which,
)

_MIN_RELEASE = (12, 0)     # the first nvcc that knows sm_90a
_HINT = 'install a CUDA toolkit of at least 12.0, or the one from wheels: pip install -e ".[cuda-toolchain]"'
DEFAULT_PREFIX = Path("/usr/local/cuda")
_HOPPER = {"fp8": 1979e12, "bf16": 989.4e12, "fp16": 989.4e12, "fp32": 66.9e12}

# Data-sheet rates are dense. Last-level caches: 60 MB is what an H200's driver reports, 50 and 48 MB are NVIDIA's.
TARGETS = (
    Target("cuda", "H200", "sm_90a", 32, "e4m3fn", 232448, 60 * 2**20, _HOPPER | {"bytes": 4.8e12},
           "NVIDIA H200 SXM data sheet (dense; tensor cores at 1830 MHz)"),
    Target("cuda", "H100", "sm_90a", 32, "e4m3fn", 232448, 50 * 2**20, _HOPPER | {"bytes": 3.35e12},
           "NVIDIA H100 SXM data sheet (dense; tensor cores at 1830 MHz)"),
    Target("cuda", "L4", "sm_89", 32, "e4m3fn", 101376, 48 * 2**20,
           {"fp8": 242.5e12, "bf16": 121.2e12, "fp16": 121.2e12, "fp32": 30.3e12, "bytes": 300e9},
           "NVIDIA L4 data sheet (dense; 2040 MHz boost, 72 W)"),
)
# sm_90a code runs on compute capability 9.0 alone; sm_89 builds carry PTX, which newer GPUs compile when loading.
LABELS = (
    GpuLabel("T4", "cuda", ("sm_75",)),
    GpuLabel("A100", "cuda", ("sm_80",)),
    GpuLabel("L4", "cuda", ("sm_89",)),
    GpuLabel("L4x4", "cuda", ("sm_89",)),
    GpuLabel("H100", "cuda", ("sm_90a", "sm_89")),
    GpuLabel("H200", "cuda", ("sm_90a", "sm_89"), official=False),
    GpuLabel("B200", "cuda", ("sm_100a", "sm_89")),
    GpuLabel("B200_Nebius", "cuda", ("sm_100a", "sm_89")),
)
PACKING = Packing(
    prepare='''\
    if torch.version.cuda is None:
        raise RuntimeError("packed for NVIDIA GPUs (@GPUS@), but this torch has no CUDA")
''',
    error_string="cudaGetErrorString",
    # Undoes torch's own macros: kernels are written without them.
    flags=("-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
           "-U__CUDA_NO_HALF2_OPERATORS__"),
    macros={"__HIP__": False, "__HIPCC__": False, "__CUDACC__": True},
)
# sm_89 keeps its PTX beside the machine code; sm_90a's would not run on anything else.
_CODE = {"sm_90a": ("sm_90a",), "sm_89": ("sm_89", "compute_89")}
_GENCODE = "-gencode="
_FLAGS = ("-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr")
_PACKAGES = {"ptxas": "nvcc"}     # the wheel of a tool that has none by its own name


class CudaBackend(CompilingBackend):
    """nvcc. ``compiler`` replaces the search, for tests."""

    name = "cuda"
    language = "cuda"
    suffix = ".cu"
    kernel_flags = ("nvcc", ("--fmad=(true|false)", "--use_fast_math", "--maxrregcount=[0-9]+", "-O[0-3]"))
    arch_pattern = "sm_[0-9]{2,3}[af]?"
    labels = LABELS
    packing = PACKING
    chain = "chain.cu"

    def __init__(self, compiler: Tool | None = None):
        self._compiler = compiler

    def targets(self) -> tuple[Target, ...]:
        return TARGETS

    def default_gpus(self) -> tuple[str, ...]:
        return ("H100", "L4")

    def probe(self) -> Availability:
        reasons = []
        compiler: Tool | None = None
        try:
            compiler = self.compiler()
        except ToolchainMissing as error:
            reasons.append(str(error))
        devices, why = _emulated.cuda_devices(_nvidia.devices)
        real = any(not device.emulated for device in devices)
        if compiler is not None and real and (mismatch := newer_than_driver(compiler, _nvidia.driver_cuda())):
            reasons.append(mismatch)
        return Availability(
            str(compiler.path) if compiler else None, compiler.version if compiler else None, devices,
            (*reasons, *why),
        )

    def compiler(self) -> Tool:
        """The nvcc to use, which can call a host compiler; raises ``ToolchainMissing`` if either is not here."""
        if self._compiler is None:
            nvcc = find_nvcc()
            require_host_compiler(nvcc)
            return nvcc
        return self._compiler

    def plan(
        self, source: KernelSource, out: Path, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> Plan:
        nvcc = self.compiler()
        flags = self.flags_of(source, target.arch)
        if self._emulates():        # the emulator is a CUDA runtime, and runs PTX; machine code takes minutes more
            virtual = self._virtual(target.arch)
            flags = (*(flag for flag in flags if not flag.startswith(_GENCODE)),
                     f"{_GENCODE}arch={virtual},code={virtual}")
        step = [
            str(nvcc.path), *flags, "-Xptxas", "-v", "-shared", "-cudart", "shared" if self._emulates() else "static",
            "-Xcompiler", ",".join(["-fPIC", *separate_statics(nvcc.version.partition("; host ")[2])]),
            "--no-compress",   # so that launch bounds can be read from the library without cuobjdump
            *include_flags(source), *define_flags(source.resolve(defines)),
            relative(source.path, source.root), "-o", str(out),
        ]
        return Plan((tuple(step),), nvcc.version)

    def portable_flags(self, arch: str) -> tuple[str, ...]:
        gencode = (f"{_GENCODE}arch={self._virtual(arch)},code={code}" for code in _CODE[self.target(arch).arch])
        return (*_FLAGS, *gencode)

    def _virtual(self, arch: str) -> str:
        return f"compute_{self.target(arch).arch.removeprefix('sm_')}"

    def _emulates(self) -> bool:
        """Whether kernels run on emulated devices."""
        try:
            return bool(_emulated.wanted())
        except BackendError:
            return False

    def runtime_libraries(self, device: Device | None) -> list[Path]:
        """The emulator for an emulated device, compiled if need be. Raises ``BackendError`` where it cannot be."""
        if device is None or not device.emulated:
            return []
        return [_emulated.cuda_library(release(self.compiler()))]

    def prepare(self, available: Availability, report: Callable[[str], None]) -> Availability:
        """Compiles the emulator if it is to be used; without it there is no emulated device, and a reason instead."""
        if not any(device.emulated for device in available.devices):
            return available
        try:
            _emulated.cuda_library(release(self.compiler()), report)
        except BackendError as error:
            kept = tuple(device for device in available.devices if not device.emulated)
            return replace(available, devices=kept, reasons=(*available.reasons, f"no emulated GPU: {error}"))
        return available

    def explain(
        self, diagnostics: tuple[Diagnostic, ...], step: Sequence[str], root: Path, scratch: Path,
        readable: Sequence[Path] = (),
    ) -> tuple[Diagnostic, ...]:
        """Lines of ptxas's PTX become lines of the source: the PTX is written again and its line table read."""
        if not any(_ptxas.ptx_line(diagnostic.message) for diagnostic in diagnostics):
            return diagnostics
        ptx = scratch / "kernel.ptx"
        # nvcc has ptxas check the PTX and fails like the first time, with the file written all the same.
        _process.compile_untrusted(
            ptx_command(step, ptx), root, 120.0, variables(scratch), readable, scratch, scratch / "ptx.log")
        if not ptx.is_file():
            return diagnostics
        text = ptx.read_text(errors="replace")
        return tuple(_located(diagnostic, text, root) for diagnostic in diagnostics)

    def usage(self, log: str, library: Path, target: Target) -> Usage:
        """From the ``ptxas -v`` lines of ``log``; launch bounds from the cubin in ``library`` if it is there."""
        bounds = _ptxas.launch_bounds(library) if library.is_file() else {}
        reports = [report for report in _ptxas.functions(log) if report.arch == target.arch or not report.entry]
        reports = [report for report in reports if report.entry or report.spill_stores or report.spill_loads]
        names = _names.demangle([report.name for report in reports], [which("cu++filt"), which("c++filt")])
        return Usage(tuple(
            KernelUsage(
                name=names[report.name] + ("" if report.entry else " (called function)"),
                registers=report.registers, spill_bytes=report.spill_stores + report.spill_loads,
                shared_bytes=report.shared_bytes, scratch_bytes=report.stack_bytes,
                threads=(threads := bounds.get(report.name)),
                occupancy=_occupancy.nvidia(_occupancy.BY_ARCH[target.arch], report.registers, report.shared_bytes,
                                            threads)
                if threads and report.entry else None,
            )
            for report in reports
        ))

    def telemetry(self, device: Device) -> dict[str, object]:
        return {} if device.emulated else _nvidia.telemetry(device)


def ptx_command(command: Sequence[str], out: Path) -> list[str]:
    """The command that writes as ``out`` the PTX that ``command`` hands to ptxas."""
    at = next(at for at, word in enumerate(command) if word.startswith(_GENCODE))
    virtual = command[at].removeprefix(f"{_GENCODE}arch=").partition(",")[0]
    rest = [word for word in command[at:] if not word.startswith(_GENCODE)]
    words = [*command[:at], f"{_GENCODE}arch={virtual},code={virtual}", *rest]
    words = [word for word in words if word not in ("-shared", "-cubin")]
    words[words.index("-o") + 1] = str(out)
    return [words[0], "-ptx", *words[1:]]


def _located(diagnostic: Diagnostic, ptx: str, root: Path) -> Diagnostic:
    line = _ptxas.ptx_line(diagnostic.message)
    place = _ptxas.source_place(ptx, line) if line else None
    return replace(diagnostic, file=shorten(place[0], root), line=place[1]) if place else diagnostic


def find_nvcc() -> Tool:
    """The nvcc to use: ``NVCC``, ``CUDA_HOME``, ``CUDA_PATH``, PATH, /usr/local/cuda, the wheel.

    A toolkit that the machine brings goes before the wheel, since it is the one that fits its driver. One older than
    CUDA 12.0 is passed over. Raises ``ToolchainMissing``, at once if ``NVCC`` itself is no use.
    """
    tried = []
    for rung, path in _ladder():
        if path is None:
            tried.append(f"{rung}: {'nvcc (not found)' if rung == 'PATH' else 'nvidia-cuda-nvcc (not installed)'}")
            continue
        answer = remembered(path, [str(path), "--version"]) if path.is_file() else None
        match = re.search(r"release (\d+)\.(\d+), V([\d.]+)", answer or "")
        if match and (int(match[1]), int(match[2])) >= _MIN_RELEASE:
            return Tool(path, f"nvcc {match[3]}{_host_compiler()}", rung)
        why = "no such file" if not path.is_file() else f"too old: {match[3]}" if match else "does not answer --version"
        tried.append(f"{rung}: {path} ({why})")
        if rung == "NVCC":
            raise ToolchainMissing("nvcc", tried, "NVCC names a compiler that does not work; correct or unset it")
    raise ToolchainMissing("nvcc", tried, _HINT)


def release(nvcc: Tool) -> int:
    """The major number of an nvcc's CUDA release, which is its runtime library's."""
    found = re.match(r"nvcc (\d+)", nvcc.version)
    return int(found[1]) if found else _MIN_RELEASE[0]


def newer_than_driver(nvcc: Tool, driver: tuple[int, int] | None) -> str:
    """Why kernels from ``nvcc`` will not start under this driver, "" if they will: a release's major number counts."""
    release = re.match(r"nvcc (\d+)\.(\d+)", nvcc.version)
    if release is None or driver is None or int(release[1]) <= driver[0]:
        return ""
    return (f"the driver supports CUDA {driver[0]}.{driver[1]} and {nvcc.path} is {release[1]}.{release[2]}: its "
            f"kernels will not start; update the driver, or set CUDA_HOME to a toolkit of CUDA {driver[0]}")


def require_host_compiler(nvcc: Tool) -> None:
    """Do nothing if ``nvcc`` can compile host code: with NVCC_CCBIN, a program or a folder, else gcc and g++ on PATH.

    Raises ``ToolchainMissing`` else: without one nvcc refuses every kernel, whatever is in it.
    """
    own = os.environ.get("NVCC_CCBIN", "")
    flags = " ".join(os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"))
    if "-ccbin" in flags or "--compiler-bindir" in flags:
        return                       # named where only nvcc reads it
    if own:
        if which(own) or Path(own).is_dir():
            return
        raise ToolchainMissing(f"host compiler for {nvcc.path}", [f"NVCC_CCBIN: {own} (not found)"],
                               "NVCC_CCBIN names one that is not there; correct or unset it")
    missing = [name for name in ("gcc", "g++") if which(name) is None]
    if missing:
        raise ToolchainMissing(f"host compiler for {nvcc.path}", [f"PATH: {name} (not found)" for name in missing],
                               "install g++, e.g. apt-get install g++, or name a C++ compiler in NVCC_CCBIN")


def _host_compiler() -> str:
    """Which C++ compiler nvcc will call, for the version: its code is in the library, too."""
    path = which(os.environ.get("NVCC_CCBIN") or "g++")
    answer = remembered(path, [str(path), "--version"]) if path else None
    return f"; host {answer.splitlines()[0]}" if answer and answer.strip() else ""


def _ladder() -> list[tuple[str, Path | None]]:
    places: list[tuple[str, Path | None]] = []
    if nvcc := os.environ.get("NVCC"):
        places.append(("NVCC", which(nvcc) or Path(nvcc)))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            places.append((variable, Path(home) / "bin" / "nvcc"))
    places += [("PATH", which("nvcc")), ("default prefix", DEFAULT_PREFIX / "bin" / "nvcc")]
    wheels: list[Path | None] = [folder / "bin" / "nvcc" for folder in _wheel_folders()]
    return places + [("wheel", path) for path in wheels or [None]]


def _wheel_folders() -> list[Path]:
    """Roots of toolkits installed from wheels, newest first: ``site-packages/nvidia/cu13``."""
    return sorted((home for folder in package_folder("nvidia") for home in folder.glob("cu[0-9]*")), reverse=True)


def toolkits() -> list[Path]:
    """Roots of all CUDA toolkits here, the one of ``find_nvcc`` first: it, the default one, the wheels'."""
    try:
        own = [find_nvcc().path.resolve().parent.parent]
    except ToolchainMissing:
        own = []
    return list(dict.fromkeys([*own, DEFAULT_PREFIX, *_wheel_folders()]))


def tools(program: str) -> list[Path]:
    """Every ``nvdisasm``, ``cuobjdump`` or ``ptxas`` here: of the toolkits, the triton wheel, PATH. One may be too old
    for a file that another can read.

    Raises ``ToolchainMissing`` if there is none.
    """
    homes = [*(home / "bin" for home in toolkits()),
             *(folder / "backends" / "nvidia" / "bin" for folder in package_folder("triton"))]
    places = [*(home / program for home in homes), *filter(None, [which(program)])]
    found = list(dict.fromkeys(place.resolve() for place in places if place.is_file()))
    if not found:
        raise ToolchainMissing(program, [str(place) for place in places] or ["PATH"],
                               f"install a CUDA toolkit, or pip install nvidia-cuda-{_PACKAGES.get(program, program)}")
    return found


BACKEND = CudaBackend()
