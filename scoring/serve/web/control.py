# SPDX-License-Identifier: MIT
"""The organiser's page: queue, devices, boards with their deadlines, people, invites, the audit log."""

from __future__ import annotations

import datetime
from typing import Annotated

from fastapi import APIRouter, Form, Request
from sqlalchemy import func, select
from starlette.responses import Response

from scoring.serve import accounts, queue
from scoring.serve.api import admin
from scoring.serve.api.service import service_of
from scoring.serve.errors import Refused
from scoring.serve.intake import accepting, find_board
from scoring.serve.storage.models import OPEN, Account, Audit, Board, Submission
from scoring.serve.web.pages import check_form, go, render, viewer_of

router = APIRouter()
Word = Annotated[str, Form(max_length=200)]


@router.get("/control")
def control(request: Request) -> Response:
    service = service_of(request)
    with service.database.read() as session:
        viewer = viewer_of(session, request)
        if not viewer.organiser:
            raise Refused(401, "log in with the organiser's token first")
        waiting = session.execute(
            select(Submission, Board.name, Account.name).join(Board, Board.id == Submission.board_id)
            .join(Account, Account.id == Submission.account_id).where(Submission.status.in_(OPEN))
            .order_by(Submission.id).limit(50)).all()
        total = session.scalar(
            select(func.count()).select_from(Submission).where(Submission.status.in_(OPEN))) or 0
        return render(
            request, "control.html.j2", viewer, waiting=waiting, total=total, accepts=accepting(session),
            workers=queue.workers(session, service.settings.lease_seconds),
            boards=session.scalars(select(Board).where(Board.active).order_by(Board.name)).all(),
            people=session.scalars(select(Account).order_by(Account.id.desc()).limit(200)).all(),
            audit=session.scalars(select(Audit).order_by(Audit.id.desc()).limit(50)).all(), codes=[])


@router.post("/control/{action}")
def act(
    request: Request, action: str, csrf: Word = "", board: Word = "", deadline: Word = "", visibility: Word = "",
    person: Word = "", number: Word = "",
) -> Response:
    """One switch of the page."""
    service = service_of(request)
    with service.database.write() as session:
        viewer = viewer_of(session, request)
        if not viewer.organiser:
            raise Refused(401, "log in with the organiser's token first")
        check_form(request, viewer, csrf)
        if action in ("start", "stop"):
            admin.switch(session, action == "start")
        elif action == "board":
            admin.set_deadline(session, board, _moment(deadline))
            if visibility in ("public", "closed"):
                find_board(session, board, None, organiser=True).visibility = visibility
        elif action in ("ban", "unban"):
            admin.set_ban(session, person, action == "ban")
        elif action == "invite":
            codes = accounts.create_invites(session, [board] if board else [], 1)
            accounts.log(session, "organiser", "invite", f"1 for {board or 'no closed board'}")
            return render(request, "invite.html.j2", viewer, code=codes[0], board=board)
        elif action == "cancel" and number.isascii() and number.isdigit() and len(number) < 10:
            row = session.get(Submission, int(number))
            if row is not None and queue.cancel(session, row, "by the organiser"):
                accounts.log(session, "organiser", "cancel", number)
        else:
            raise Refused(404, "there is nothing at this address")
    return go("/control")


def _moment(text: str) -> datetime.datetime | None:
    """What a browser's field for a day and time says, in UTC; None if it is empty. Raises ``Refused``."""
    if not text.strip():
        return None
    try:
        return datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise Refused(400, "a deadline is a day and a time, as 2026-12-24T18:00") from None
