# SPDX-License-Identifier: MIT
"""The arithmetic of the commit chain, by ctypes: ``seal``, ``mix`` and ``commit`` of ``native/`` on tensors,
and the doorbells at which a device waits for a key and leaves a digest.

Judge and worker load the same library, each in its own process: what the worker answers counts for nothing until the
judge has computed it again from the bytes it was given. What the three are for: docs/judge.md.

Imports the standard library and torch only, as both processes use it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Union

import torch

from scoring.ipc.arena import Memory

KEY_BYTES = 16
WIDTHS = (1, 2, 4)            # bytes of an element that can be mixed
WORD = 4                      # bytes that are drawn together, as neighbours are not worth a draw each
ALIGNMENT = 16                # bytes: of memory that a GPU build seals, mixes or commits
BLOCK = 64                    # bytes that are sealed together
# A doorbell in host memory: where its words lie, in bytes, and what one takes up (``native/chain.h``).
DOORBELL_RUNG, DOORBELL_KEY, DOORBELL_LISTENS = 0, 16, 64
DOORBELL_ANSWERED, DOORBELL_DIGEST, DOORBELL_BYTES = 128, 144, 256

_POINTER, _SIZE, _INT, _WORD = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint32


Bytes = Union["torch.Tensor", Memory]


class ChainError(Exception):
    """The library cannot be loaded, or one of its launches failed."""


class ChainLibrary:
    """The library at ``path`` for tensors on ``device`` (torch's name, such as ``cuda:0``).

    Raises ``ChainError``, as all methods do.
    """

    def __init__(self, path: str, device: str, preload: Sequence[str] = ()):
        try:
            for name in preload:
                ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            library = ctypes.CDLL(path)
            self._seal, self._mix, self._commit = library.chain_seal, library.chain_mix, library.chain_commit
        except (OSError, AttributeError) as error:
            raise ChainError(f"the chain's library cannot be loaded: {error}") from error
        self._seal.argtypes = [_POINTER, _SIZE, _POINTER, _WORD, _POINTER]
        self._mix.argtypes = [_POINTER, _SIZE, _INT, _POINTER, _WORD, _POINTER]
        self._commit.argtypes = [_POINTER, _POINTER, _SIZE, _POINTER, _POINTER, _POINTER, _WORD, _POINTER]
        self._open, self._close, self._listen, self._answer = (
            library.chain_open, library.chain_close, library.chain_listen, library.chain_answer)
        self._open.argtypes = [_POINTER, _SIZE, ctypes.POINTER(_POINTER)]
        self._close.argtypes = [_POINTER]
        self._listen.argtypes = self._answer.argtypes = [_POINTER, _POINTER, _POINTER]
        library.chain_scratch_words.restype = ctypes.c_uint64
        self.device, self.on_device = device, device != "cpu"
        words = library.chain_scratch_words()
        self._scratch = (torch.zeros(words, dtype=torch.int32, device=device) if self.on_device
                         else Memory.zeros(WORD * words))

    def keys(self, count: int) -> Any:
        """Room for ``count`` keys of 16 bytes: a tensor, uint8 [count, 16], on a GPU, and a list of ``Memory`` on a
        host."""
        if not self.on_device:
            return [Memory.zeros(KEY_BYTES) for _key in range(count)]
        return torch.zeros((count, KEY_BYTES), dtype=torch.uint8, device=self.device)

    def key(self, secret: bytes) -> torch.Tensor:
        """16 secret bytes as a key on the device."""
        return torch.tensor(list(secret), dtype=torch.uint8).to(self.device)

    def seal(self, region: Bytes, key: Bytes, nonce: int) -> None:
        """XOR ``region`` (uint8, contiguous) with the keystream of ``key`` and ``nonce``; a second time undoes it."""
        self._run("seal", self._seal(region.data_ptr(), region.numel(), key.data_ptr(), nonce, self._queue()))

    def mix(self, tensor: Bytes, key: Bytes, nonce: int) -> None:
        """Draw the contents of ``tensor`` (dense in memory, any order of dimensions) anew, in words of four bytes where
        it fills them, each from the 256 words or elements of its window."""
        nbytes = tensor.numel() * tensor.element_size()
        width = WORD if nbytes % WORD == 0 and tensor.data_ptr() % ALIGNMENT == 0 else tensor.element_size()
        self._run("mix", self._mix(
            tensor.data_ptr(), nbytes // width, width, key.data_ptr(), nonce, self._queue()))

    def commit(
        self, source: int, target: int, nbytes: int, key: Bytes, digest: Bytes, nonce: int
    ) -> None:
        """Copy ``nbytes`` bytes from address ``source`` to ``target`` (which may be the same) and write their digest
        under ``key`` to ``digest`` (which may be ``key``)."""
        self._run("commit", self._commit(
            source, target, nbytes, key.data_ptr(), digest.data_ptr(), self._scratch.data_ptr(), nonce, self._queue()))

    def open(self, host: Bytes) -> int:
        """Where the device sees ``host`` (uint8, whole pages of host memory), until ``close``."""
        seen = _POINTER()
        self._run("open", self._open(host.data_ptr(), host.numel(), ctypes.byref(seen)))
        return seen.value or 0

    def close(self, host: Bytes) -> None:
        self._run("close", self._close(host.data_ptr()))

    def listen(self, doorbell: int, key: Bytes) -> None:
        """Wait at a doorbell, whose address the device sees, until it is rung; ``key`` gets what is there then."""
        self._run("listen", self._listen(doorbell, key.data_ptr(), self._queue()))

    def answer(self, doorbell: int, digest: Bytes) -> None:
        """Leave a digest at a doorbell."""
        self._run("answer", self._answer(doorbell, digest.data_ptr(), self._queue()))

    def _queue(self) -> int:
        return torch.cuda.current_stream(self.device).cuda_stream if self.on_device else 0

    def _run(self, what: str, code: int) -> None:
        if code:
            raise ChainError(f"the chain's {what} failed with the vendor's error {code}")


def can_mix(tensor: torch.Tensor) -> bool:
    """Whether ``mix`` takes the tensor: elements of a known width that fill their memory without gaps or overlaps."""
    strides = sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1)
    step = 1
    for stride, size in strides:
        if stride != step:
            return False
        step *= size
    return tensor.element_size() in WIDTHS and tensor.numel() > 0
