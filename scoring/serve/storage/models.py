# SPDX-License-Identifier: MIT
"""Tables of the contest's database.

Moments are seconds since 1970 (UTC). Tokens are kept as SHA-256 digests. A submission has at most one row of ``lease``
while it runs, and one row of ``result`` when it is done: their primary keys say so.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, Double, ForeignKey, Index, LargeBinary, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMES = {"ix": "ix_%(table_name)s_%(column_0_name)s", "uq": "uq_%(table_name)s_%(column_0_name)s",
         "fk": "fk_%(table_name)s_%(column_0_name)s", "pk": "pk_%(table_name)s"}

QUEUED, RUNNING = "queued", "running"
SUCCEEDED, FAILED, TIMED_OUT, CANCELLED = "succeeded", "failed", "timed_out", "cancelled"
OPEN = (QUEUED, RUNNING)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map: ClassVar = {float: Double, dict[str, Any]: JSON, list[str]: JSON}


class Account(Base):
    """Somebody who submits. ``active``: may submit; an account that waits for an invite may not."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    created: Mapped[float]
    active: Mapped[bool]
    banned: Mapped[bool] = mapped_column(default=False)


class Token(Base):
    """What somebody shows to be known: ``kind`` cli (no end), web or admin (a browser's session)."""

    __tablename__ = "token"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(8))
    created: Mapped[float]
    expires: Mapped[float | None]


class Board(Base):
    """A leaderboard. ``task`` is what its readers may know. ``secret`` decides the inputs of ranked runs and never
    leaves the server."""

    __tablename__ = "board"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    problem: Mapped[dict[str, Any]]          # what the judge needs: folder, tests, benchmarks
    description: Mapped[str] = mapped_column(Text)
    gpus: Mapped[list[str]]
    task: Mapped[dict[str, Any]]
    deadline: Mapped[float | None]
    visibility: Mapped[str] = mapped_column(String(8), default="public")
    active: Mapped[bool] = mapped_column(default=True)
    secret: Mapped[str] = mapped_column(String(64))
    created: Mapped[float]


class Member(Base):
    """Who may see and enter a closed board."""

    __tablename__ = "member"
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"), primary_key=True)
    board_id: Mapped[int] = mapped_column(ForeignKey("board.id", ondelete="CASCADE"), primary_key=True)


class Invite(Base):
    """A code that lets one account in, and onto ``boards``."""

    __tablename__ = "invite"
    code: Mapped[str] = mapped_column(String(64), primary_key=True)
    boards: Mapped[list[str]]
    created: Mapped[float]
    used_by: Mapped[int | None] = mapped_column(ForeignKey("account.id", ondelete="SET NULL"))
    used_at: Mapped[float | None]


class RateLimit(Base):
    """Submissions per person and hour on a board; ``category`` is leaderboard, or test for all other modes."""

    __tablename__ = "rate_limit"
    board_id: Mapped[int] = mapped_column(ForeignKey("board.id", ondelete="CASCADE"), primary_key=True)
    category: Mapped[str] = mapped_column(String(16), primary_key=True)
    per_hour: Mapped[int]


class Source(Base):
    """A submitted file, once for all submissions of the same bytes."""

    __tablename__ = "source"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class Submission(Base):
    """One file handed in for one board and GPU. ``attempts`` counts how often a worker took it."""

    __tablename__ = "submission"
    id: Mapped[int] = mapped_column(primary_key=True)
    board_id: Mapped[int] = mapped_column(ForeignKey("board.id", ondelete="CASCADE"))
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id", ondelete="CASCADE"))
    gpu: Mapped[str] = mapped_column(String(32))
    mode: Mapped[str] = mapped_column(String(16))
    file_name: Mapped[str] = mapped_column(String(128))
    source_digest: Mapped[str] = mapped_column(ForeignKey("source.digest"), index=True)
    created: Mapped[float]
    status: Mapped[str] = mapped_column(String(16), default=QUEUED)
    attempts: Mapped[int] = mapped_column(default=0)
    started: Mapped[float | None]
    progress: Mapped[str] = mapped_column(Text, default="")
    __table_args__ = (Index("ix_submission_queue", "status", "gpu", "id"),
                      Index("ix_submission_account", "account_id", "created"),
                      Index("ix_submission_board", "board_id", "gpu"))


class Lease(Base):
    """A worker's right to judge a submission until ``expires``. ``attempt`` tells it from an earlier one."""

    __tablename__ = "lease"
    submission_id: Mapped[int] = mapped_column(ForeignKey("submission.id", ondelete="CASCADE"), primary_key=True)
    worker: Mapped[str] = mapped_column(String(128), index=True)
    attempt: Mapped[int]
    expires: Mapped[float] = mapped_column(index=True)


class Result(Base):
    """What became of a submission. ``record`` is the judge's record as JSON text, "" if there is none.

    ``score``, ``low`` and ``high`` are seconds. Scores compare where evidence, protocol and workload are equal.
    """

    __tablename__ = "result"
    submission_id: Mapped[int] = mapped_column(ForeignKey("submission.id", ondelete="CASCADE"), primary_key=True)
    finished: Mapped[float]
    verdict: Mapped[str] = mapped_column(String(24), default="")
    error: Mapped[str] = mapped_column(Text, default="")
    score: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    evidence: Mapped[str] = mapped_column(String(16), default="")
    emulated: Mapped[bool] = mapped_column(default=False)
    protocol: Mapped[str] = mapped_column(String(32), default="")
    workload: Mapped[str] = mapped_column(String(16), default="")
    record: Mapped[str] = mapped_column(Text, default="")


class Worker(Base):
    """A process that judges on one device; gone when ``seen`` is old."""

    __tablename__ = "worker"
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    gpu: Mapped[str] = mapped_column(String(32), index=True)
    device: Mapped[str] = mapped_column(Text)
    host: Mapped[str] = mapped_column(Text)
    seen: Mapped[float]


class Audit(Base):
    """Who did what, for the organiser. No token and no secret is ever written here."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(index=True)
    actor: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(String(64))
    detail: Mapped[str] = mapped_column(Text)


class Setting(Base):
    """A switch of the organiser: ``accepting`` is "no" while submissions are refused."""

    __tablename__ = "setting"
    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    value: Mapped[str] = mapped_column(Text)
