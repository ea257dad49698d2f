# SPDX-License-Identifier: MIT
"""Modelled times that no code under test can forge: a process of the judge's runs the recorded launches again.

A worker says what it launched, before the inputs exist that the launches then find. The process that runs them
(``worker.replay``) has the emulator and no code under test.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scoring.ipc import requests, wire
from scoring.ipc.arena import Arena
from scoring.ipc.emulator import entries
from scoring.judge.worker_process import WorkerFailure, WorkerProcess
from scoring.record import Status
from scoring.sandbox.policy import Policy

PROGRAM = ("-m", "scoring.worker.replay")
LARGEST = 256 << 20          # bytes of a record: most of it are code objects
TRIES = 4                    # processes; in each, system libraries lie at other addresses
NEEDED = "bounds"            # the check that keeps kernels within the memory they were given


@dataclass(frozen=True)
class Replayed:
    """What came of a record. ``refused`` says why it could not be run again, "" if it was; ``failed``: a kernel
    failed."""

    findings: tuple[dict[str, Any], ...] = ()
    counters: tuple[dict[str, Any], ...] = ()
    refused: str = ""
    failed: bool = False


class RecordFile:
    """A file in memory for one record. ``fd`` goes to a worker; ``read`` makes a private copy of what it wrote."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("warpwave record", os.MFD_CLOEXEC)

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self.fd)

    def read(self) -> bytes:
        """What lies in the file now, cut off behind ``LARGEST`` bytes."""
        content = bytearray()
        while len(content) <= LARGEST and (part := os.pread(self.fd, 1 << 20, len(content))):
            content += part
        return bytes(content)


class Replayer:
    """Runs records, in a process that is started with the first of them. Use as a context manager."""

    def __init__(self, emulator: requests.LoadEmulator, sandbox: Policy, until: float, seconds: float):
        """``seconds``: how long one record may take."""
        self._sandbox, self._until, self._seconds = sandbox, until, seconds
        self._process: WorkerProcess | None = None
        asked = emulator.options.get("checks", "none").replace("+", ",")
        checks = NEEDED if asked == "none" else f"{asked},{NEEDED}"
        options = {**emulator.options, "checks": checks, "counters": "1", "strict": "1", "services": "0"}
        self._emulator = replace(emulator, options=options)

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def replay(
        self, record: bytes, slot: Arena, tensors: Sequence[tuple[str, int, int]], workspace: Arena | None,
        workspace_bytes: int,
    ) -> Replayed:
        """Run a record on the judge's ``slot`` and ``workspace``. Raises ``WorkerFailure`` if that cannot be tried."""
        if len(record) > LARGEST:
            return Replayed(refused=f"the record of its launches has more than {LARGEST >> 20} MiB")
        assert slot.fd is not None
        question = requests.RunRecord(slot.block.numel(), workspace_bytes if workspace else 0, tuple(tensors))
        found = Replayed()
        for _try in range(TRIES):
            with RecordFile() as file:
                os.pwrite(file.fd, record, 0)
                fds = [file.fd, slot.fd, workspace.fd if workspace and workspace.fd is not None else slot.fd]
                found = self._ask(question, fds)
            if found.refused != requests.RunRecord.OCCUPIED:
                break
            self.close()
        return found

    def _ask(self, question: requests.RunRecord, fds: Sequence[int]) -> Replayed:
        try:
            if self._process is None or not self._process.alive:
                self._process = WorkerProcess(
                    program=PROGRAM, files=[Path(name) for name in self._emulator.files], sandbox=self._sandbox,
                    until=self._until, largest_answer=wire.MAX_COUNTED)
                self._process.request(self._emulator, self._seconds)
            reply = self._process.request(question, self._seconds, fds)
        except WorkerFailure as failure:
            if failure.status is Status.TIMEOUT:
                raise
            return Replayed(refused=f"its launches could not be run again: {failure}")
        refused = reply.get("refused", "")
        return Replayed(entries(reply, "findings"), entries(reply, "counters"), str(refused),
                        reply.get("failed") is True)
