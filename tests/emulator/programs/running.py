# SPDX-License-Identifier: MIT
"""Runs programs on the emulators by ctypes, in this process, through HIP or CUDA's driver; see ``run`` for the way
in."""

from __future__ import annotations

import collections
import ctypes
import importlib
import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from backends.emulator import build
from backends.rocm import RocmBackend
from backends.source import KernelSource
from tests.emulator.programs.compiling import Compiled, compile_launch
from tests.emulator.programs.program import PROGRAMS, Expected, Launch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LEVELS = ("O0", "O3")
_KERNELS = ("elementwise", "conversions", "reductions", "memory", "matmul", "attention", "shapes", "networks")
_SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


_HIP = ("hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel", "hipDeviceSynchronize", "hipModuleUnload",
        "hipGetErrorString")
_CUDA = ("cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuCtxSynchronize", "cuModuleUnload",
         "cudaGetErrorString")


def triton_names(gpu: str = "MI300") -> list[str]:
    """The programs of the corpus; for NVIDIA's GPUs without those that use AMD's kinds of fp8, or its assembly."""
    for module in _KERNELS:
        importlib.import_module(f"tests.emulator.programs.kernels.{module}")
    of_amd = re.compile(r"(_|^)(fp8|bf8)(_|$)|^inline_assembly$")
    return [name for name in PROGRAMS if gpu == "MI300" or not of_amd.search(name)]


def library(gpu: str) -> Path:
    return build.library() if gpu == "MI300" else build.cuda_library(13)


class Emulator:
    """The library of a GPU (MI300, H100, L4), loaded so that the host halves of HIP programs find their runtime in
    it."""

    def __init__(self, checks: str = "none", gpu: str = "MI300"):
        self.gpu = gpu
        self._library = ctypes.CDLL(str(library(gpu)), mode=ctypes.RTLD_GLOBAL)
        self._api = _HIP if gpu == "MI300" else _CUDA
        self._error = getattr(self._library, self._api[-1])
        self._error.restype = ctypes.c_char_p
        self._library.warpwave_emulator_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        self._library.warpwave_emulator_unregister.argtypes = [ctypes.c_void_p]
        self._library.warpwave_emulator_take_message.restype = ctypes.c_void_p
        self._library.warpwave_emulator_take_findings.restype = ctypes.c_void_p
        self._library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
        if self._library.warpwave_emulator_set(b"checks", checks.encode()) != 0:
            raise ValueError(f"the emulator knows no checks {checks!r}")
        if gpu != "MI300":
            self._library.warpwave_emulator_set(b"gpu", gpu.encode())

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            said = "" if self.gpu == "MI300" else self._text("message")
            raise RuntimeError(f"{name}: {self._error(status).decode()} {said}{self.findings()}")

    def _text(self, what: str) -> str:
        text = getattr(self._library, f"warpwave_emulator_take_{what}")()
        try:
            return ctypes.string_at(text).decode() if text else ""
        finally:
            self._library.warpwave_emulator_free(text)

    def findings(self) -> str:
        """What the checks and the kernel that stopped had to say since the last call; empty if nothing."""
        found = json.loads(self._text("findings") or "[]")
        return "".join("\n" + json.dumps(finding) for finding in found)

    def launch(self, compiled: Compiled, launch: Launch) -> None:
        """Host memory is device memory here: the kernel gets the tensors' own addresses."""
        load, get, start, synchronize, unload, _error = self._api
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        tensors = [value for value in launch.arguments.values() if isinstance(value, torch.Tensor)]
        self.call(load, ctypes.byref(module), compiled.binary)
        try:
            self.call(get, ctypes.byref(function), module, compiled.name.encode())
            if self.gpu != "MI300":          # there, memory that nobody named is the device's as well
                for value in tensors:
                    size = value.untyped_storage().nbytes()
                    self._library.warpwave_emulator_register(value.data_ptr(), size, b"tensor")
                if compiled.shared > 49152:
                    self.call("cuFuncSetAttribute", function, 8, compiled.shared)
            values: list[ctypes._SimpleCData[object]] = []
            for name, kind in compiled.order:
                value = launch.arguments[name]
                values.append(ctypes.c_void_p(value.data_ptr()) if isinstance(value, torch.Tensor)
                              else _SCALARS[kind](value))
            values += [ctypes.c_void_p(0), ctypes.c_void_p(0)]      # Triton's global and profiling scratch
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            grid = [*launch.grid, 1, 1][:3]
            self.call(start, function, *grid, compiled.threads, 1, 1, compiled.shared, None, pointers, None)
            self.call(synchronize)
        finally:
            if self.gpu != "MI300":
                for value in tensors:
                    self._library.warpwave_emulator_unregister(value.data_ptr())
            self.call(unload, module)


