# SPDX-License-Identifier: MIT
"""CPU: the plain reference kernels, compiled by the system's C++ compiler. Every machine has this device."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from backends.base import Availability, Device, GpuLabel, Target, Usage
from backends.errors import ToolchainMissing
from backends.source import KernelSource
from backends.toolchain import (
    CompilingBackend,
    Plan,
    Tool,
    define_flags,
    include_flags,
    relative,
    remembered,
    separate_statics,
    which,
)

_HINT = "install a C++ compiler, e.g. apt-get install g++, or name one in CXX"
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNKNOWN_CACHE = 32 * 2**20     # where the system does not say: larger than most, as cold-cache protocols want


class CpuBackend(CompilingBackend):
    """c++, g++ or clang++. ``compiler`` replaces the search, for tests."""

    name = "cpu"
    language = "cpu"
    suffix = ".cpp"
    kernel_flags = ("c++", ("-ffp-contract=(off|on|fast)", "-ffast-math", "-O[0-3]"))
    on_host = True
    labels = (GpuLabel("CPU", "cpu", ("native",), official=False),)
    chain = "chain.cpp"

    def __init__(self, compiler: Tool | None = None):
        self._compiler = compiler

    def targets(self) -> tuple[Target, ...]:
        return (Target("cpu", "CPU", platform.machine(), 1, "e4m3fn", 0, last_level_cache()),)

    def probe(self) -> Availability:
        devices = (Device(0, cpu_name(), "CPU", platform.machine(), memory_bytes()),)
        try:
            compiler = self.compiler()
        except ToolchainMissing as error:
            return Availability(None, None, devices, (str(error),))
        return Availability(str(compiler.path), compiler.version, devices)

    def compiler(self) -> Tool:
        """The C++ compiler to use; raises ``ToolchainMissing``."""
        return self._compiler or find_cxx()

    def plan(
        self, source: KernelSource, out: Path, target: Target, defines: Mapping[str, str | int] | None = None
    ) -> Plan:
        cxx = self.compiler()
        step = [
            str(cxx.path), *self.flags_of(source, target.arch), *separate_statics(cxx.version), "-fPIC", "-shared",
            *include_flags(source), *define_flags(source.resolve(defines)),
            relative(source.path, source.root), "-o", str(out),
        ]
        return Plan((tuple(step),), cxx.version)

    def portable_flags(self, arch: str) -> tuple[str, ...]:
        return ("-std=c++17", "-O2")

    def usage(self, log: str, library: Path, target: Target) -> Usage:
        """Empty: host code has no such report."""
        return Usage()


def find_cxx() -> Tool:
    """The C++ compiler to use: ``CXX``, then ``c++``, ``g++``, ``clang++`` on PATH.

    Raises ``ToolchainMissing``, at once if ``CXX`` itself is no use.
    """
    tried = []
    names = [("CXX", os.environ["CXX"])] if os.environ.get("CXX") else []
    for rung, name in [*names, ("PATH", "c++"), ("PATH", "g++"), ("PATH", "clang++")]:
        path = which(name)
        answer = remembered(path, [str(path), "--version"]) if path else None
        if path and answer and answer.strip():
            return Tool(path, answer.strip().splitlines()[0], rung, {"target": _machine(path)})
        tried.append(f"{rung}: {name} ({'does not answer --version' if path else 'not found'})")
        if rung == "CXX":
            raise ToolchainMissing("C++ compiler", tried, "CXX names one that does not work; correct or unset it")
    raise ToolchainMissing("C++ compiler", tried, _HINT)


def _machine(path: Path) -> str:
    return (remembered(path, [str(path), "-dumpmachine"]) or "").strip()


def last_level_cache() -> int:
    """Bytes of the largest cache of the first CPU, from sysfs, else sysconf, else a guess on the large side."""
    sizes = [_cache_bytes(path) for path in _CACHES.glob("index*/size")]
    if not any(sizes) and "SC_LEVEL3_CACHE_SIZE" in os.sysconf_names:
        sizes = [os.sysconf(f"SC_LEVEL{level}_CACHE_SIZE") for level in (2, 3)]
    return max([size for size in sizes if size > 0], default=_UNKNOWN_CACHE)


def _cache_bytes(path: Path) -> int:
    try:
        text = path.read_text().strip()
    except OSError:
        return 0
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]] if match else 0


def cpu_name() -> str:
    """The processor's marketing name, else its architecture."""
    try:
        info = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        info = ""
    match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", info, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Bytes of main memory, 0 if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


BACKEND = CpuBackend()
