# SPDX-License-Identifier: MIT
"""The state of one wave, as the emulator's C interface takes it."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from typing import Any

import numpy as np

from tests.emulator.isa.values import Array

VCC, M0, EXEC = 106, 124, 126     # operand encodings of scalar registers
VGPRS = 40


@dataclasses.dataclass
class Wave:
    """``vgprs``: [register, lane], ``agprs`` likewise; ``sgprs``: by operand encoding 0 to 127."""

    vgprs: Array
    sgprs: Array
    lds: Array
    scc: int = 0
    mode: int = 0x3F0
    status: int = 0
    agprs: Array = dataclasses.field(default_factory=lambda: np.zeros((0, 64), np.uint32))

    def copy(self) -> Wave:
        return dataclasses.replace(self, vgprs=self.vgprs.copy(), sgprs=self.sgprs.copy(), lds=self.lds.copy(),
                                   agprs=self.agprs.copy())

    def pair(self, at: int) -> int:
        return int(self.sgprs[at]) | int(self.sgprs[at + 1]) << 32

    def file(self, letter: str) -> Array:
        return self.agprs if letter == "a" else self.vgprs

    def set_scalar(self, at: int, width: int, bits: int) -> None:
        for i in range(max(1, width // 32)):
            self.sgprs[at + i] = (bits >> (32 * i)) & 0xFFFFFFFF

    @property
    def exec(self) -> Array:
        """One bool a lane."""
        return np.unpackbits(self.sgprs[EXEC:EXEC + 2].astype("<u4").view(np.uint8), bitorder="little").astype(bool)


def random_wave(rng: np.random.Generator, exec_mask: int = (1 << 64) - 1, lds_bytes: int = 0) -> Wave:
    sgprs = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
    sgprs[EXEC], sgprs[EXEC + 1] = exec_mask & 0xFFFFFFFF, exec_mask >> 32
    sgprs[125] = 0
    return Wave(rng.integers(0, 1 << 32, (VGPRS, 64), dtype=np.uint32), sgprs,
                rng.integers(0, 256, lds_bytes, dtype=np.uint8), int(rng.integers(0, 2)))


class WaveImage(ctypes.Structure):
    """``struct WaveImage`` of the emulator's control interface."""

    _fields_ = [("version", ctypes.c_uint32), ("vgpr_count", ctypes.c_uint32), ("agpr_count", ctypes.c_uint32),
                ("lds_bytes", ctypes.c_uint32), ("sgpr", ctypes.c_uint32 * 128), ("scc", ctypes.c_uint32),
                ("mode", ctypes.c_uint32), ("status", ctypes.c_uint32), ("pad", ctypes.c_uint32),
                ("vgprs", ctypes.c_void_p), ("agprs", ctypes.c_void_p), ("lds", ctypes.c_void_p),
                ("message", ctypes.c_char_p)]


class EmulatorError(RuntimeError):
    """The emulator declined to run the code; says why."""


class Emulator:
    """The library under test."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.warpwave_emulator_execute.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.library.warpwave_emulator_disassemble.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p,
                                                               ctypes.c_size_t]
        self.library.warpwave_emulator_instructions.restype = ctypes.c_void_p
        self.library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
        self.library.warpwave_emulator_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        self.library.warpwave_emulator_unregister.argtypes = [ctypes.c_void_p]
        self._message = ctypes.create_string_buffer(512)

    def execute(self, code: bytes, wave: Wave) -> Wave:
        """The state after; raises EmulatorError."""
        after = wave.copy()
        words = np.frombuffer(code, dtype=np.uint32).copy()
        vgprs = np.ascontiguousarray(after.vgprs)
        agprs = np.ascontiguousarray(after.agprs)
        image = WaveImage(1, len(vgprs), len(agprs), len(after.lds), (ctypes.c_uint32 * 128)(*map(int, after.sgprs)),
                          after.scc, after.mode, after.status, 0, vgprs.ctypes.data, agprs.ctypes.data,
                          after.lds.ctypes.data, ctypes.cast(self._message, ctypes.c_char_p))
        if self.library.warpwave_emulator_execute(words.ctypes.data, len(words), ctypes.byref(image)):
            raise EmulatorError(self._message.value.decode())
        after.vgprs, after.agprs = vgprs, agprs
        after.sgprs = np.array(image.sgpr, dtype=np.uint32)
        after.scc, after.mode, after.status = image.scc, image.mode, image.status
        return after

    def disassemble(self, code: bytes) -> tuple[str, int]:
        text = ctypes.create_string_buffer(512)
        words = np.frombuffer(code, dtype=np.uint32).copy()
        used = self.library.warpwave_emulator_disassemble(words.ctypes.data, len(words), text, 512)
        return text.value.decode(), used

    def instructions(self) -> list[dict[str, Any]]:
        pointer = self.library.warpwave_emulator_instructions()
        try:
            found: list[dict[str, Any]] = json.loads(ctypes.string_at(pointer).decode())
            return found
        finally:
            self.library.warpwave_emulator_free(pointer)

    def register(self, memory: Array, name: str) -> None:
        self.library.warpwave_emulator_register(memory.ctypes.data, memory.nbytes, name.encode())

    def unregister(self, memory: Array) -> None:
        self.library.warpwave_emulator_unregister(memory.ctypes.data)
