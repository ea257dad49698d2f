# SPDX-License-Identifier: MIT
"""One call in a process of its own, for tools that watch a process: sanitizers and profilers.

``python -m scoring.worker.alone FOLDER``: ``FOLDER/call.json`` says what to load and how the tensors lie in
``FOLDER/block``. On a GPU every tensor gets an allocation of its own, to the byte where the vendor lets us, so that a
sanitizer sees the first byte behind it. All tensors are written back to the block, and ``FOLDER/answer.json`` says how
the call went.

Imports the standard library and torch only, as all of the worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scoring.worker import lean

if __name__ == "__main__":
    lean.leave_out()

import torch

from scoring.ipc import arena, requests
from scoring.worker.failure import Failure
from scoring.worker.loaders import NativeKernel, PythonSubmission, Slot

CALL, BLOCK, ANSWER, TRACE = "call.json", "block", "answer.json", "trace.json"


def main(folder: Path) -> None:
    call = json.loads((folder / CALL).read_text())
    try:
        answer: Mapping[str, Any] = {"ok": True, "seconds": _call(call, folder)}
    except Failure as failure:
        answer = failure.reply()
    (folder / ANSWER).write_text(json.dumps(answer))


def _call(call: Mapping[str, Any], folder: Path) -> float:
    """Seconds that the call took by the host's clock. Raises ``Failure``."""
    device: int | None = call["device"]
    load, share = requests.decode(call["load"]), requests.decode(call["share"])
    assert isinstance(load, requests.Load)
    assert isinstance(share, requests.ShareSlot)
    with (folder / BLOCK).open("r+b") as file:
        slot = Slot(arena.Arena(mmap.mmap(file.fileno(), 0), lambda: None, {}), share)
    homes: Mapping[str, torch.Tensor] = {}
    if device is not None:
        homes = dict(slot.tensors)
        torch.cuda.set_device(device)
        torch.zeros(1, device="cuda")              # creates the context
        untouched = set(slot.outputs) if not call["fill"] else set()
        slot.tensors = {name: _moved(tensor, name not in untouched) for name, tensor in homes.items()}
        slot.outputs = {name: slot.tensors[name] for name in slot.outputs}
        slot.memory = {name: arena.Memory(tensor.data_ptr(), slot.sizes[name], tensor.element_size())
                       for name, tensor in slot.tensors.items()}
    room = arena.Memory.zeros if device is None else _bytes
    workspace = room(call["workspace"]) if call["workspace"] else None
    contestant = (NativeKernel(load.spec, device is not None) if isinstance(load.spec, requests.NativeSpec)
                  else PythonSubmission(load.spec))
    with _watched(device is not None, folder / TRACE if call["trace"] else None):
        begin = time.perf_counter()
        contestant.run(slot, workspace.data_ptr() if workspace is not None else 0)
        _synchronize(device)
        seconds = time.perf_counter() - begin
    contestant.finish(slot)
    for name, home in homes.items():      # inputs as well: the judge looks whether they are what they were
        home.copy_(slot.tensors[name])
    _synchronize(device)
    return seconds


@contextlib.contextmanager
def _watched(on_device: bool, trace: Path | None) -> Iterator[None]:
    """Around the call: profilers that were told to wait for it look at nothing else. ``trace``: torch's own one."""
    if trace is not None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        kinds += [torch.profiler.ProfilerActivity.CUDA] if on_device else []
        with torch.profiler.profile(activities=kinds) as profile:
            yield
        profile.export_chrome_trace(str(trace))
        return
    if not on_device or torch.version.hip:
        yield
        return
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    runtime.cudaProfilerStart()
    yield
    runtime.cudaProfilerStop()


def _moved(tensor: torch.Tensor, filled: bool) -> torch.Tensor:
    """A copy of ``tensor`` on the device in memory of its own, which stays unwritten unless ``filled``."""
    count = arena.extent(tuple(tensor.shape), tensor.stride())
    flat = _bytes(count * tensor.element_size()).view(tensor.dtype)
    moved = flat.as_strided(tensor.shape, tensor.stride())
    if filled and count:
        moved.copy_(tensor)
    return moved


def _bytes(count: int) -> torch.Tensor:
    """Unwritten memory of a GPU: on NVIDIA's an allocation of exactly so many bytes."""
    if torch.version.hip or not count:
        return torch.empty(count, dtype=torch.uint8, device="cuda")
    pointer = ctypes.c_uint64()
    code = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(count))
    if code:
        raise Failure("RUNTIME_ERROR", f"the driver gives no {count} bytes of device memory (cuMemAlloc: {code})")
    return torch.as_tensor(arena.DevicePointer(pointer.value, count), device="cuda")


def _synchronize(device: int | None) -> None:
    if device is not None:
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise Failure("RUNTIME_ERROR", f"the device reports: {str(error).splitlines()[0]}") from error


if __name__ == "__main__":
    main(Path(sys.argv[1]))
