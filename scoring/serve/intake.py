# SPDX-License-Identifier: MIT
"""What a submission must be to be accepted, and its row in the queue: durable before anybody is told."""

from __future__ import annotations

import hashlib
import time

from sqlalchemy import bindparam, func, insert, select
from sqlalchemy.orm import Session

from scoring.config.schema import Serve
from scoring.popcorn.directives import MAX_SUBMISSION_BYTES, not_text, server_directives
from scoring.popcorn.report import MODES
from scoring.serve import accounts
from scoring.serve.errors import Refused
from scoring.serve.kernel_file import suffix_for
from scoring.serve.storage import models
from scoring.serve.storage.models import Account, Board, Member, RateLimit, Setting, Source, Submission

HOUR = 3600.0

# Every submission asks these: made once, since SQLAlchemy takes longer to make them than the database to answer.
_KNOWN_SOURCE = select(Source.digest).where(Source.digest == bindparam("digest"))
_HOLD = select(Account.id).where(Account.id == bindparam("account")).with_for_update()
_STOPPED = select(Setting.name).where(Setting.name == "accepting", Setting.value == "no")
_MINE = select(func.count()).select_from(Submission).where(Submission.account_id == bindparam("account"))
_LIMITS = select(
    _STOPPED.scalar_subquery().is_not(None),
    _MINE.where(Submission.status.in_(models.OPEN)).scalar_subquery(),
    select(RateLimit.per_hour).where(RateLimit.board_id == bindparam("board"),
                                     RateLimit.category == bindparam("category")).scalar_subquery(),
    _MINE.where(Submission.board_id == bindparam("board"), (Submission.mode == "leaderboard") == bindparam("ranked"),
                Submission.created > bindparam("since")).scalar_subquery())


def find_board(session: Session, name: str, account: Account | None, organiser: bool = False) -> Board:
    """The board of that name. Raises ``Refused`` (404 also for a closed board that the account may not see)."""
    board = session.scalar(select(Board).where(Board.name == name.lower(), Board.active))
    if board is None or not (organiser or may_see(session, board, account)):
        raise Refused(404, "no such leaderboard")
    return board


def may_see(session: Session, board: Board, account: Account | None) -> bool:
    """Whether a board is public, or the account is invited."""
    if board.visibility == "public":
        return True
    return account is not None and session.get(Member, (account.id, board.id)) is not None


def accept(
    session: Session, settings: Serve, account: Account, board: Board, gpu: str, mode: str, file_name: str,
    content: bytes, organiser: bool = False,
) -> Submission:
    """Queue a file. ``organiser``: also after the deadline, beyond the limits, and while submissions are stopped.

    Raises ``Refused``.
    """
    if mode not in MODES:
        raise Refused(400, f"the mode is one of {', '.join(MODES)}")
    if gpu not in board.gpus:
        raise Refused(400, f"{board.name} is judged on {', '.join(board.gpus)}")
    _check_file(board, gpu, file_name, content)
    if not organiser:
        _check_permission(session, settings, account, board, mode)
    digest = hashlib.sha256(content).hexdigest()
    if session.scalar(_KNOWN_SOURCE, {"digest": digest}) is None:
        session.execute(insert(Source), {"digest": digest, "content": content})
    row = Submission(
        board_id=board.id, account_id=account.id, gpu=gpu, mode=mode, file_name=plain_name(file_name),
        source_digest=digest, created=time.time())
    session.add(row)
    session.flush()
    accounts.log(session, account.name, "submit", f"{row.id}: {board.name} {gpu} {mode}")
    return row


def plain_name(given: str) -> str:
    """A file name that any client can show: printable ASCII without folders, at most 100 letters."""
    last = given.replace("\\", "/").rpartition("/")[2]
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "_" for letter in last)
    return plain[-100:] or "submission.py"


def _check_file(board: Board, gpu: str, file_name: str, content: bytes) -> None:
    if not content.strip():
        raise Refused(400, "the file is empty")
    if len(content) > MAX_SUBMISSION_BYTES:
        raise Refused(413, f"the file has {len(content)} bytes; at most {MAX_SUBMISSION_BYTES} are accepted")
    if wrong := not_text(content):
        raise Refused(400, f"line {wrong[0]}: {wrong[1]}")
    if b"\0" in content:
        raise Refused(400, "the file has a zero byte")
    kinds = [".py", *filter(None, [suffix_for(gpu) if board.task.get("native") else None])]
    if not plain_name(file_name).endswith(tuple(kinds)):
        raise Refused(400, f"a submission to {board.name} on {gpu} is a file that ends in {' or '.join(kinds)}")
    directives = server_directives(content.decode())
    if directives.errors:
        line, what = directives.errors[0]
        raise Refused(400, f"line {line}: {what}")
    if directives.leaderboard not in (None, board.name):
        raise Refused(400, f"the file's header names the leaderboard {directives.leaderboard}, not {board.name}")


def _check_permission(session: Session, settings: Serve, account: Account, board: Board, mode: str) -> None:
    if account.banned:
        raise Refused(403, "this account is banned")
    if not account.active:
        raise Refused(403, "this account waits for an invite: popcorn-cli join CODE")
    # Whoever submits holds this row until the end, so that two requests at once cannot pass the limits together.
    session.execute(_HOLD, {"account": account.id})
    ranked = mode == "leaderboard"
    stopped, waiting, per_hour, recent = session.execute(_LIMITS, {
        "account": account.id, "board": board.id, "ranked": ranked, "since": time.time() - HOUR,
        "category": "leaderboard" if ranked else "test"}).one()
    if stopped:
        raise Refused(503, "submissions are stopped for the moment")
    if board.deadline is not None and time.time() > board.deadline:
        raise Refused(400, f"the deadline of {board.name} has passed")
    if waiting >= settings.queued_per_person:
        raise Refused(429, f"you have {waiting} submissions in the queue; wait for one to finish")
    if per_hour is None:
        per_hour = settings.submissions_per_hour
    if recent >= per_hour:
        raise Refused(429, f"{per_hour} submissions of this kind are accepted in an hour on {board.name}; try later")


def accepting(session: Session) -> bool:
    """Whether submissions are accepted at all."""
    switch = session.get(Setting, "accepting")
    return switch is None or switch.value != "no"
