# SPDX-License-Identifier: MIT
"""What a run has judged so far, and where it is kept, so that whoever ends it early loses no more than one case."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator

from scoring.judge.job import Job
from scoring.judge.score import skeleton
from scoring.output.text import one_line
from scoring.record import CaseResult, Mode, Record, Status
from scoring.store.store import Store, StoreError

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
            yield f"error: not kept: record {record.id[:8]} ({one_line(what)}): {error}"

    def _add(self, record: Record) -> None:
        if self.store is None:
            return
        self._lost = [(lost, error) for lost, error in self._lost if lost.id != record.id]
        try:
            self.store.add(record)
        except StoreError as error:
            self._lost.append((record, error))
        self._written = time.monotonic()


def can_go_on(record: Record) -> bool:
    """Whether a later run may go on with what a record has: it is incomplete, and nothing failed. Never in leaderboard
    mode, where whoever ends a run must not choose what is drawn again."""
    return record.status is Status.INCOMPLETE and record.mode is not Mode.LEADERBOARD


def resumable(job: Job, known: Iterable[Record]) -> Record | None:
    """The first of the ``known`` records that ``job`` can go on with: the same is to be judged in the same place."""
    if job.device is None:
        return None
    wanted = skeleton(job)
    names = {case.name for case in job.cases if job.mode is not Mode.TEST or case.group == "tests"}
    alike = operator.attrgetter("problem", "kernel", "digest", "backend", "target", "gpu", "device", "mode", "evidence")

    def fits(record: Record) -> bool:
        judged = {result.case.name for result in record.cases}
        timed = [result for result in record.cases if result.stats is not None]
        beside = any(result.peers or result.environment.get("peer_notes") for result in timed)
        return (
            can_go_on(record) and alike(record) == alike(wanted) and job.seed in (None, record.seed)
            and judged | set(record.unjudged) == names - set(record.facts.cases_skipped)
            and record.facts.checks == wanted.facts.checks
            and all(record.system.get(fact) == wanted.system.get(fact) for fact in ("driver", "machine"))
            and (not timed or beside == bool(job.peers))
            and all(_raced(result) == {(rival.name, rival.digest) for rival in job.rivals} for result in timed))

    return next(filter(fits, known), None)


def _raced(result: CaseResult) -> set[tuple[str, str]]:
    """Names and contents of the rivals of a timed case."""
    race = result.race
    return {(rival.name, rival.digest) for rival in race.rivals if not rival.peer} if race is not None else set()
