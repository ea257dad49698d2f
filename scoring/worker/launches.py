# SPDX-License-Identifier: MIT
"""What a kernel file's host code launches, without a GPU: grid, block, cluster and dynamic shared memory.

``python -m scoring.worker.launches SPEC`` loads the library and calls its entry point once for each case, with pointers
that lead nowhere. The vendor's runtime inside the library is led astray first: its functions begin with a jump to ours,
which write launches down and say that all is well. SPEC is a JSON object (``scoring.run.launches``); so is the answer.

Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

_FAKE = 0x7A0000000000          # where pointers lead: aligned as device allocations are, and never read
_STRIDE = 1 << 36
_CLUSTER = 4                    # cudaLaunchAttributeClusterDimension
_ATTRIBUTE_BYTES = 72


class Dim(ctypes.Structure):
    """dim3, as both vendors pass it."""

    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

    def values(self) -> list[int]:
        return [int(self.x), int(self.y), int(self.z)]


class Configuration(ctypes.Structure):
    """The head of cudaLaunchConfig_t."""

    _fields_ = [("grid", Dim), ("block", Dim), ("shared", ctypes.c_size_t), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]


_Pointer, _Int, _Size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class Recorder:
    """Stands where a runtime's functions are. ``facts`` answer questions about the device."""

    def __init__(self, facts: Mapping[str, int]):
        self.facts = facts
        self.names: dict[int, str] = {}
        self.seen: list[dict[str, Any]] = []
        self._pushed: list[tuple[list[int], list[int], int]] = []
        self._kept: list[Any] = []           # callbacks live as long as what may call them

    def address(self, kinds: tuple[Any, ...], function: Callable[..., int | None]) -> int:
        """A C function's address that calls ``function``; the first of ``kinds`` is what it returns."""
        callback = ctypes.CFUNCTYPE(*kinds)(function)
        self._kept.append(callback)
        return ctypes.cast(callback, _Pointer).value or 0

    def patch(self, at: int, kinds: tuple[Any, ...], function: Callable[..., int | None]) -> None:
        """Have the function that begins at ``at`` go to ``function`` at once."""
        target = self.address(kinds, function)
        if platform.machine() == "aarch64":      # ldr x16, #8; br x16
            code = bytes.fromhex("50000058" "00021fd6") + target.to_bytes(8, "little")
        else:                                    # mov rax, target; jmp rax
            code = b"\x48\xb8" + target.to_bytes(8, "little") + b"\xff\xe0"
        start, end = at & -mmap.PAGESIZE, -(-(at + len(code)) // mmap.PAGESIZE) * mmap.PAGESIZE
        if ctypes.CDLL(None).mprotect(_Pointer(start), _Size(end - start), 7):      # read, write, execute
            raise OSError("the library's code cannot be changed here")
        ctypes.memmove(at, code, len(code))

    def register(self, _handle: int, host: int, _device: int, name: int, *_rest: Any) -> int:
        self.names[host] = ctypes.string_at(name).decode(errors="replace")
        return 0

    def launch(self, function: int, grid: Dim, block: Dim, _arguments: int, shared: int, _stream: int) -> int:
        return self._note(function, grid.values(), block.values(), shared, [1, 1, 1])

    def launch_configured(self, configuration: int, function: int, _arguments: int) -> int:
        given = Configuration.from_address(configuration)
        cluster = [1, 1, 1]
        for index in range(given.count):
            at = given.attributes + index * _ATTRIBUTE_BYTES
            if _Int.from_address(at).value == _CLUSTER:
                cluster = Dim.from_address(at + 8).values()
        return self._note(function, given.grid.values(), given.block.values(), given.shared, cluster)

    def push(self, grid: Dim, block: Dim, shared: int, _stream: int) -> int:
        self._pushed.append((grid.values(), block.values(), shared))
        return 0

    def pop(self, grid: int, block: int, shared: int, stream: int) -> int:
        sizes = self._pushed.pop()
        for at, values in ((grid, sizes[0]), (block, sizes[1])):
            ctypes.memmove(at, ctypes.byref(Dim(*values)), ctypes.sizeof(Dim))
        _Size.from_address(shared).value = sizes[2]
        _Pointer.from_address(stream).value = None
        return 0

    def kernel(self, out: int, function: int) -> int:
        _Pointer.from_address(out).value = function
        return 0

    def attribute(self, out: int, which: int, _device: int) -> int:
        _Int.from_address(out).value = self.facts.get(str(which), 1)
        return 0

    def one(self, out: int, *_rest: Any) -> int:
        _Int.from_address(out).value = 1
        return 0

    def zero(self, out: int, *_rest: Any) -> int:
        _Int.from_address(out).value = 0
        return 0

    def entry(self, _name: int, out: int, *rest: int) -> int:
        """Every function of the driver does nothing, and well."""
        _Pointer.from_address(out).value = self._nothing
        if rest[-1]:
            _Int.from_address(rest[-1]).value = 0
        return 0

    @property
    def _nothing(self) -> int:
        return self.address((_Int,), lambda: 0)

    def _note(self, function: int, grid: list[int], block: list[int], shared: int, cluster: list[int]) -> int:
        name = self.names.get(function, "")
        self.seen.append({"kernel": name, "grid": grid, "block": block, "shared": shared, "cluster": cluster})
        return 0


def cuda(recorder: Recorder, base: int, symbols: Mapping[str, int]) -> None:
    """Patch the runtime that is linked into a library which lies at ``base``; ``symbols`` are offsets of its own."""
    launch = (_Int, _Pointer, Dim, Dim, _Pointer, _Size, _Pointer)
    known: dict[str, tuple[tuple[Any, ...], Callable[..., int | None]]] = {
        "__cudaRegisterFatBinary": ((_Pointer, _Pointer), lambda *_: _FAKE),
        "__cudaRegisterFatBinaryEnd": ((None, _Pointer), lambda *_: None),
        "__cudaUnregisterFatBinary": ((None, _Pointer), lambda *_: None),
        "__cudaRegisterFunction": ((None, *[_Pointer] * 4, _Int, *[_Pointer] * 5), recorder.register),
        "__cudaRegisterVar": ((None, *[_Pointer] * 4), lambda *_: None),
        "__cudaPushCallConfiguration": ((_Int, Dim, Dim, _Size, _Pointer), recorder.push),
        "__cudaPopCallConfiguration": ((_Int, *[_Pointer] * 4), recorder.pop),
        "__cudaGetKernel": ((_Int, _Pointer, _Pointer), recorder.kernel),
        "__cudaLaunchKernel": (launch, recorder.launch), "cudaLaunchKernel": (launch, recorder.launch),
        "cudaLaunchKernelExC": ((_Int, *[_Pointer] * 3), recorder.launch_configured),
        "cudaDeviceGetAttribute": ((_Int, _Pointer, _Int, _Int), recorder.attribute),
        "cudaGetDevice": ((_Int, _Pointer), recorder.zero), "cudaGetDeviceCount": ((_Int, _Pointer), recorder.one),
        "cudaOccupancyMaxActiveClusters": ((_Int, *[_Pointer] * 3), lambda out, *_: recorder.attribute(out, 16, 0)),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor": ((_Int, *[_Pointer] * 4), recorder.one),
        "cudaGetDriverEntryPoint": ((_Int, _Pointer, _Pointer, ctypes.c_ulonglong, _Pointer), recorder.entry),
        "cudaGetDriverEntryPointByVersion": (
            (_Int, _Pointer, _Pointer, ctypes.c_uint, ctypes.c_ulonglong, _Pointer), recorder.entry),
    }
    for name, offset in symbols.items():
        if name in known:
            recorder.patch(base + offset, *known[name])
        elif name.startswith("cuda"):
            recorder.patch(base + offset, (_Int,), lambda: 0)
    for name, offset in symbols.items():         # what the library did when it was loaded, once more
        if name.endswith("__sti____cudaRegisterAllv"):
            ctypes.CFUNCTYPE(None)(base + offset)()


def hip(recorder: Recorder, runtime: ctypes.CDLL) -> None:
    """Patch an emulated device's runtime, before the library is loaded that registers its kernels there."""
    def at(name: str) -> int:
        return ctypes.cast(getattr(runtime, name), _Pointer).value or 0

    recorder.patch(at("__hipRegisterFunction"), (None, *[_Pointer] * 4, _Int, *[_Pointer] * 5), recorder.register)
    recorder.patch(at("hipLaunchKernel"), (_Int, _Pointer, Dim, Dim, _Pointer, _Size, _Pointer), recorder.launch)


def record(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For every case its ``launches``, and the ``code`` that the entry point returned."""
    recorder = Recorder(spec["facts"])
    for name in spec["preload"]:
        hip(recorder, ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL))
    library = ctypes.CDLL(spec["library"])
    function = getattr(library, spec["symbol"])
    if not spec["preload"]:
        base = (ctypes.cast(function, _Pointer).value or 0) - spec["symbols"][spec["symbol"]]
        cuda(recorder, base, spec["symbols"])
    function.argtypes = [_Pointer if kind == "pointer" else getattr(ctypes, f"c_{kind}") for kind in spec["kinds"]]
    function.restype = _Int
    found = []
    for arguments in spec["cases"]:
        recorder.seen.clear()
        pointers = iter(range(_FAKE, _FAKE + _STRIDE * 256, _STRIDE))
        code = function(*(_value(kind, value, next(pointers))
                          for kind, value in zip(spec["kinds"], arguments, strict=True)))
        found.append({"code": code, "launches": list(recorder.seen)})
    return found


def _value(kind: str, value: Any, pointer: int) -> Any:
    if kind == "pointer":
        return pointer if value else None
    return float(value) if kind in ("float", "double") else value


if __name__ == "__main__":
    sys.stdout.write(json.dumps(record(json.loads(sys.argv[1]))))
    sys.stdout.flush()
    with contextlib.suppress(Exception):
        ctypes.CDLL(None)._exit(0)           # no destructor of the library's, which would ask the real runtime
