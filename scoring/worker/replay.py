# SPDX-License-Identifier: MIT
"""A process that runs recorded launches of an emulated device again, on memory that only the judge has written to.

Started as ``python -m scoring.worker.replay SOCKET PIPE``, like a worker. It loads the emulator and no code under test:
device code is executed by the emulator alone, within the memory named here, and cannot call the host. So what it counts
is what the kernels did. The record comes from a worker and is a claim: whatever it says, the launches only find the
judge's inputs, memory that is zero, and nothing else.

Imports the standard library only, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from scoring.ipc import requests, wire
from scoring.ipc.emulator import KEPT, Emulator

PAGE = 4096
_PROT, _SHARED, _PRIVATE, _ANONYMOUS, _NOREPLACE = 3, 0x01, 0x02, 0x20, 0x100000      # of mmap (Linux)
_FAILED = ctypes.c_void_p(-1).value
_ARGUMENTS = 1 << 16            # bytes of one launch's arguments
_THREADS = 1 << 40              # of one launch


class RefusedError(Exception):
    """The record cannot be run again; the text says why. ``failed``: a launch was tried, and the kernel failed."""

    def __init__(self, message: str, failed: bool = False):
        super().__init__(message)
        self.failed = failed


class Memory:
    """Host memory at given addresses, which the emulator knows as the device's."""

    def __init__(self, emulator: Emulator):
        self._emulator = emulator
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                    ctypes.c_long]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._mapped: list[tuple[int, int]] = []
        self._known: list[int] = []
        self._ranges: list[tuple[int, int]] = []

    def map(self, address: int, nbytes: int, fd: int | None = None) -> None:
        """``nbytes`` of a file, or zeros, at ``address``. Raises ``RefusedError``."""
        size = -(-nbytes // PAGE) * PAGE
        if not (PAGE <= address < 1 << 47 and 0 < nbytes < 1 << 46) or address % PAGE:
            raise RefusedError(f"the record names memory that cannot be: {nbytes} bytes at {address:#x}")
        flags = _NOREPLACE | (_SHARED if fd is not None else _PRIVATE | _ANONYMOUS)
        got = self._libc.mmap(address, size, _PROT, flags, -1 if fd is None else fd, 0)
        if got not in (None, _FAILED):
            self._mapped.append((int(got), size))
        if got != address:
            raise RefusedError(requests.RunRecord.OCCUPIED)

    def register(self, name: str, address: int, nbytes: int) -> None:
        """Kernels may use this, and nothing that was not registered."""
        if nbytes > 0:
            self._emulator.register(name, address, nbytes)
            self._known.append(address)
            self.allow(address, nbytes)

    def allow(self, address: int, nbytes: int) -> None:
        """Fills and copies may use this."""
        self._ranges.append((address, address + nbytes))

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether all of these bytes lie in one range."""
        return any(begin <= address and address + nbytes <= end for begin, end in self._ranges)

    def close(self) -> None:
        for address in self._known:
            self._emulator.unregister(address)
        for address, size in self._mapped:
            self._libc.munmap(address, size)


class Replayer:
    """Answers the judge's requests."""

    def __init__(self) -> None:
        self.emulator: Emulator | None = None

    def handle(self, request: requests.Request, fds: Sequence[int]) -> dict[str, Any]:
        if isinstance(request, requests.LoadEmulator):
            self.emulator = Emulator(request.library, request.options)
            return {}
        if isinstance(request, requests.RunRecord) and self.emulator is not None:
            return self._replay(request, fds, self.emulator)
        return {}

    def _replay(self, request: requests.RunRecord, fds: Sequence[int], emulator: Emulator) -> dict[str, Any]:
        for take in (emulator.take_findings, emulator.take_counters, emulator.take_message):
            take()
        answer: dict[str, Any] = {}
        try:
            run(emulator, request, read_record(fds[0]), fds[1], fds[2])
        except RefusedError as error:
            answer = {"refused": str(error), "failed": error.failed}
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            answer = {"refused": f"the record of its launches cannot be read ({type(error).__name__})", "failed": False}
        return {**answer, "findings": emulator.take_findings()[: KEPT["findings"]],
                "counters": emulator.take_counters()[: KEPT["counters"]]}


def read_record(fd: int) -> dict[str, Any]:
    """The record in a file. Raises ``ValueError``."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        found = json.loads(file.read())
    if not isinstance(found, dict):
        raise ValueError
    return found


def run(emulator: Emulator, request: requests.RunRecord, record: dict[str, Any], slot: int, workspace: int) -> None:
    """Do again what a record says, on the judge's slot and workspace. Raises ``RefusedError``."""
    if record["complete"] is not True:
        raise RefusedError("it launches too often to be recorded")
    with contextlib.ExitStack() as stack:
        memory = Memory(emulator)
        stack.callback(memory.close)
        memory.map(record["slot"], request.slot_bytes, slot)
        for name, offset, nbytes in request.tensors:
            memory.register(name, record["slot"] + offset, nbytes)
        if request.workspace_bytes and record["workspace"]:
            memory.map(record["workspace"], request.workspace_bytes, workspace)
            memory.register("workspace", record["workspace"], request.workspace_bytes)
        for address, nbytes in record["memory"]:
            memory.map(address, nbytes)
            memory.register("device memory", address, nbytes)
        for address, nbytes in runs(record["pages"]):
            memory.map(address, nbytes)
            memory.register("host memory", address, nbytes)
        modules = []
        for module in record["modules"]:
            placed = emulator.place(bytes.fromhex(module["code"]), module["address"])
            if isinstance(placed, str):
                raise RefusedError(requests.RunRecord.OCCUPIED if "no room" in placed else placed)
            handle, taken = placed
            stack.callback(emulator.displace, handle)
            memory.allow(module["address"], taken)
            modules.append(handle)
        for call in record["calls"]:
            again(emulator, memory, modules, call)
        for result in record["results"]:
            put_in_place(memory, **result)


def runs(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(address, bytes) of neighbouring pages together."""
    begin = end = 0
    for page in sorted(set(pages)):
        if page != end:
            if end:
                yield begin, end - begin
            begin = page
        end = page + PAGE
    if end:
        yield begin, end - begin


def again(emulator: Emulator, memory: Memory, modules: Sequence[int], call: dict[str, Any]) -> None:
    """One launch, fill or copy. Raises ``RefusedError``."""
    match call["do"]:
        case "launch":
            arguments = bytes.fromhex(call["arguments"])
            if len(arguments) > _ARGUMENTS:
                raise RefusedError("a launch has too many arguments")
            shape = [int(number) for number in (*call["grid"], *call["block"], call["lds"])]
            if not all(0 <= number < 1 << 31 for number in shape) or math.prod(shape[:6]) > _THREADS:
                raise RefusedError("a launch has more threads than the device takes")
            if wrong := emulator.launch(modules[call["module"]], call["kernel"], shape, arguments):
                raise RefusedError(wrong, failed=True)
        case "fill":
            width, count = int(call["width"]), int(call["count"])
            if width not in (1, 2, 4) or count <= 0:
                raise RefusedError("a fill of elements of no known size")
            if memory.holds(call["to"], width * count):
                emulator.fill(call["to"], int(call["value"]), width, count)
        case "copy":
            if not memory.holds(call["to"], int(call["bytes"])):
                return                       # back to the host: no kernel sees it
            if not memory.holds(call["from"], int(call["bytes"])):
                raise RefusedError("the call copies host memory to the device, which no other process knows")
            emulator.copy(call["to"], call["from"], int(call["bytes"]))
        case _:
            raise RefusedError("the record has a call of no known kind")


def put_in_place(
    memory: Memory, to: int, from_: int, shape: Sequence[int], strides: Sequence[int], width: int,
) -> None:
    """Copy a strided result to an output, whose elements lie one after the other. Raises ``RefusedError``."""
    count = math.prod(shape)
    if not count:
        return
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min(strides, default=0) < 0 or width not in (1, 2, 4, 8) or not (
            memory.holds(to, count * width) and memory.holds(from_, (last + 1) * width)):
        raise RefusedError("what the call returned lies in no memory that a kernel wrote to")
    kind: Any = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
    target = memoryview((ctypes.c_uint8 * (count * width)).from_address(to)).cast("B").cast(kind)
    source = memoryview((ctypes.c_uint8 * ((last + 1) * width)).from_address(from_)).cast("B").cast(kind)
    inner, step = (shape[-1], strides[-1]) if shape else (1, 1)
    for row in range(count // inner):
        at, rest = 0, row
        for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
            at += rest % size * stride
            rest //= size
        if step:
            target[row * inner : (row + 1) * inner] = source[at : at + (inner - 1) * step + 1 : step]
        else:
            for i in range(inner):
                target[row * inner + i] = source[at]


def main() -> None:
    questions, answers = socket.socket(fileno=int(sys.argv[1])), wire.AnswerPipe(int(sys.argv[2]))
    replayer = Replayer()
    while True:
        try:
            message, fds = wire.receive(questions)
        except wire.WireError:
            return
        reply: dict[str, Any] = {"ok": True}
        try:
            reply |= replayer.handle(requests.decode(message), fds)
        except (OSError, ValueError, MemoryError, requests.UnknownRequest) as error:
            reply = {"ok": False, "status": "RUNTIME_ERROR", "error": f"replaying launches failed: {error}"[:2000]}
        finally:
            for fd in fds:
                os.close(fd)
        reply["nonce"] = message.get("nonce", "")
        try:
            wire.answer(answers, reply)
        except wire.WireError:
            return


if __name__ == "__main__":
    main()
