# SPDX-License-Identifier: MIT
"""The queue: which worker judges what, by leases; and what becomes of a submission, exactly once.

A lease is one row: whoever deletes it decides. A worker that finishes deletes its own lease and writes the result in
the same transaction. A lease that ran out is deleted by anybody: the submission is queued once more, then it fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import CursorResult, bindparam, delete, func, select, update
from sqlalchemy.orm import Session

from scoring.serve.storage import models
from scoring.serve.storage.models import CANCELLED, FAILED, QUEUED, RUNNING, Board, Lease, Result, Submission, Worker

ATTEMPTS = 2
GONE_AFTER = 4.0             # lease times without a sign of a worker: it is no longer shown

# Every poll asks these two: made once, since SQLAlchemy takes longer to make them than the database to answer.
_OPEN_BY_STATUS = (select(Submission.status, func.count())
                   .where(Submission.gpu == bindparam("gpu"), Submission.status.in_(models.OPEN))
                   .group_by(Submission.status))
_WORKERS_HERE = select(func.count()).where(Worker.gpu == bindparam("gpu"), Worker.seen >= bindparam("since"))


@dataclass(frozen=True)
class Taken:
    """A submission that a worker has leased: all that the judge has to know."""

    submission: int
    attempt: int
    worker: str
    board: str
    gpu: str
    mode: str
    file_name: str
    source: str
    problem: dict[str, Any]
    secret: str


@dataclass(frozen=True)
class Outcome:
    """What is written into ``result``, and the submission's last status."""

    status: str
    error: str = ""
    verdict: str = ""
    record: str = ""
    score: float | None = None
    low: float | None = None
    high: float | None = None
    evidence: str = ""
    emulated: bool = False
    protocol: str = ""
    workload: str = ""


def take(session: Session, gpus: Sequence[str], worker: str, lease_seconds: float) -> Taken | None:
    """Lease the oldest submission that waits for one of ``gpus``; None if there is none."""
    row = session.scalar(
        select(Submission).where(Submission.status == QUEUED, Submission.gpu.in_(gpus))
        .order_by(Submission.id).limit(1).with_for_update(skip_locked=True))
    if row is None:
        return None
    now = time.time()
    row.status, row.attempts, row.started, row.progress = RUNNING, row.attempts + 1, now, "starting"
    session.add(Lease(submission_id=row.id, worker=worker, attempt=row.attempts, expires=now + lease_seconds))
    board = session.get_one(Board, row.board_id)
    source = session.get_one(models.Source, row.source_digest)
    return Taken(row.id, row.attempts, worker, board.name, row.gpu, row.mode, row.file_name, source.content.decode(),
                 board.problem, board.secret)


def has_work(session: Session, gpus: Sequence[str]) -> bool:
    """Whether something waits for one of ``gpus``."""
    return session.scalar(
        select(Submission.id).where(Submission.status == QUEUED, Submission.gpu.in_(gpus)).limit(1)) is not None


def renew(session: Session, taken: Taken, lease_seconds: float, progress: str) -> bool:
    """Keep the lease and say what happens; False if it is no longer ours: somebody cancelled, or we were too late."""
    done = session.execute(
        update(Lease).where(*_lease_of(taken)).values(expires=time.time() + lease_seconds))
    if _count(done) == 0:
        return False
    session.execute(update(Submission).where(Submission.id == taken.submission).values(progress=progress[:300]))
    return True


def finish(session: Session, taken: Taken, outcome: Outcome) -> bool:
    """Write the result; False, and nothing written, if the lease is no longer ours."""
    if _count(session.execute(delete(Lease).where(*_lease_of(taken)))) == 0:
        return False
    _conclude(session, taken.submission, outcome)
    return True


def lose(session: Session, taken: Taken, why: str) -> bool:
    """The attempt ended without a record: queue it once more, then fail. False if the lease is no longer ours."""
    if _count(session.execute(delete(Lease).where(*_lease_of(taken)))) == 0:
        return False
    _again(session, taken.submission, taken.attempt, why)
    return True


