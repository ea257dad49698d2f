# SPDX-License-Identifier: MIT
"""The organiser's part: ``Authorization: Bearer TOKEN`` with the token the server was started with."""

from __future__ import annotations

import datetime
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from scoring.serve import accounts, catalogue, queue
from scoring.serve.api import submitting, views
from scoring.serve.api.reading import LARGEST, Limit, Name, Number, Offset
from scoring.serve.api.service import Bearer, CliId, check_organiser, service_of, who
from scoring.serve.api.submitting import ModeName, Upload
from scoring.serve.errors import Refused
from scoring.serve.intake import find_board
from scoring.serve.storage.models import OPEN, Account, Audit, Board, Invite, RateLimit, Result, Setting, Submission


def organiser(request: Request, authorization: Bearer = None) -> None:
    check_organiser(service_of(request), request, authorization)


router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[Depends(organiser)])
ACTOR = "organiser"


class Directory(BaseModel):
    directory: str = Field(min_length=1, max_length=200)


class Invites(BaseModel):
    leaderboards: list[str] = Field(max_length=100)
    count: int = Field(default=1, ge=1, le=1000)


class Visibility(BaseModel):
    visibility: Literal["public", "closed"]


class Deadline(BaseModel):
    """UTC, unless it says otherwise; null for none."""

    deadline: datetime.datetime | None


class Limits(BaseModel):
    mode_category: Literal["test", "leaderboard"]
    max_submissions_per_hour: int = Field(ge=0, le=1_000_000)


@router.post("/start")
def start(request: Request) -> dict[str, Any]:
    """Accept submissions."""
    with service_of(request).database.write() as session:
        return switch(session, True)


@router.post("/stop")
def stop(request: Request) -> dict[str, Any]:
    """Refuse submissions; what is queued is judged all the same."""
    with service_of(request).database.write() as session:
        return switch(session, False)


@router.get("/stats")
def stats(request: Request, last_day_only: bool = False) -> dict[str, Any]:
    """Counts of submissions by state, mode and GPU, and of people."""
    with service_of(request).database.read() as session:
        since = time.time() - 86400 if last_day_only else 0
        counted = {}
        for name, column in (("status", Submission.status), ("mode", Submission.mode), ("gpu", Submission.gpu)):
            rows = session.execute(
                select(column, func.count()).where(Submission.created >= since).group_by(column))
            counted[name] = {str(key): int(number) for key, number in rows}
        return {"submissions": sum(counted["status"].values()), "by": counted,
                "users": session.scalar(select(func.count()).select_from(Account)) or 0}


@router.post("/leaderboards")
def add_leaderboard(request: Request, body: Directory) -> dict[str, Any]:
    """Show a board of the settings again. A folder's name in a request opens no folder."""
    service = service_of(request)
    wanted = body.directory.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    for entry in service.reload() if service.reload is not None else ():
        if entry.name == wanted or entry.problem.name.lower().replace("_", "-") == wanted:
            with service.database.write() as session:
                catalogue.sync_one(session, entry)
                accounts.log(session, ACTOR, "add-leaderboard", entry.name)
                return {"status": "ok", "leaderboard": entry.name}
    raise Refused(404, f"the settings name no problem {wanted!r}: add it to serve.problems first")


@router.delete("/leaderboards/{leaderboard}")
def delete_leaderboard(request: Request, leaderboard: Name, force: bool = False) -> dict[str, Any]:
    """Hide a board; with ``force`` delete it and all its submissions."""
    with service_of(request).database.write() as session:
        board = find_board(session, leaderboard, None, organiser=True)
        number = session.scalar(
            select(func.count()).select_from(Submission).where(Submission.board_id == board.id)) or 0
        if force:
            for row in session.scalars(select(Submission).where(Submission.board_id == board.id)):
                submitting.erase(session, row, ACTOR)
            session.execute(delete(Board).where(Board.id == board.id))
        elif number:
            raise Refused(409, f"{board.name} has {number} submissions; force=true deletes them, too")
        else:
            board.active = False
        accounts.log(session, ACTOR, "delete-leaderboard", f"{board.name}{' by force' if force else ''}")
        return {"status": "ok", "leaderboard": board.name, "force": force}


