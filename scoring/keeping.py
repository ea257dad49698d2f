# SPDX-License-Identifier: MIT
"""What a run has judged so far, and where it is kept, so that whoever ends it early loses no more than one case."""

from __future__ import annotations

import time
from collections.abc import Iterator

from scoring import units
from scoring.judge import Job, resumable
from scoring.model import Record
from scoring.store import Store, StoreError

SECONDS_BETWEEN = 1.0         # writes of one unfinished record: a case of a test takes milliseconds


class Keeper:
    """Collects the records of a run and puts them into the store, if there is one; of the kernel at hand what is judged
    so far, too. What cannot be kept costs nobody the rest of the run.

    ``resume``: go on with what the store has of runs that ended early.
    """

    def __init__(self, store: Store | None, resume: bool = False):
        self.store = store
        self.resume = resume
        self.records: list[Record] = []
        self.partial: Record | None = None       # of the kernel that is being judged
        self._lost: list[tuple[Record, StoreError]] = []
        self._written = float("-inf")

    @property
    def lost(self) -> bool:
        """Whether a record could not be kept."""
        return bool(self._lost)

    @property
    def so_far(self) -> list[Record]:
        """All records, that of the kernel at hand included."""
        return [*self.records, *([self.partial] if self.partial is not None else [])]

    def prepare(self) -> None:
        """Raises ``StoreError`` now where nothing could be kept later."""
        if self.store is not None:
            self.store.prepare()

    def earlier(self, job: Job) -> Record | None:
        """The newest record that ``job`` can go on with, if that is wanted. Raises ``StoreError``."""
        if self.store is None or not self.resume:
            return None
        return resumable(job, self.store.records(problem=job.problem.name, mode=job.mode))

    def checkpoint(self, record: Record) -> None:
        """``record`` says what of a kernel is judged so far."""
        self.partial = record
        if time.monotonic() - self._written >= SECONDS_BETWEEN:
            self._add(record)

    def take(self, record: Record) -> None:
        """``record`` is all there is to say about its kernel."""
        self.records.append(record)
        self.partial = None
        self._add(record)

    def flush(self) -> None:
        """The run was ended: keep the newest, whatever it was doing just then."""
        for record in self.so_far[-1:]:
            self._add(record)

    def losses(self) -> Iterator[str]:
        """A line for every record that was not kept, with the reason."""
        for record, error in self._lost:
            what = f"{record.problem} {record.kernel} on {record.gpu}: {record.status}"
            yield f"error: not kept: record {record.id[:8]} ({units.one_line(what)}): {error}"

    def _add(self, record: Record) -> None:
        if self.store is None:
            return
        self._lost = [(lost, error) for lost, error in self._lost if lost.id != record.id]
        try:
            self.store.add(record)
        except StoreError as error:
            self._lost.append((record, error))
        self._written = time.monotonic()
