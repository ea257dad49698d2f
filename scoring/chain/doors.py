# SPDX-License-Identifier: MIT
"""The judge's end of the doors: host memory at which a device waits for keys and leaves digests.

A captured chain is on the device and waits before anything is revealed. From the moment the judge rings, its clock sees
the device alone: no message, no waking up, no launch of the worker's host, which a busy machine makes longer and which
no calibration can foresee. Nothing at a door is believed: the code under test can write there as well.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

from scoring.arena import Arena
from scoring.chain.library import DOOR_ANSWERED, DOOR_BYTES, DOOR_DIGEST, DOOR_KEY, DOOR_LISTENS, DOOR_RUNG, KEY_BYTES

INPUTS, LINKS = 0, 1          # the doors of a chain: for the key of the inputs, for the key where the links begin
NBYTES = mmap.PAGESIZE        # 16 doors of 256 bytes, or more
LOOKS = 256                   # at a word before a look at the worker; some 20 µs


class Doors:
    """All doors, in ``arena``, a host arena of ``NBYTES`` that stays the caller's."""

    def __init__(self, arena: Arena):
        self.arena = arena
        self._base = arena.block.data_ptr()
        self._words = (ctypes.c_uint32 * (NBYTES // 4)).from_address(self._base)

    def close_all(self) -> None:
        """Forget whatever happened at the doors, before the next chain."""
        ctypes.memset(self._base, 0, NBYTES)

    def ring(self, door: int, key: bytes) -> None:
        """Leave 16 bytes, and say so."""
        begin = door * DOOR_BYTES
        ctypes.memmove(self._base + begin + DOOR_KEY, key, KEY_BYTES)
        self._words[(begin + DOOR_RUNG) // 4] = 1

    def wait_listening(self, door: int, gone: Callable[[], bool]) -> bool:
        """Until somebody waits at the door; False if ``gone`` comes first."""
        return self._wait(door * DOOR_BYTES + DOOR_LISTENS, gone)

    def wait_answered(self, door: int, gone: Callable[[], bool]) -> bytes | None:
        """What is left at the door once something is; None if ``gone`` comes first."""
        begin = door * DOOR_BYTES
        if not self._wait(begin + DOOR_ANSWERED, gone):
            return None
        return ctypes.string_at(self._base + begin + DOOR_DIGEST, KEY_BYTES)

    def _wait(self, offset: int, gone: Callable[[], bool]) -> bool:
        words, at = self._words, offset // 4
        while True:
            for _look in range(LOOKS):
                if words[at]:
                    return True
            if gone():
                return bool(words[at])