@router.get("/leaderboards/{leaderboard}/submissions")
def board_submissions(
    request: Request, leaderboard: Name, limit: Limit = 100, offset: Offset = 0,
) -> list[dict[str, Any]]:
    """Submissions to a board by everybody, newest first."""
    with service_of(request).database.read() as session:
        board = find_board(session, leaderboard, None, organiser=True)
        rows = session.execute(
            select(Submission, Result, Account).outerjoin(Result, Result.submission_id == Submission.id)
            .join(Account, Account.id == Submission.account_id).where(Submission.board_id == board.id)
            .order_by(Submission.id.desc()).limit(limit).offset(offset))
        return [{**views.listed(row, result, board.name), "user_id": str(account.id), "user_name": account.name}
                for row, result, account in rows]


@router.get("/submissions/{number}")
def submission(request: Request, number: Number) -> dict[str, Any]:
    """Anybody's submission."""
    service = service_of(request)
    with service.database.read() as session:
        return views.detailed(session, number, None, service.settings.lease_seconds)


@router.delete("/submissions/{number}")
def delete_submission(request: Request, number: Number) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        submitting.erase(session, _submission(session, number), ACTOR)
        return {"status": "ok", "submission_id": number}


@router.delete("/submissions")
def delete_submissions(
    request: Request, user_name: Annotated[str, Query(max_length=64)],
    leaderboard_id: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
) -> dict[str, Any]:
    """All submissions of one person, on one board if given."""
    with service_of(request).database.write() as session:
        account = accounts.find(session, user_name)
        query = select(Submission).where(Submission.account_id == account.id)
        if leaderboard_id is not None:
            query = query.where(Submission.board_id == leaderboard_id)
        rows = session.scalars(query).all()
        for row in rows:
            submitting.erase(session, row, ACTOR)
        return {"status": "ok", "deleted": len(rows)}


@router.post("/submission/{leaderboard}/{gpu}/{mode}", status_code=202)
def submit(
    request: Request, leaderboard: Name, gpu: Name, mode: ModeName, file: Upload, cli_id: CliId = None,
) -> dict[str, Any]:
    """Submit for the account of the user header, also after the deadline and beyond the limits."""
    service = service_of(request)
    with service.database.write() as session:
        account = who(session, cli_id)
        row = submitting.take_in(service, session, account, leaderboard, gpu, mode, file, organiser=True)
    with service.database.read() as session:
        return submitting.accepted(service, session, row)


@router.post("/update-problems")
def update_problems(request: Request) -> dict[str, Any]:
    """Read the settings' problems again. (A repository that the request names is not fetched.)"""
    service = service_of(request)
    if service.reload is None:
        raise Refused(409, "this server has no settings to read again")
    found = list(service.reload())
    with service.database.write() as session:
        catalogue.sync(session, found)
        accounts.log(session, ACTOR, "update-problems", ", ".join(entry.name for entry in found))
    return {"status": "ok", "leaderboards": [entry.name for entry in found]}


@router.post("/invites")
def invites(request: Request, body: Invites) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        codes = accounts.create_invites(session, body.leaderboards, body.count)
        accounts.log(session, ACTOR, "invite", f"{body.count} for {', '.join(body.leaderboards) or 'no closed board'}")
        return {"status": "ok", "codes": codes, "leaderboards": body.leaderboards}


@router.get("/leaderboards/{leaderboard}/invites")
def list_invites(request: Request, leaderboard: Name) -> dict[str, Any]:
    with service_of(request).database.read() as session:
        board = find_board(session, leaderboard, None, organiser=True)
        rows = session.scalars(select(Invite).order_by(Invite.created))
        return {"status": "ok", "invites": [
            {"code": row.code, "leaderboards": row.boards, "created_at": views.moment(row.created),
             "used_by": str(row.used_by) if row.used_by is not None else None, "used_at": views.moment(row.used_at)}
            for row in rows if board.name in row.boards]}


@router.delete("/invites/{code}")
def revoke_invite(request: Request, code: Name) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        row = session.get(Invite, code)
        if row is None:
            raise Refused(404, "no such invite")
        session.delete(row)
        accounts.log(session, ACTOR, "revoke-invite", "")
        return {"status": "ok"}


@router.post("/leaderboards/{leaderboard}/visibility")
def visibility(request: Request, leaderboard: Name, body: Visibility) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        board = find_board(session, leaderboard, None, organiser=True)
        board.visibility = body.visibility
        accounts.log(session, ACTOR, "visibility", f"{board.name}: {body.visibility}")
        return {"status": "ok", "leaderboard": board.name, "visibility": board.visibility}


