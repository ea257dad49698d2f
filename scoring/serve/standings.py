# SPDX-License-Identifier: MIT
"""Who leads: each person's best ranked score on a board and GPU, and how it came about over time.

Scores compare only where evidence, timing protocol and cases are the same: each such group has ranks of its own, and
the group that was added to last stands first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import func, select
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


def scored(session: Session, board: Board, gpu: str, account: int | None = None) -> list[Standing]:
    """Every ranked score, oldest first. Banned people are left out."""
    where = [Submission.board_id == board.id, Submission.gpu == gpu, Submission.mode == "leaderboard",
             Submission.status == SUCCEEDED, Result.score.is_not(None), Account.banned.is_(False)]
    if account is not None:
        where.append(Account.id == account)
    rows = session.execute(
        select(Submission.id, Account.id, Account.name, Submission.file_name, Submission.created, Result.score,
               Result.low, Result.high, Result.evidence, Result.emulated, Result.protocol, Result.workload)
        .join(Account, Account.id == Submission.account_id).join(Result, Result.submission_id == Submission.id)
        .where(*where).order_by(Submission.id))
    return [Standing(0, *cast("tuple[Any, ...]", row)) for row in rows]


def ranked(found: Sequence[Standing]) -> list[list[Standing]]:
    """Best of each person, best first, one list per group of comparable scores; of equal scores the older leads."""
    groups: dict[tuple[str, bool, str, str], dict[int, Standing]] = {}
    latest: dict[tuple[str, bool, str, str], int] = {}
    for entry in found:
        best = groups.setdefault(entry.group, {})
        latest[entry.group] = max(latest.get(entry.group, 0), entry.submission)
        if entry.account not in best or entry.score < best[entry.account].score:
            best[entry.account] = entry
    lists = []
    for group in sorted(groups, key=lambda key: -latest[key]):
        order = sorted(groups[group].values(), key=lambda entry: (entry.score, entry.submission))
        lists.append([Standing(**{**vars(entry), "rank": place}) for place, entry in enumerate(order, 1)])
    return lists


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
