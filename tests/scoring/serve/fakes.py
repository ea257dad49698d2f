# SPDX-License-Identifier: MIT
"""Executors that judge nothing: they make the record that a submission's text asks for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scoring.record import Case, CaseResult, Evidence, Facts, Mode, Record, Stats, Status
from scoring.serve.executor import JudgeDied, Lost
from scoring.serve.storage.database import Database
from scoring.serve.worker import Loop


def record(seconds: float | None = 2e-6, mode: str = "leaderboard", message: str = "", **changes: Any) -> Record:
    """A record that passed in ``seconds``; one that failed with ``message`` without them."""
    kind = Mode.BENCHMARK if mode == "profile" else Mode(mode)
    timed = seconds is not None and kind is not Mode.TEST
    status = Status.PASSED if seconds is not None else Status.INCORRECT_NUMERICAL
    cases = [CaseResult(Case({"n": 64}), status, seed=7, message=message)]
    if timed and seconds is not None:
        stats = Stats(9, seconds, seconds * 0.9, seconds * 1.1, seconds, seconds / 10, seconds / 30, seconds, seconds)
        cases.append(CaseResult(Case({"n": 128}, "benchmarks"), Status.PASSED, seed=8, stats=stats))
    made = Record(
        id="0" * 32, created="2026-01-01T00:00:00+00:00", problem="p", kernel="k@1", digest="d", backend="cpu",
        target="x86_64", gpu="CPU", device="a processor", mode=kind, status=status, message=message,
        score=seconds if timed else None, protocol="wall_cold/2" if timed else "", cases=tuple(cases),
        usage=({"name": "kernel<1>", "registers": 32, "spill_bytes": 0, "shared_bytes": 0},), facts=Facts())
    return replace(made, **changes)


class Fake:
    """Does what the submission's first line says: ``# SECONDS``, ``# fail TEXT``, ``# until FILE``, ``# die`` or so."""

    def __init__(self, config: str | None = None):
        self.judged: list[int] = []

    def run(self, job: Mapping[str, Any], tick: Callable[[str], bool]) -> dict[str, Any]:
        if not tick("one of two cases judged"):
            raise Lost
        self.judged.append(int(job["submission"]))
        word, _, rest = str(job["source"]).partition("\n")[0].removeprefix("#").strip().partition(" ")
        if word == "die":
            raise JudgeDied("the judge's process ended (signal 9)")
        if word in ("wait", "until"):
            end = time.monotonic() + (float(rest) if word == "wait" else 600)
            while time.monotonic() < end and not (word == "until" and Path(rest).exists()):
                if not tick("waiting"):
                    raise Lost
                time.sleep(0.02)
            word = "1e-6"
        if word == "crash":
            os._exit(9)
        if word == "broken":
            return {"event": "broken", "text": "the server could not judge this"}
        if word == "fail":
            return {"event": "done", "record": record(None, job["mode"], rest).to_json()}
        evidence = Evidence.MODELLED if job["gpu"] == "MI300" else Evidence.MEASURED
        made = record(float(word or 1e-6), job["mode"], evidence=evidence, gpu=job["gpu"])
        return {"event": "done", "record": made.to_json()}

    def close(self) -> None:
        pass


def loop(database: Database, *gpus: str, lease_seconds: float = 5.0, number: int = 0) -> Loop:
    return Loop(database, {gpu: f"a device for {gpu}" for gpu in gpus or ("CPU",)}, Fake(), lease_seconds, number)


def judge_all(database: Database, *gpus: str, number: int = 0) -> list[int]:
    """Judge until nothing waits; the submissions in the order they were judged."""
    worker = loop(database, *gpus, number=number)
    while worker.step():
        pass
    assert isinstance(worker.executor, Fake)
    return worker.executor.judged


