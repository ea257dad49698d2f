# SPDX-License-Identifier: MIT
"""Who leads: each person's best ranked score on a board and GPU, and how it came about over time.

Scores compare only where evidence, timing protocol and cases are the same: each such group has ranks of its own, and
the group that was added to last stands first.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from scoring.serve.storage.models import SUCCEEDED, Account, Board, Result, Submission


@dataclass(frozen=True)
class Standing:
    """One scored submission; ``rank`` is 0 where it is not its person's best."""

    rank: int
    submission: int
    account: int
    name: str
    file_name: str
    created: float
    score: float
    low: float | None
    high: float | None
    evidence: str
    emulated: bool
    protocol: str
    workload: str

    @property
    def group(self) -> tuple[str, bool, str, str]:
        """What must be equal for two scores to compare."""
        return self.evidence, self.emulated, self.protocol, self.workload


_GROUP = (Result.evidence, Result.emulated, Result.protocol, Result.workload)
_SCORED = (select(Submission.id, Account.id, Account.name, Submission.file_name, Submission.created, Result.score,
                  Result.low, Result.high, *_GROUP)
           .join(Account, Account.id == Submission.account_id).join(Result, Result.submission_id == Submission.id))


def scored(session: Session, board: Board, gpu: str, account: int | None = None) -> list[Standing]:
    """Every ranked score, oldest first. Banned people are left out."""
    where = _counts(board, gpu)
    if account is not None:
        where = and_(where, Account.id == account)
    rows = session.execute(_SCORED.where(where).order_by(Submission.id))
    return [Standing(0, *cast("tuple[Any, ...]", row)) for row in rows]


def leading(session: Session, board: Board, gpu: str) -> list[list[Standing]]:
    """Best of each person, best first, one list per group of comparable scores; of equal scores the older leads.

    The database finds them, so that the ranks of a board with many submissions are as quickly read as of one with few.
    """
    place = func.row_number().over(partition_by=(Account.id, *_GROUP), order_by=(Result.score, Submission.id))
    newest = func.max(Submission.id).over(partition_by=_GROUP)
    every = _SCORED.add_columns(place.label("place"), newest.label("newest")).where(_counts(board, gpu)).subquery()
    *columns, place_of, newest_of = every.c
    rows = session.execute(
        select(*columns).where(place_of == 1).order_by(newest_of.desc(), every.c.score, columns[0]))
    group = operator.itemgetter(slice(-len(_GROUP), None))
    return [[Standing(rank, *cast("tuple[Any, ...]", row)) for rank, row in enumerate(group_of, 1)]
            for _, group_of in itertools.groupby(rows, group)]


def _counts(board: Board, gpu: str) -> ColumnElement[bool]:
    return and_(Submission.board_id == board.id, Submission.gpu == gpu, Submission.mode == "leaderboard",
                Submission.status == SUCCEEDED, Result.score.is_not(None), Account.banned.is_(False))


def records_over_time(found: Sequence[Standing]) -> list[Standing]:
    """Those of one group that were the best when they came, oldest first."""
    best, kept = float("inf"), []
    for entry in found:
        if entry.score < best:
            best = entry.score
            kept.append(entry)
    return kept


def count(session: Session, board: Board, gpu: str, account: int | None = None) -> int:
    """Submissions on a board and GPU, of one account if given."""
    query = select(func.count()).select_from(Submission).where(
        Submission.board_id == board.id, Submission.gpu == gpu)
    if account is not None:
        query = query.where(Submission.account_id == account)
    return session.scalar(query) or 0
