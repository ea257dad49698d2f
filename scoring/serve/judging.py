# SPDX-License-Identifier: MIT
"""The judge of a device: a process that takes one job per line, runs the one judge, and answers in lines.

``python -m scoring.serve.judging FD`` reads jobs from stdin and writes events to the descriptor FD; what problems
print goes to stderr. It ends with whoever started it.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import hmac
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import backends
from backends.errors import BackendError
from scoring.config.load import Config, load_config
from scoring.judge.job import Listener
from scoring.judge.score import score
from scoring.problem import ProblemError
from scoring.record import Mode, Record
from scoring.run import targets
from scoring.run.job import make_submission_job
from scoring.sandbox import cleanup
from scoring.serve.catalogue import load_problem
from scoring.serve.kernel_file import KERNEL_SUFFIXES, kernel_job

PROFILE = "profile"


def seed_of(secret: str, submission: int) -> int:
    """The seed of a ranked run: nobody can guess it, and the organiser can compute it again. Below 2^31."""
    text = hmac.new(secret.encode(), f"ranked run of {submission}".encode(), hashlib.sha256).digest()
    return int.from_bytes(text[:4]) >> 1


def sealed(record: Record) -> Record:
    """A record without any of its seeds, nor the command that names them."""
    return replace(
        record, seed=0, cases=tuple(replace(result, seed=0, race=None) for result in record.cases),
        facts=replace(record.facts, repeat=()))


def judge(config: Config, given: Mapping[str, Any], listener: Listener) -> Record:
    """The record of a submission: ``given`` is a ``queue.Taken`` as a mapping.

    Raises ``ProblemError``, ``BackendError`` and others where the problem or the device fails, not the submission.
    """
    problem = load_problem(given["problem"])
    mode = Mode.BENCHMARK if given["mode"] == PROFILE else Mode(given["mode"])
    place = _place(config, given["gpu"])
    with tempfile.TemporaryDirectory(prefix=cleanup.folder_prefix()) as folder:
        path = Path(folder) / given["file_name"]
        path.write_text(given["source"], encoding="utf-8")
        staging = Path(folder) / "staging"
        if path.suffix in KERNEL_SUFFIXES:
            job = kernel_job(config, problem, place, path, staging, mode)
            if isinstance(job, Record):
                return job
        else:
            job = make_submission_job(config, problem, place, path, staging, mode, problem.cases, with_peers=False)
        if mode is not Mode.LEADERBOARD:
            return score(job, listener)
        return sealed(score(replace(job, seed=seed_of(given["secret"], given["submission"])), listener))


def _log(text: str) -> None:
    sys.stderr.write(f"judge: {text}\n")


@functools.cache
def _found(name: str) -> Any:
    backend = backends.get(name)
    return backend.prepare(backend.probe(), _log)


def _place(config: Config, gpu: str) -> targets.Place:
    for name in config.settings.backends:
        backend = backends.get(name)
        if not any(gpu.lower() == target.gpu.lower() for target in backend.targets()):
            continue
        place = targets.places(config, backend, _found(name), gpu)[0]
        if place.device is not None:
            return place
    raise ProblemError(f"no device for {gpu} here; `python -m scoring doctor` shows what there is")


class _Telling(Listener):
    def __init__(self, tell: Callable[[dict[str, Any]], None]):
        self._tell = tell

    def progress(self, text: str) -> None:
        self._tell({"event": "progress", "text": text})

    def judged(self, record: Record) -> None:
        done = len(record.cases)
        self._tell({"event": "progress", "text": f"{done} of {done + len(record.unjudged)} cases judged"})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scoring.serve.judging")
    parser.add_argument("descriptor", type=int)
    parser.add_argument("--config")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)      # 1 = PR_SET_PDEATHSIG: no judge outlives its worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # a terminal's Ctrl-C is for whoever started us
    config = load_config({"peers": False}, options.config)
    backends.use_cache(config.cache)
    backends.use_emulator(config.settings.emulate)
    os.set_inheritable(options.descriptor, False)
    with open(options.descriptor, "w", encoding="ascii") as events:      # noqa: PTH123 - a descriptor, not a path
        def tell(event: dict[str, Any]) -> None:
            events.write(json.dumps(event) + "\n")
            events.flush()

        import torch  # noqa: F401 - loaded before the first job, which it would slow down

        tell({"event": "ready"})
        for line in sys.stdin:
            given = json.loads(line)
            try:
                tell({"event": "done", "record": judge(config, given, _Telling(tell)).to_json()})
            except (ProblemError, BackendError, OSError, ValueError) as error:
                _log(f"submission {given['submission']}: {error}")
                tell({"event": "broken", "text": "the server could not judge this: the organiser finds why in its log"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
