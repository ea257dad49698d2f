# SPDX-License-Identifier: MIT
"""The judge's end of the doorbells: host memory at which a device waits for keys and leaves digests.

A captured chain is on the device and waits before anything is revealed. From the moment the judge rings, its clock sees
the device alone: no message, no waking up, no launch of the worker's host, which a busy machine makes longer and which
no calibration can foresee. Nothing at a doorbell is believed: the code under test can write there as well.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

from scoring.ipc.arena import Arena
from scoring.ipc.chain_library import (
    DOORBELL_ANSWERED,
    DOORBELL_BYTES,
    DOORBELL_DIGEST,
    DOORBELL_KEY,
    DOORBELL_LISTENS,
    DOORBELL_RUNG,
    KEY_BYTES,
)

INPUTS, LINKS = 0, 1          # the doorbells of a chain: for the key of the inputs, for the key where the links begin
NBYTES = mmap.PAGESIZE        # 16 doorbells of 256 bytes, or more
LOOKS = 256                   # at a word before a look at the worker; some 20 µs


class Doorbells:
    """All doorbells, in ``arena``, a host arena of ``NBYTES`` that stays the caller's."""

    def __init__(self, arena: Arena):
        self.arena = arena
        self._base = arena.block.data_ptr()
        self._words = (ctypes.c_uint32 * (NBYTES // 4)).from_address(self._base)

    def close_all(self) -> None:
        """Forget whatever happened at the doorbells, before the next chain."""
        ctypes.memset(self._base, 0, NBYTES)

    def ring(self, doorbell: int, key: bytes) -> None:
        """Leave 16 bytes, and say so."""
        begin = doorbell * DOORBELL_BYTES
        ctypes.memmove(self._base + begin + DOORBELL_KEY, key, KEY_BYTES)
        self._words[(begin + DOORBELL_RUNG) // 4] = 1

    def wait_listening(self, doorbell: int, gone: Callable[[], bool]) -> bool:
        """Until somebody waits at the doorbell; False if ``gone`` comes first."""
        return self._wait(doorbell * DOORBELL_BYTES + DOORBELL_LISTENS, gone)

    def wait_answered(self, doorbell: int, gone: Callable[[], bool]) -> bytes | None:
        """What is left at the doorbell once something is; None if ``gone`` comes first."""
        begin = doorbell * DOORBELL_BYTES
        if not self._wait(begin + DOORBELL_ANSWERED, gone):
            return None
        return ctypes.string_at(self._base + begin + DOORBELL_DIGEST, KEY_BYTES)

    def _wait(self, offset: int, gone: Callable[[], bool]) -> bool:
        words, at = self._words, offset // 4
        while True:
            for _look in range(LOOKS):
                if words[at]:
                    return True
            if gone():
                return bool(words[at])
