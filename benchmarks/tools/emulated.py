# SPDX-License-Identifier: MIT
"""Kernels of the project on the emulators, with counters: what emulator_model.py and emulator_speed.py share."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import backends  # noqa: E402
from backends import _emulated  # noqa: E402
from backends.cuda import release  # noqa: E402
from backends.emulator import build  # noqa: E402
from backends.source import KernelSource, Signature  # noqa: E402
from scoring.problem import Problem  # noqa: E402


class Emulator:
    """The library, loaded globally: compiled host code takes the runtime that is there. ``gpu``: MI300, H100 or L4."""

    def __init__(self, library: Path | None = None, gpu: str = "MI300"):
        self.backend = backends.get("rocm" if gpu == "MI300" else "cuda")
        _emulated.use(True)
        if library is None:
            library = build.library() if gpu == "MI300" else _emulated.cuda_library(release(self.backend.compiler()))
        self.target = next(each for each in self.backend.targets() if each.gpu == gpu)
        self._library = self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        if gpu != "MI300":
            self.set(gpu=gpu)
        self._library.warpwave_emulator_take_counters.restype = ctypes.c_void_p
        self._library.warpwave_emulator_take_findings.restype = ctypes.c_void_p
        if gpu == "MI300":
            self._library.warpwave_emulator_model_again.restype = ctypes.c_void_p
        self._library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
        self._library.warpwave_emulator_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        self._library.warpwave_emulator_unregister.argtypes = [ctypes.c_void_p]

    def set(self, **options: object) -> None:
        for name, value in options.items():
            if self._library.warpwave_emulator_set(name.encode(), str(value).encode()) != 0:
                raise SystemExit(f"the emulator has no {name}={value}")

    def _take(self, what: str) -> Any:
        text = getattr(self._library, f"warpwave_emulator_take_{what}")()
        try:
            return json.loads(ctypes.string_at(text))
        finally:
            self._library.warpwave_emulator_free(text)

    def counters(self) -> list[dict[str, Any]]:
        """Of the launches since the last call."""
        return list(self._take("counters"))

    def modelled_again(self, changes: str) -> list[float]:
        """Microseconds of the launches since the last call of counters, with other numbers in the model: "hbm=4e12"."""
        text = self._library.warpwave_emulator_model_again(changes.encode())
        if not text:
            raise SystemExit(f"the model cannot change {changes}")
        try:
            return list(json.loads(ctypes.string_at(text)))
        finally:
            self._library.warpwave_emulator_free(text)

    def findings(self) -> list[dict[str, Any]]:
        return list(self._take("findings"))

    def register(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, each in tensors.items():
            self._library.warpwave_emulator_register(each.data_ptr(), each.untyped_storage().nbytes(), name.encode())

    def unregister(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for each in tensors.values():
            self._library.warpwave_emulator_unregister(each.data_ptr())

    def compiled(self, source: KernelSource, defines: Mapping[str, str | int] | None = None) -> ctypes.CDLL:
        return ctypes.CDLL(str(self.backend.compile(source, self.target, defines).path))


class Kernel:
    """A kernel of the tree, ``hip/fp8_gemm/mfma.hip``, bound to its problem; with values for its tunables."""

    def __init__(self, emulator: Emulator, path: str, **defines: int):
        self.emulator = emulator
        source = KernelSource.read(ROOT / "kernels" / path, ROOT)
        self.problem = Problem(ROOT / "problems" / source.problem)
        self._fp8 = "e4m3fnuz" if emulator.target.gpu == "MI300" else "e4m3fn"
        self._signature: Signature = source.signature()
        self._call = getattr(emulator.compiled(source, defines), self._signature.symbol)
        self._call.argtypes = self._signature.argtypes()
        self._call.restype = ctypes.c_int
        self.cpu_seconds = 0.0      # of the last call, all threads together

    def run(self, check: bool = False, prepare: Callable[[dict[str, Any]], None] | None = None,
            **parameters: int | str) -> float:
        """Seconds of the host for one call with fresh data; stops the script when the kernel declines or is wrong.
        ``prepare`` gets the call's arguments by name before it."""
        case = self.problem.cases[0]
        case = dataclasses.replace(case, params={**case.params, **parameters})
        fp8 = self._fp8 if "fp8" in self.problem.name else None
        data = self.problem.generate(case, 1, "cpu", fp8)
        binding, params = self.problem.binding, dict(case.params)
        outputs = {name: data[binding.DATA_OUTPUTS[name]] if name in binding.DATA_OUTPUTS
                   else torch.empty(shape, dtype=getattr(torch, dtype))
                   for name, (shape, dtype) in binding.outputs(params).items()}
        workspace = torch.empty(max(binding.workspace_bytes(params), 1), dtype=torch.uint8)
        values = {**binding.arguments(params, data), **outputs, "workspace": workspace,
                  "workspace_bytes": binding.workspace_bytes(params), "queue": None}
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        if prepare is not None:
            prepare(values)
        self.emulator.register(tensors)
        self.emulator.counters()
        begin, cpu = time.monotonic(), time.process_time()
        status = self._call(*(value.data_ptr() if isinstance(value, torch.Tensor) else value
                              for value in (values[each.name] for each in self._signature.params)))
        seconds, self.cpu_seconds = time.monotonic() - begin, time.process_time() - cpu
        self.emulator.unregister(tensors)
        if status != 0:
            raise SystemExit(f"{self.problem.name} {params}: status {status}")
        if check:
            found = tuple(outputs.values())
            right, why = self.problem.check(data, found[0] if len(found) == 1 else found)
            if not right:
                raise SystemExit(f"{self.problem.name} {params}: {why}")
        return seconds


def modelled(launches: list[dict[str, Any]]) -> float:
    """Microseconds of launches one after the other."""
    return float(sum(each["modelled_us"] for each in launches))
