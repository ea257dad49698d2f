# SPDX-License-Identifier: MIT
"""The emulator's library for tests: built, loaded through ctypes, and code to run on it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import backends
from backends._cache import default_folder
from backends.base import Binary
from backends.emulator import build, declarations
from backends.errors import ToolchainMissing
from backends.source import KernelSource

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
DOUBLE = Path(__file__).parent / "double"

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY = 0, 1, 2
INVALID_CONFIGURATION, INVALID_SYMBOL, INVALID_DIRECTION = 9, 13, 21
INVALID_FUNCTION, INVALID_DEVICE, INVALID_IMAGE, NO_BINARY = 98, 101, 200, 209
FILE_NOT_FOUND, INVALID_HANDLE, NOT_FOUND, ILLEGAL_ADDRESS = 301, 400, 500, 700
LAUNCH_FAILURE, COOPERATIVE_TOO_LARGE, NOT_SUPPORTED = 719, 720, 801


def api_sources() -> list[Path]:
    """The HIP API over a device that executes nothing."""
    return [*sorted((build.ROOT / "hip").glob("*.cpp")), *sorted((build.ROOT / "loader").glob("*.cpp")),
            build.ROOT / "core" / "memory.cpp", DOUBLE / "device.cpp"]


def built(make: Callable[[], Path]) -> Path:
    """What ``make`` builds; skips where the compiler is not installed."""
    try:
        return make()
    except ToolchainMissing as error:
        pytest.skip(str(error))


def compile_hip(name: str) -> Binary:
    """The HIP file ``data/<name>.hip``, compiled for MI300; skips where the compiler is not installed."""
    backend = backends.get("rocm")
    try:
        return backend.compile(KernelSource.read(DATA / f"{name}.hip", ROOT, name), backend.target())
    except ToolchainMissing as error:
        pytest.skip(str(error))


def headers() -> list[Path]:
    """AMD's headers that declare the API."""
    folder = build.find().headers
    return [folder / name for name in declarations.HEADERS if (folder / name).is_file()]


def compile_host(*arguments: str) -> None:
    """C++ against AMD's headers. Optimised, position-independent and in its cache like the emulator: for programs of
    another kind zig would build its C++ library anew, which takes the better part of a minute."""
    tools = build.find()
    command = [str(tools.zig), "c++", "-O2", "-fPIC", "-D__HIP_PLATFORM_AMD__", "-isystem", str(tools.headers)]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(default_folder() / "zig")}
    subprocess.run([*command, *arguments], check=True, env=environment)


def own_process(program: str, *arguments: object, environment: Mapping[str, str] | None = None) -> str:
    """What a Python program prints. Compiled host code takes the first HIP runtime of a process, so what needs one that
    is loaded globally runs apart. A failure shows both of its outputs."""
    result = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True,
                            env={**os.environ, **(environment or {})}, cwd=ROOT, check=False, timeout=200)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


class Hip:
    """The library ``path``. ``hip.hipMalloc(…)`` returns the status; ``ok`` insists on success."""

    def __init__(self, path: Path):
        self.path = path
        self.library = ctypes.CDLL(str(path))      # its names stay its own: tests load more than one in a process
        for name in ("hipGetErrorName", "hipGetErrorString", "hipKernelNameRef"):
            getattr(self.library, name).restype = ctypes.c_char_p

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def ok(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        assert status == 0, f"{name}: {self.hipGetErrorName(status).decode()}"

    def out(self, name: str, kind: type, *arguments: Any) -> Any:
        """The value that a call writes through its first parameter."""
        value = kind()
        self.ok(name, ctypes.byref(value), *arguments)
        return value.value

    def malloc(self, size: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.out("hipMalloc", ctypes.c_void_p, ctypes.c_size_t(size)))

    def attribute(self, number: int) -> int:
        value: int = self.out("hipDeviceGetAttribute", ctypes.c_int, number, 0)
        return value

    def module(self, image: bytes) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.out("hipModuleLoadData", ctypes.c_void_p, image))

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.out("hipModuleGetFunction", ctypes.c_void_p, module, name.encode()))


def pointers(*values: Any) -> Any:
    """``void* kernelParams[]`` for ctypes values; keep the values alive while it is in use."""
    return (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