def differences(name: str, got: torch.Tensor, expected: Expected) -> str | None:
    """What is wrong with ``got``, in one line."""
    wanted = expected.values
    if expected.rtol == 0 and expected.atol == 0:
        integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[wanted.element_size()]
        wrong = got.view(integers) != wanted.view(integers)
        if wanted.dtype.is_floating_point:
            wrong &= ~(got.double().isnan() & wanted.double().isnan())
    else:
        g, w = got.double(), wanted.double()
        wrong = ~((g - w).abs() <= expected.rtol * w.abs() + expected.atol) & (g != w) & ~(g.isnan() & w.isnan())
    if not wrong.any():
        return None
    where = tuple(int(index) for index in wrong.nonzero()[0])
    return (f"{name}: {int(wrong.sum())} of {wrong.numel()} wrong, first at {where}: "
            f"got {got[where].item()!r}, wanted {wanted[where].item()!r}")


def run_triton(emulator: Emulator, name: str) -> str | None:
    """None, or what is wrong."""
    launch = PROGRAMS[name](torch.Generator().manual_seed(0))
    compiled = compile_launch(launch, gpu=emulator.gpu)
    emulator.launch(compiled, launch)
    wrong = [differences(tensor, launch.arguments[tensor], expected) for tensor, expected in launch.expected.items()]
    return "; ".join(filter(None, [*wrong, emulator.findings()])) or None


class _At(RocmBackend):
    """The project's gfx942 compiler, at a level of optimisation."""

    def __init__(self, level: str):
        super().__init__()
        self._level = level

    def portable_flags(self, arch: str) -> tuple[str, ...]:
        return tuple(f"-{self._level}" if flag == "-O3" else flag for flag in super().portable_flags(arch))


def hip_names() -> list[str]:
    return sorted(path.stem for path in (HERE / "hip").glob("*.hip"))


_compiling: dict[tuple[str, str], threading.Lock] = collections.defaultdict(threading.Lock)


def compile_hip(name: str, level: str) -> Path:
    """The library of a HIP program; both halves by the project's own compiler, through its cache.

    A second thread that wants the same one waits for the first.
    """
    backend = _At(level)
    with _compiling[name, level]:
        return backend.compile(KernelSource.read(HERE / "hip" / f"{name}.hip", ROOT), backend.target("MI300")).path


def run_hip(emulator: Emulator, name: str, level: str) -> str | None:
    """None, or what is wrong. The host half registers its kernels with the emulator when it is loaded."""
    program = ctypes.CDLL(str(compile_hip(name, level))).program
    message = ctypes.create_string_buffer(1000)
    wrong = program(message, len(message))
    return "".join([message.value.decode() if wrong else "", emulator.findings()]) or None


def run(emulator: Emulator, words: Sequence[str]) -> str | None:
    """``triton NAME`` or ``hip NAME LEVEL``."""
    if words[0] == "triton":
        return run_triton(emulator, words[1])
    return run_hip(emulator, words[1], words[2])