def put_back(session: Session, taken: Taken) -> None:
    """The server stops: queue it again, as if it had not been taken."""
    if _count(session.execute(delete(Lease).where(*_lease_of(taken)))):
        session.execute(update(Submission).where(Submission.id == taken.submission).values(
            status=QUEUED, attempts=taken.attempt - 1, progress=""))


def release(session: Session, is_gone: Callable[[str], bool] = lambda worker: False) -> int:
    """Take back leases that ran out or whose worker ``is_gone``; how many."""
    now, count = time.time(), 0
    for lease in session.scalars(select(Lease).with_for_update(skip_locked=True)).all():
        if lease.expires >= now and not is_gone(lease.worker):
            continue
        _again(session, lease.submission_id, lease.attempt, "its worker ended or did not answer")
        session.delete(lease)
        count += 1
    return count


def cancel(session: Session, submission: Submission, why: str) -> bool:
    """End what waits or runs: its worker notices that the lease is gone. False if it was done already."""
    locked = session.scalar(select(Submission).where(Submission.id == submission.id).with_for_update())
    if locked is None or locked.status not in models.OPEN:
        return False
    session.execute(delete(Lease).where(Lease.submission_id == locked.id))
    _conclude(session, locked.id, Outcome(CANCELLED, why))
    return True


def announce(session: Session, worker: str, devices: Mapping[str, str], host: str) -> None:
    """Say that a worker is there; ``devices`` are their names by GPU label."""
    for gpu, device in devices.items():
        session.merge(Worker(name=f"{worker}|{gpu}", gpu=gpu, device=device, host=host, seen=time.time()))


def forget(session: Session, worker: str) -> None:
    session.execute(delete(Worker).where(Worker.name.startswith(f"{worker}|", autoescape=True)))


def workers(session: Session, lease_seconds: float) -> list[Worker]:
    """Workers that gave a sign of late."""
    since = time.time() - GONE_AFTER * lease_seconds
    return list(session.scalars(select(Worker).where(Worker.seen >= since).order_by(Worker.gpu, Worker.name)))


def state_of(session: Session, gpu: str, lease_seconds: float) -> dict[str, Any]:
    """The ``runner_queue`` object of one GPU."""
    counts = {str(status): int(count) for status, count in session.execute(_OPEN_BY_STATUS, {"gpu": gpu})}
    since = time.time() - GONE_AFTER * lease_seconds
    here = session.scalar(_WORKERS_HERE, {"gpu": gpu, "since": since}) or 0
    running = counts.get(RUNNING, 0)
    return {
        "runner": "warpwave", "gpu": gpu, "queued_jobs": counts.get(QUEUED, 0), "running_jobs": running,
        "available_runners": max(0, here - running), "status": "available" if here else "unavailable",
        "error": None if here else f"no worker for {gpu} runs at the moment",
    }


def _lease_of(taken: Taken) -> tuple[Any, ...]:
    return Lease.submission_id == taken.submission, Lease.worker == taken.worker, Lease.attempt == taken.attempt


def _again(session: Session, submission: int, attempt: int, why: str) -> None:
    if attempt >= ATTEMPTS:
        _conclude(session, submission, Outcome(FAILED, f"judged {attempt} times without a result: {why}"))
    else:
        session.execute(update(Submission).where(Submission.id == submission).values(
            status=QUEUED, progress=f"queued again: {why}"))


def _conclude(session: Session, submission: int, outcome: Outcome) -> None:
    session.execute(update(Submission).where(Submission.id == submission).values(status=outcome.status, progress=""))
    session.add(Result(
        submission_id=submission, finished=time.time(), verdict=outcome.verdict, error=outcome.error,
        record=outcome.record, score=outcome.score, low=outcome.low, high=outcome.high, evidence=outcome.evidence,
        emulated=outcome.emulated, protocol=outcome.protocol, workload=outcome.workload))


def _count(result: Any) -> int:
    return int(cast("CursorResult[Any]", result).rowcount)
