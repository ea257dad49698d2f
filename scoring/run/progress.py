# SPDX-License-Identifier: MIT
"""Progress on stderr: a live line on a terminal, one plain line per stage in a log if asked for, else nothing.

stdout is the result and is never touched. rich is imported when a live line starts, not before.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self, TextIO

from scoring.output.text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

QUIET_SECONDS = 10.0           # of a log without a line, after which the next detail is one


class Progress:
    """Says what is going on. Use as a context manager, then ``stage`` and ``advance``.

    ``total``: steps to come, None if unknown. ``quiet``: nothing at all (for ``--json``). ``verbose``: a line per stage
    where a live line is not possible, which is off a terminal, in CI and under ``TERM=dumb``; of a single step also one
    per case.
    """

    def __init__(
        self, total: int | None = None, *, quiet: bool = False, verbose: bool = False, file: TextIO | None = None,
        environ: Mapping[str, str] = os.environ,
    ):
        self.total = total
        self.done = 0
        self._said = time.monotonic()          # when a log got its newest line
        self._file = sys.stderr if file is None else file
        # A machine that runs a bundle has no rich.
        self._live_wanted = not quiet and is_live(self._file, environ) and find_spec("rich") is not None
        self._plain = verbose and not quiet and not self._live_wanted
        self._live: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._live_wanted:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as RichProgress

            counted = (BarColumn(bar_width=24), MofNCompleteColumn()) if self.total else ()
            self._live = RichProgress(
                SpinnerColumn(), TextColumn("{task.description}", markup=False), *counted, TimeElapsedColumn(),
                console=Console(file=self._file), transient=True, redirect_stdout=False, redirect_stderr=False)
            self._task = self._live.add_task("", total=self.total)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def stage(self, text: str) -> None:
        """What happens from now on. ``text`` may be anything: it is made printable."""
        if self._live is not None and self._task is not None:
            self._live.update(self._task, description=one_line(text))
        elif self._plain:
            count = f"[{self.done + 1}/{self.total}] " if self.total else ""
            self._write(f"{count}{one_line(text)}")

    def detail(self, text: str) -> None:
        """Something finer than a stage: shown on a live line, and in a log that would else be silent for long."""
        if self._live is not None:
            self.stage(text)
        elif self._plain and (self.total == 1 or time.monotonic() - self._said >= QUIET_SECONDS):
            self._write(f"  {one_line(text)}")

    def note(self, text: str) -> None:
        """Something on the way to the next stage: a line of its own in a log, without a count."""
        if self._plain:
            self._write(one_line(text))
        elif self._live is not None:
            self.stage(text)

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()
        self._said = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        """``steps`` of ``total`` are done."""
        self.done += steps
        if self._live is not None and self._task is not None:
            self._live.advance(self._task, steps)


def is_live(file: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a line that rewrites itself makes sense: a terminal that can, outside CI."""
    return file.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")
