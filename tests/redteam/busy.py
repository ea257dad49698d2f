# SPDX-License-Identifier: MIT
"""What a calibration on a busy host is worth to whoever claims almost nothing.

    python -m tests.redteam.busy [PROCESSES [RUNS]]        # default: 6 and 5; 0 processes for an idle host

Calibrates the judge's clock beside processes that write memory, ends them, and judges an honest file and a liar on that
calibration. One line per run: what is subtracted per link and what the median would have been, in µs for each timed
case, and the liar's time as a share of the honest one's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scoring.judge import calibration
from scoring.judge.score import score
from scoring.record import Record
from tests.redteam.bench import job, seconds
from tests.redteam.entries import HERE

HONEST, LIAR = HERE / "baselines" / "matmul.py", HERE / "cheats" / "channel" / "man_in_the_middle.py"
WRITER = "data = bytearray(1 << 26)\nprint(flush=True)\nwhile True: data[:] = bytes(1 << 26)"


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes, each of which writes 64 MiB again and again."""
    writers = [subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        yield
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def judged(path: Path) -> Record:
    """The record of a file for matmul on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        return score(job("cpu", path, "matmul", Path(folder), {}))


def main() -> None:
    """Print a line for every run."""
    processes, runs = map(int, [*sys.argv[1:], *("6", "5")[len(sys.argv) - 1:]])
    for _run in range(runs):
        calibration.KNOWN = calibration.Known()
        with busy(processes):
            judged(HONEST)
        honest, liar = judged(HONEST), judged(LIAR)
        chains = [case.environment["chain"] for case in honest.cases if case.stats is not None]
        subtracted = " ".join(f"{chain['overhead'] * 1e6:.0f}" for chain in chains)
        median = " ".join(f"{(chain['overhead'] + chain['resolution']) * 1e6:.0f}" for chain in chains)
        print(f"subtracted {subtracted}   median {median}   "
              f"liar / honest {(seconds(liar) or 0.0) / (seconds(honest) or 1.0):.2f}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
