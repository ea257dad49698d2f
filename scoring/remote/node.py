# SPDX-License-Identifier: MIT
"""What a node of a Ray cluster does with a bundle. This file is sent there, so it needs the standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def judge(packed: bytes, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run a bundle (``scoring.remote.bundle.archive``): each ``record`` as it comes, each ``line`` of the log, then the
    ``exit`` code. With ``arguments`` (``probe``): what ``run.py`` prints for them, as ``answer``."""
    with tempfile.TemporaryDirectory(prefix="warpwave-ray-") as name:
        folder = Path(name)
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}     # Ray's: 1
        out, log, records = folder / "out.txt", folder / "said.txt", folder / "records.jsonl"
        with out.open("wb") as stdout, log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "run.py", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, env=environment, start_new_session=True,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))      # PR_SET_PDEATHSIG
        places = {records: 0, log: 0}
        try:
            while True:
                ended = process.poll() is not None
                for path, key in ((records, "record"), (log, "line")):
                    for line in _whole_lines(path, places):
                        yield {key: json.loads(line) if key == "record" else line.decode(errors="replace")}
                if ended:
                    break
                time.sleep(0.2)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        yield {"exit": process.returncode, "answer": out.read_text(errors="replace")}


def _whole_lines(path: Path, places: dict[Path, int]) -> list[bytes]:
    """The lines that were written since the last call."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(places[path])
        text = file.read().rpartition(b"\n")
    places[path] += len(text[0]) + len(text[1])
    return text[0].split(b"\n") if text[1] else []
