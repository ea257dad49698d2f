# SPDX-License-Identifier: MIT
"""Run a function once per rank, each in a forked process, in one process group of torch.distributed.

The judge's ranks check, the worker's ranks call the submission. Imports the standard library and torch only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from scoring.ipc.template import build_data, describe_data

CPU, GPU = "gloo", "nccl"            # how ranks talk to each other; torch for ROCm calls RCCL nccl as well


class GroupError(Exception):
    """A rank left without an answer, or (``impossible``) no group can be had here."""

    def __init__(self, message: str, impossible: bool = False):
        super().__init__(message)
        self.impossible = impossible


def in_every_rank(count: int, function: Callable[[int], Any], gpus: bool = False) -> list[Any]:
    """``function(rank)`` of every rank, as JSON values, in the order of the ranks. ``gpus``: each has its own GPU.

    An exception of the function is its own to turn into an answer. Raises ``GroupError``.
    """
    if why := _no_loopback():
        raise GroupError(f"the ranks cannot talk to each other here: {why}", impossible=True)
    if gpus and torch.cuda.is_initialized():      # type: ignore[no-untyped-call]
        raise GroupError("this process has used a GPU, which its ranks cannot do after it", impossible=True)
    pipes, children = [], []
    with tempfile.TemporaryDirectory(prefix="warpwave-ranks-") as folder:
        try:
            for rank in range(count):
                read, write = os.pipe()
                pipes.append(read)
                with warnings.catch_warnings(action="ignore"):      # Python warns of forks beside threads
                    child = os.fork()
                if child == 0:
                    _run(function, rank, count, folder, write, gpus)
                os.close(write)
                children.append(child)
            answers = []
            for rank, pipe in enumerate(pipes):
                with os.fdopen(os.dup(pipe), "rb") as lines:
                    answers.append(_parsed(lines.read(), rank))
            return answers
        finally:
            for pipe in pipes:
                os.close(pipe)
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _run(
    function: Callable[[int], Any], rank: int, count: int, folder: str, write: int, gpus: bool,
) -> None:
    """The life of a child; it never returns."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)       # PR_SET_PDEATHSIG: it ends with its parent
        torch.set_num_threads(1)          # threads of OpenMP do not survive a fork
        os.environ.update(
            GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank),
            WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT="12356")
        distributed = torch.distributed
        device = of_rank(rank, gpus)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        distributed.init_process_group(
            GPU if gpus else CPU, init_method=f"file://{folder}/store", rank=rank, world_size=count,
            device_id=device if device.type == "cuda" else None)
        answer = json.dumps(function(rank)).encode()
        with os.fdopen(write, "wb") as out:
            out.write(answer)
        signal.pause()                     # others may still read from it; its parent ends it
    except BaseException:                  # noqa: BLE001 - a child must not run its parent's code
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def of_rank(rank: int, gpus: bool) -> torch.device:
    """Where a rank's tensors lie."""
    return torch.device("cuda", rank) if gpus else torch.device("cpu")


def moved(data: Any, device: torch.device, classes: Sequence[str] = ()) -> Any:
    """A copy of ``data`` whose tensors lie on ``device``; ``classes`` as for ``describe_data``.

    Raises ``UnsupportedData``.
    """
    template, tensors = describe_data(data, classes=classes)
    return build_data(template, {name: tensor.to(device) for name, tensor in tensors.items()})


def _parsed(answer: bytes, rank: int) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        raise GroupError(f"rank {rank} ended without an answer") from None


def _no_loopback() -> str:
    """Why a socket cannot listen on the loopback interface; "" if it can."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        return f"{error} (the bubblewrap sandbox gives them a network of their own)"
    return ""