@router.post("/leaderboards/{leaderboard}/deadline")
def deadline(request: Request, leaderboard: Name, body: Deadline) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        board = set_deadline(session, leaderboard, body.deadline)
        return {"status": "ok", "leaderboard": board.name, "deadline": views.moment(board.deadline)}


@router.put("/leaderboards/{leaderboard}/rate-limits")
def set_limit(request: Request, leaderboard: Name, body: Limits) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        board = find_board(session, leaderboard, None, organiser=True)
        session.merge(RateLimit(board_id=board.id, category=body.mode_category, per_hour=body.max_submissions_per_hour))
        accounts.log(
            session, ACTOR, "rate-limit", f"{board.name} {body.mode_category}: {body.max_submissions_per_hour}")
        return {"status": "ok", **body.model_dump()}


@router.get("/leaderboards/{leaderboard}/rate-limits")
def get_limits(request: Request, leaderboard: Name) -> list[dict[str, Any]]:
    with service_of(request).database.read() as session:
        board = find_board(session, leaderboard, None, organiser=True)
        rows = session.scalars(select(RateLimit).where(RateLimit.board_id == board.id).order_by(RateLimit.category))
        return [{"mode_category": row.category, "max_submissions_per_hour": row.per_hour} for row in rows]


@router.delete("/leaderboards/{leaderboard}/rate-limits")
def delete_limits(
    request: Request, leaderboard: Name, mode_category: Literal["test", "leaderboard"] | None = None,
) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        board = find_board(session, leaderboard, None, organiser=True)
        query = delete(RateLimit).where(RateLimit.board_id == board.id)
        session.execute(query.where(RateLimit.category == mode_category) if mode_category else query)
        return {"status": "ok"}


@router.post("/ban/{user}")
def ban(request: Request, user: Name) -> dict[str, Any]:
    """Refuse somebody's submissions, cancel what waits, and leave them out of the ranks."""
    with service_of(request).database.write() as session:
        return set_ban(session, user, True)


@router.delete("/ban/{user}")
def unban(request: Request, user: Name) -> dict[str, Any]:
    with service_of(request).database.write() as session:
        return set_ban(session, user, False)


@router.get("/workers")
def workers(request: Request) -> list[dict[str, Any]]:
    """Workers that gave a sign of late."""
    service = service_of(request)
    with service.database.read() as session:
        return [{"name": row.name, "gpu": row.gpu, "device": row.device, "host": row.host,
                 "seen": views.moment(row.seen)} for row in queue.workers(session, service.settings.lease_seconds)]


@router.get("/audit")
def audit(request: Request, limit: Limit = 100, offset: Offset = 0) -> list[dict[str, Any]]:
    """Who did what, newest first."""
    with service_of(request).database.read() as session:
        rows = session.scalars(select(Audit).order_by(Audit.id.desc()).limit(limit).offset(offset))
        return [{"at": views.moment(row.at), "actor": row.actor, "action": row.action, "detail": row.detail}
                for row in rows]


def switch(session: Session, accept: bool) -> dict[str, Any]:
    """Accept or refuse submissions from now on."""
    session.merge(Setting(name="accepting", value="yes" if accept else "no"))
    accounts.log(session, ACTOR, "start" if accept else "stop", "")
    return {"status": "ok", "accepts_jobs": accept}


def set_deadline(session: Session, leaderboard: str, when: datetime.datetime | None) -> Board:
    """Raises ``Refused`` for an unknown board."""
    board = find_board(session, leaderboard, None, organiser=True)
    if when is not None and when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    try:
        board.deadline = when.timestamp() if when is not None else None
    except (OverflowError, ValueError):
        raise Refused(400, "no such moment") from None
    accounts.log(session, ACTOR, "deadline", f"{board.name}: {views.moment(board.deadline)}")
    return board


def set_ban(session: Session, user: str, banned: bool) -> dict[str, Any]:
    """Raises ``Refused`` for an unknown person."""
    account = accounts.find(session, user)
    account.banned = banned
    if banned:
        for row in session.scalars(
                select(Submission).where(Submission.account_id == account.id, Submission.status.in_(OPEN))):
            queue.cancel(session, row, "by the organiser")
    accounts.log(session, ACTOR, "ban" if banned else "unban", account.name)
    return {"status": "ok", "user_id": str(account.id), "user_name": account.name, "is_banned": banned}


def _submission(session: Session, number: int) -> Submission:
    row = session.get(Submission, number)
    if row is None:
        raise Refused(404, f"no submission {number}")
    return row


