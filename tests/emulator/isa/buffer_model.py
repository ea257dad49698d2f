# SPDX-License-Identifier: MIT
"""Buffer resources, and where and within what bounds an instruction accesses memory through one.

Source: "AMD Instinct MI300" ISA reference, chapter "Vector Memory Buffer Instructions": the resource's fields, linear
and swizzled addressing, range checking of raw and structured buffers.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.emulator.isa.values import Array

_ELEMENT = 4                        # bytes that stay together in a swizzled buffer
_LANES = np.arange(64, dtype=np.int64)
IDENTITY = (4, 5, 6, 7)             # destination select: X, Y, Z, W


@dataclasses.dataclass(frozen=True)
class Resource:
    """``records``: bytes, or for swizzled buffers structures. ``index_stride``: 8, 16, 32 or 64."""

    base: int
    records: int
    stride: int = 0
    swizzled: bool = False
    index_stride: int = 8
    add_lane: bool = False
    select: tuple[int, int, int, int] = IDENTITY
    number_format: int = 0
    data_format: int = 0
    cache_swizzle: bool = False     # then addresses are linear

    def words(self) -> tuple[int, int, int, int]:
        fields = sum(code << 3 * i for i, code in enumerate(self.select))
        fields |= self.number_format << 12 | self.data_format << 15 | self.add_lane << 23
        fields |= {8: 0, 16: 1, 32: 2, 64: 3}[self.index_stride] << 21
        high = self.base >> 32 & 0xFFFF | self.stride << 16 | self.cache_swizzle << 30 | self.swizzled << 31
        return self.base & 0xFFFFFFFF, high, self.records, fields


@dataclasses.dataclass
class Access:
    """One instruction: ``index`` and ``offset`` per lane (None: not enabled), ``uniform`` the scalar offset."""

    resource: Resource
    index: Array | None
    offset: Array | None
    immediate: int
    uniform: int

    def place(self, distance: int, size: int) -> tuple[Array, Array]:
        """Addresses of ``size`` bytes that begin ``distance`` bytes into the lanes' data; and whether in range."""
        r = self.resource
        offset = np.full(64, self.immediate + distance, dtype=np.int64)
        if self.offset is not None:
            offset = offset + self.offset
        index = np.zeros(64, dtype=np.int64) if self.index is None else self.index.astype(np.int64)
        if r.add_lane:
            index = index + _LANES
        if r.cache_swizzle or not (r.swizzled and r.stride):
            whole = index * r.stride + offset
            return (r.base + self.uniform + whole).astype(np.uint64), whole + size <= r.records - self.uniform
        row, column = index // r.index_stride, index % r.index_stride
        parts = offset // _ELEMENT, offset % _ELEMENT
        whole = (row * r.stride + parts[0] * _ELEMENT) * r.index_stride + column * _ELEMENT + parts[1]
        outside = index >= r.records
        if self.index is not None or r.add_lane:
            outside |= offset + size > r.stride
        return (r.base + self.uniform + whole).astype(np.uint64), ~outside
