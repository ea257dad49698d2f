# SPDX-License-Identifier: MIT
"""Memory as the programs of pseudo-code see it, and real memory for the emulator to work on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tests.emulator.isa.values import Array

_LINE = 64


def host_buffer(size: int) -> Array:
    """Bytes that begin at a cache line."""
    whole = np.zeros(size + _LINE, dtype=np.uint8)
    start = -whole.ctypes.data % _LINE
    return whole[start:start + size]


@dataclasses.dataclass
class Bytes:
    """``data`` at address ``base``. What lies outside reads as zero and is not written: what is right for LDS, and for
    other memory a sign of a test that is wrong, so ``strict`` refuses it."""

    data: Array
    base: int = 0
    strict: bool = True

    def load(self, address: Array, width: int, mask: Array) -> Array:
        size, where, inside = self._places(address, width, mask)
        found = np.zeros(len(where), dtype=np.uint64)
        for i in range(size):
            found |= np.where(inside, self.data[where + i], 0).astype(np.uint64) << np.uint64(8 * i)
        return found

    def store(self, address: Array, width: int, bits: Array, mask: Array) -> None:
        """In the order of the lanes."""
        size, where, inside = self._places(address, width, mask)
        for i in range(size):
            self.data[where[inside] + i] = (bits[inside] >> np.uint64(8 * i) & np.uint64(255)).astype(np.uint8)

    def _places(self, address: Array, width: int, mask: Array) -> tuple[int, Array, Array]:
        size = width // 8
        offset = address.astype(np.uint64) - np.uint64(self.base)
        inside = mask & (offset <= np.uint64(len(self.data) - size))
        if self.strict and (mask & ~inside).any():
            raise IndexError(f"the case reaches beyond its {len(self.data)} bytes: {offset[mask & ~inside][:4]}")
        return size, np.where(inside, offset, 0).astype(np.int64), inside


@dataclasses.dataclass
class Mapped:
    """Memory that is not one range: the program's addresses are distances from the first byte of a lane's access, and
    ``place(distance, bytes)`` says for every lane where that is and whether it is within bounds."""

    memory: Bytes
    place: Callable[[int, int], tuple[Array, Array]]

    def load(self, address: Array, width: int, mask: Array) -> Array:
        where, inside = self.place(int(address[0]), width // 8)
        return self.memory.load(where, width, mask & inside)

    def store(self, address: Array, width: int, bits: Array, mask: Array) -> None:
        where, inside = self.place(int(address[0]), width // 8)
        self.memory.store(where, width, bits, mask & inside)
