# SPDX-License-Identifier: MIT
"""The vocabulary every backend shares: targets, binaries, usage, availability and errors.

Error tree::

    BackendError
    ├── UnknownBackend        no such backend file (usage error)
    ├── UnknownTarget         no such GPU or arch for this backend (usage error)
    ├── ToolchainMissing      no compiler; lists what was tried and what to do
    ├── CompileError          the compiler refused the source; carries diagnostics
    └── SourceError           a kernel file or kernel.h does not follow its grammar; carries file and line

Units: bytes, seconds, FLOP/s and bytes/s. Imports the standard library only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from backends.errors import Diagnostic, UnknownTarget

if TYPE_CHECKING:
    from backends.source import KernelSource


@dataclass(frozen=True)
class Target:
    """What to compile for, with the facts that kernels, checks and the roofline may ask.

    ``gpu`` is the label users type (``H100``, ``L4``, ``MI300``, ``CPU``); ``arch`` is the compiler's spelling.
    ``peaks`` maps a dtype name (``fp8``, ``bf16``, ``fp16``, ``fp32``) to dense FLOP/s and ``bytes`` to bytes/s, vendor
    data-sheet figures; ``peaks_source`` names the sheet. Empty when unknown: then no % of roofline is shown.
    """

    backend: str
    gpu: str
    arch: str
    warp_size: int
    fp8: str
    max_smem: int
    llc_bytes: int
    peaks: Mapping[str, float] = field(default_factory=dict, hash=False)
    peaks_source: str = ""


@dataclass(frozen=True)
class GpuLabel:
    """What a leaderboard calls a GPU. ``arches``: kernel arches that run there, best first; exact case matters."""

    label: str
    backend: str
    arches: tuple[str, ...]
    official: bool = True        # False: a label of ours that no GPU MODE runner has


@dataclass(frozen=True)
class Packing:
    """What a packed submission (``submissions.template``) says for a vendor; the defaults are those of host code.

    ``prepare``: lines of its ``_build`` before the compiler is called, with the template's placeholders.
    ``old_torch``: why a torch without ``no_implicit_headers`` cannot build it; "": it can, around an extension.
    ``error_string``: the runtime's function that explains a positive status. ``flags``: for the device compiler, beside
    ``Backend.portable_flags``. ``first_line`` comes before the source. ``macros``: which of the compiler's own macros
    are defined where headers are inlined.
    """

    prepare: str = ""
    old_torch: str = ""
    error_string: str | None = None
    flags: tuple[str, ...] = ()
    first_line: str | None = None
    macros: Mapping[str, bool] = field(
        default_factory=lambda: {"__HIP__": False, "__HIPCC__": False, "__CUDACC__": False}, hash=False)


@dataclass(frozen=True)
class Device:
    """One device a backend found. ``name`` is the driver's, ``gpu`` our label for it (or the name if unknown).

    ``llc_bytes`` is the last-level cache the driver reports, 0 if it does not.
    """

    index: int
    name: str
    gpu: str
    arch: str
    memory_bytes: int
    driver: str = ""
    emulated: bool = False
    llc_bytes: int = 0


@dataclass(frozen=True)
class Availability:
    """What a backend can do on this machine. ``reasons`` says why something is missing and what to do about it."""

    compiler: str | None                 # path of the compiler driver, None if there is none
    compiler_version: str | None
    devices: tuple[Device, ...] = ()
    reasons: tuple[str, ...] = ()
    runtime: str = ""                    # the library kernels run on, where there is more than one to choose from

    @property
    def can_compile(self) -> bool:
        return self.compiler is not None

    @property
    def can_run(self) -> bool:
        return bool(self.devices)


@dataclass(frozen=True)
class KernelUsage:
    """Resources of one device function. ``agprs`` is None where the architecture has none.

    ``spill_bytes`` counts bytes spilled per thread; ``occupancy`` is resident warps (waves) per SM (CU) over the
    maximum, at the launch bound the compiler knows (``threads``), or None where it does not know one.
    """

    name: str
    registers: int
    spill_bytes: int
    shared_bytes: int             # static shared memory / LDS
    scratch_bytes: int = 0        # stack or private segment per thread
    scalar_registers: int | None = None
    agprs: int | None = None
    threads: int | None = None
    occupancy: float | None = None


@dataclass(frozen=True)
class Usage:
    """Resource usage of all device functions of a binary; empty for host code."""

    kernels: tuple[KernelUsage, ...] = ()

    @property
    def spill_bytes(self) -> int:
        return sum(kernel.spill_bytes for kernel in self.kernels)


@dataclass(frozen=True)
class Binary:
    """A compiled kernel: a shared library in the cache, and how it came about."""

    path: Path
    digest: str                     # content address: compiler version, flags, source and all included headers
    target: Target
    command: tuple[str, ...]
    compiler_version: str
    usage: Usage
    diagnostics: tuple[Diagnostic, ...] = ()
    cached: bool = False
    seconds: float = 0.0            # wall time of the compilation, 0 for a cache hit
    code_object: Path | None = None  # the device code alone (cubin is inside the library: None; gfx942 ELF for rocm)


class Backend(ABC):
    """Source + target -> shared library. Stateless; everything but ``probe`` and ``compile`` is pure."""

    name: str                                   # "cuda" | "rocm" | "cpu": also the file's name
    language: str                               # folder under kernels/: "cuda" | "hip" | "cpu"
    suffix: str                                 # of kernel files: ".cu" | ".hip" | ".cpp"
    on_host: bool = False                       # kernels run on the CPU, in host memory, and need no arch line
    arch_pattern: str = r"[A-Za-z0-9_]+"        # a regular expression for what an arch line may name
    # The word for the compiler in a flags line, and a regular expression for each flag that it may have.
    kernel_flags: tuple[str, tuple[str, ...]] = ("", ())
    labels: tuple[GpuLabel, ...] = ()           # of all its GPUs that leaderboards have, or that we label ourselves
    packing: Packing = Packing()
    chain: str | None = None                    # source of the commit chain in scoring/chain/native, if there is one

    @abstractmethod
    def targets(self) -> tuple[Target, ...]:
        """All targets this backend knows, the default one first."""

    @abstractmethod
    def probe(self) -> Availability:
        """What is here: compiler, devices (real or emulated), or the reasons for none. Never raises."""

    @abstractmethod
    def command(
        self, source: KernelSource, out: Path, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> list[str]:
        """The compiler command line. Pure given the toolchain found: golden-tested on any machine.

        Raises ``ToolchainMissing``.
        """

    @abstractmethod
    def portable_flags(self, arch: str) -> tuple[str, ...]:
        """Flags that decide what code a kernel becomes, without a path among them: a build anywhere else that uses
        them, a packed submission say, gives the same results to the bit.

        Raises ``UnknownTarget`` for an arch this backend does not compile for.
        """

    def flags_of(self, source: KernelSource, arch: str) -> tuple[str, ...]:
        """``portable_flags`` with those of the kernel's own flags line; its -O level replaces ours."""
        own = source.flags
        level = any(flag.startswith("-O") for flag in own)
        return (*(flag for flag in self.portable_flags(arch) if not (level and flag.startswith("-O"))), *own)

    @abstractmethod
    def usage(self, log: str, library: Path, target: Target) -> Usage:
        """Resource usage from the compiler's log and/or the binary itself."""

    @abstractmethod
    def compile(
        self, source: KernelSource, target: Target, defines: Mapping[str, str | int] | None = None,
        cache_dir: Path | None = None, timeout: float = 300.0,
    ) -> Binary:
        """Compile through the content-addressed cache.

        Raises ``CompileError`` (with diagnostics as file:line) and ``ToolchainMissing``.
        """

    def default_gpus(self) -> tuple[str, ...]:
        """Labels of the GPUs to compile and pack for where no device and no setting says otherwise, best first."""
        return (self.target().gpu,)

    def target(self, name: str | None = None) -> Target:
        """The target whose GPU label or arch is ``name`` (case-insensitive); the default one for None.

        Raises ``UnknownTarget``.
        """
        if name is None:
            return self.targets()[0]
        for candidate in self.targets():
            if name.lower() in (candidate.gpu.lower(), candidate.arch.lower()):
                return candidate
        raise UnknownTarget(name, [f"{t.gpu} ({t.arch})" for t in self.targets()])

    def target_for(self, device: Device) -> Target:
        """The target to compile for ``device``. A GPU without a label of ours gets its own name and no peaks.

        Raises ``UnknownTarget`` for an architecture this backend does not compile for.
        """
        for candidate in self.targets():
            if candidate.gpu == device.gpu and candidate.arch == device.arch:
                return candidate
        for candidate in self.targets():
            if candidate.arch == device.arch:
                llc_bytes = device.llc_bytes or candidate.llc_bytes
                return replace(candidate, gpu=device.gpu, llc_bytes=llc_bytes, peaks={}, peaks_source="")
        raise UnknownTarget(f"{device.gpu} ({device.arch})", [f"{t.gpu} ({t.arch})" for t in self.targets()])

    def prepare(self, available: Availability, report: Callable[[str], None]) -> Availability:
        """Make what devices need, just before something runs on them; ``report`` hears what takes long.

        Returns ``available``, without the devices for which that failed and with the reasons. Never raises.
        """
        return available

    def runtime_libraries(self, device: Device | None) -> list[Path]:
        """Libraries a process must load, globally, before a binary of this backend; none unless overridden."""
        return []

    def telemetry(self, device: Device) -> dict[str, object]:
        """Clocks (MHz), power (W), temperature (°C) and throttle reasons now; {} where nothing can be read."""
        return {}
