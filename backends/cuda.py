# SPDX-License-Identifier: MIT
"""CUDA: nvcc command lines, the search for nvcc, resource usage from ptxas, NVIDIA's devices.

Hopper's tensor cores need ``compute_90a``/``sm_90a``: code for plain ``sm_90`` may not use wgmma, and torch's own
architecture detection never names the ``a``.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backends import _names, _nvidia, _occupancy, _process, _ptxas
from backends._diagnostics import shorten
from backends.base import (
    Availability,
    BackendError,
    Binary,
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
    package_folder,
    relative,
    remembered,
    separate_statics,
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
_LIMITS = {"sm_90a": _occupancy.SM90, "sm_89": _occupancy.SM89}
# sm_89 keeps its PTX beside the machine code; sm_90a's would not run on anything else.
_CODE = {"sm_90a": ("sm_90a",), "sm_89": ("sm_89", "compute_89")}
_GENCODE = "-gencode="


class CudaBackend(CompilingBackend):
    """nvcc. ``compiler`` replaces the search, for tests."""

    name = "cuda"
    language = "cuda"
    suffix = ".cu"

    def __init__(self, compiler: Tool | None = None):
        self._compiler = compiler

    def targets(self) -> tuple[Target, ...]:
        return TARGETS

    def probe(self) -> Availability:
        reasons = []
        compiler: Tool | None = None
        try:
            compiler = self.compiler()
        except ToolchainMissing as error:
            reasons.append(str(error))
        devices, why = _nvidia.devices()
        if compiler is not None and devices and (mismatch := newer_than_driver(compiler, _nvidia.driver_cuda())):
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
        step = [
            str(nvcc.path), *self.portable_flags(target.arch), "-Xptxas", "-v", "-shared", "-cudart", "static",
            "-Xcompiler", ",".join(["-fPIC", *separate_statics(nvcc.version.partition("; host ")[2])]),
            "--no-compress",   # so that launch bounds can be read from the library without cuobjdump
            *include_flags(source), *define_flags(source.resolve(defines)),
            relative(source.path, source.root), "-o", str(out),
        ]
        return Plan((tuple(step),), nvcc.version)

    def portable_flags(self, arch: str) -> tuple[str, ...]:
        virtual = f"compute_{self.target(arch).arch.removeprefix('sm_')}"
        gencode = (f"{_GENCODE}arch={virtual},code={code}" for code in _CODE[self.target(arch).arch])
        return ("-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", *gencode)

    def explain(
        self, diagnostics: tuple[Diagnostic, ...], step: Sequence[str], root: Path, scratch: Path
    ) -> tuple[Diagnostic, ...]:
        """Lines of ptxas's PTX become lines of the source: the PTX is written again and its line table read."""
        if not any(_ptxas.ptx_line(diagnostic.message) for diagnostic in diagnostics):
            return diagnostics
        ptx = scratch / "kernel.ptx"
        # nvcc has ptxas check the PTX and fails like the first time, with the file written all the same.
        _process.run(ptx_command(step, ptx), scratch / "ptx.log", root, 120.0, {"TMPDIR": str(scratch)})
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
                occupancy=_occupancy.nvidia(_LIMITS[target.arch], report.registers, report.shared_bytes, threads)
                if threads and report.entry else None,
            )
            for report in reports
        ))

    def telemetry(self, device: Device) -> dict[str, object]:
        return _nvidia.telemetry(device)

    def sass(self, binary: Binary) -> str:
        """Disassembly of all kernels of a binary; raises ``BackendError`` with what to install if no tool is here."""
        return sass(binary.path, self.compiler().path)


def ptx_command(command: Sequence[str], out: Path) -> list[str]:
    """The command that writes as ``out`` the PTX that ``command`` hands to ptxas."""
    at = next(at for at, word in enumerate(command) if word.startswith(_GENCODE))
    virtual = command[at].removeprefix(f"{_GENCODE}arch=").partition(",")[0]
    rest = [word for word in command[at:] if not word.startswith(_GENCODE)]
    words = [*command[:at], f"{_GENCODE}arch={virtual},code={virtual}", *rest]
    words = [word for word in words if word != "-shared"]
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


def sass(library: Path, nvcc: Path) -> str:
    """Machine code of all kernels in ``library``, by cuobjdump or else nvdisasm.

    Raises ``BackendError`` if neither is found or neither can read the library.
    """
    for program, arguments in (("cuobjdump", ["-sass"]), ("nvdisasm", ["-c"])):
        path = disassembler(program, nvcc)
        text = _dump(path, arguments, library) if path else None
        if text is not None:
            return text
    raise BackendError("no disassembler: neither cuobjdump nor nvdisasm is in the CUDA toolkit, on PATH or in a wheel; "
                       "pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")


def disassembler(program: str, nvcc: Path) -> Path | None:
    """``program`` from PATH, beside ``nvcc``, from the default toolkit, the CUDA wheels or the triton wheel."""
    homes = [nvcc.resolve().parent, DEFAULT_PREFIX / "bin", *(home / "bin" for home in _wheel_folders()),
             *(folder / "backends" / "nvidia" / "bin" for folder in package_folder("triton"))]
    places = [which(program), *(home / program for home in homes)]
    return next((place for place in places if place and place.is_file()), None)


def _dump(program: Path, arguments: list[str], library: Path) -> str | None:
    if program.name.startswith("cuobjdump"):
        return _process.ask([str(program), *arguments, str(library)], timeout=120.0)
    texts = []
    for cubin in _ptxas.cubins(library.read_bytes()):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            texts.append(_process.ask([str(program), *arguments, file.name], timeout=120.0))
    return "\n".join(text for text in texts if text) or None


BACKEND = CudaBackend()
