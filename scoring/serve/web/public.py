# SPDX-License-Identifier: MIT
"""Pages for everybody: the boards, a board on a GPU, a person, a submission with its live progress."""

from __future__ import annotations

import difflib
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.responses import Response, StreamingResponse

from scoring.output import doubts, terminal
from scoring.record import Record
from scoring.serve import queue, standings
from scoring.serve.api import submitting, views
from scoring.serve.api.reading import Name, Number
from scoring.serve.api.service import service_of
from scoring.serve.errors import Refused
from scoring.serve.intake import find_board, may_see
from scoring.serve.storage.models import OPEN, Account, Board, Result, Source, Submission
from scoring.serve.web import charts
from scoring.serve.web.pages import Viewer, go, render, viewer_of

router = APIRouter()
DIFF_LINES = 400


@router.get("/")
def index(request: Request) -> Response:
    service = service_of(request)
    with service.database.read() as session:
        viewer = viewer_of(session, request)
        boards = [board for board in session.scalars(select(Board).where(Board.active).order_by(Board.name))
                  if viewer.organiser or may_see(session, board, viewer.account)]
        cards = [_card(session, board, gpu, service.settings.lease_seconds) for board in boards for gpu in board.gpus]
        return render(request, "index.html.j2", viewer, cards=cards)


def _card(session: Session, board: Board, gpu: str, lease_seconds: float) -> dict[str, Any]:
    groups = standings.leading(session, board, gpu)
    return {"board": board, "gpu": gpu, "best": groups[0][0] if groups else None,
            "people": len(groups[0]) if groups else 0, "queue": queue.state_of(session, gpu, lease_seconds),
            "over": board.deadline is not None and board.deadline < time.time()}


@router.get("/boards/{name}")
def board_home(request: Request, name: Name) -> Response:
    with service_of(request).database.read() as session:
        viewer = viewer_of(session, request)
        board = find_board(session, name, viewer.account, viewer.organiser)
        return go(f"/boards/{board.name}/{board.gpus[0]}")


@router.get("/boards/{name}/{gpu}")
def board_page(request: Request, name: Name, gpu: Name) -> Response:
    service = service_of(request)
    with service.database.read() as session:
        viewer = viewer_of(session, request)
        board = find_board(session, name, viewer.account, viewer.organiser)
        if gpu not in board.gpus:
            raise Refused(404, "this leaderboard has no such GPU")
        found = standings.scored(session, board, gpu)
        groups = [{"rows": rows, "plot": charts.progress([row for row in found if row.group == rows[0].group])}
                  for rows in standings.leading(session, board, gpu)]
        return render(
            request, "board.html.j2", viewer, board=board, gpu=gpu, groups=groups, case_name=views.case_name,
            queue=queue.state_of(session, gpu, service.settings.lease_seconds),
            over=board.deadline is not None and board.deadline < time.time())


@router.get("/people/{name}")
def person(request: Request, name: Name) -> Response:
    with service_of(request).database.read() as session:
        viewer = viewer_of(session, request)
        account = session.scalar(select(Account).where(Account.name == name))
        if account is None or account.banned:
            raise Refused(404, "nobody of this name takes part")
        own = viewer.organiser or (viewer.account is not None and viewer.account.id == account.id)
        places = []
        for board in session.scalars(select(Board).where(Board.active).order_by(Board.name)):
            if viewer.organiser or may_see(session, board, viewer.account):
                places += [each for gpu in board.gpus if (each := _place(session, board, gpu, account))]
        recent = session.execute(
            select(Submission, Board.name, Result).join(Board, Board.id == Submission.board_id)
            .outerjoin(Result, Result.submission_id == Submission.id)
            .where(Submission.account_id == account.id).order_by(Submission.id.desc()).limit(50)).all() if own else []
        return render(request, "person.html.j2", viewer, person=account, places=places, recent=recent, own=own)


def _place(session: Session, board: Board, gpu: str, account: Account) -> dict[str, Any] | None:
    """Somebody's best on a board and GPU, among what was compared last."""
    for rows in standings.leading(session, board, gpu):
        for row in rows:
            if row.account == account.id:
                mine = [each for each in standings.scored(session, board, gpu, account.id) if each.group == row.group]
                return {"board": board, "gpu": gpu, "row": row, "of": len(rows), "plot": charts.progress(mine)}
    return None


@router.get("/entries/{number}")
def entry(request: Request, number: Number) -> Response:
    service = service_of(request)
    with service.database.read() as session:
        viewer = viewer_of(session, request)
        row, board, own = _visible(session, viewer, number)
        result = session.get(Result, number)
        record = views.record_of(result)
        text = session.get_one(Source, row.source_digest).content.decode() if own else ""
        place = next((each for rows in standings.leading(session, board, row.gpu) for each in rows
                      if each.submission == number), None)
        return render(
            request, "entry.html.j2", viewer, row=row, board=board, own=own, result=result, record=record, place=place,
            person=session.get_one(Account, row.account_id), source=text,
            diff=_diff(session, row, text) if own else None, waiting=row.status in OPEN, ahead=_ahead(session, row),
            cases=_cases(record), usage=terminal.functions(record) if record else [])


def _visible(session: Session, viewer: Viewer, number: int) -> tuple[Submission, Board, bool]:
    """A submission, its board, and whether all of it may be shown. Others see what is ranked. Raises ``Refused``."""
    row = session.get(Submission, number)
    if row is None:
        raise Refused(404, f"no submission {number}")
    board = session.get_one(Board, row.board_id)
    own = viewer.organiser or (viewer.account is not None and viewer.account.id == row.account_id)
    result = session.get(Result, number)
    ranked = row.mode == "leaderboard" and result is not None and result.score is not None
    if not own and not (ranked and board.active and may_see(session, board, viewer.account)):
        raise Refused(404, f"no submission {number}, or it is not yours; log in to see your own")
    return row, board, own


def _ahead(session: Session, row: Submission) -> int:
    if row.status != "queued":
        return 0
    return len(session.scalars(select(Submission.id).where(
        Submission.status == "queued", Submission.gpu == row.gpu, Submission.id < row.id)).all())


def _cases(record: Record | None) -> list[dict[str, Any]]:
    """A row per case, and how long its bar is: its time over the longest."""
    longest = max((each.stats.median for each in record.cases if each.stats), default=1.0) if record else 1.0
    return [{"case": each, "share": each.stats.median / longest if each.stats else 0.0,
             "interval": doubts.interval(each.stats)} for each in (record.cases if record else ())]


def _diff(session: Session, row: Submission, text: str) -> dict[str, Any] | None:
    """What changed since the person's previous submission to the board; None without one."""
    before = session.scalar(
        select(Submission).where(Submission.account_id == row.account_id, Submission.board_id == row.board_id,
                                 Submission.id < row.id).order_by(Submission.id.desc()).limit(1))
    if before is None:
        return None
    old = session.get_one(Source, before.source_digest).content.decode() if before.source_digest != row.source_digest \
        else text
    lines = [] if old == text else list(difflib.unified_diff(
        old.splitlines(), text.splitlines(), f"#{before.id}", f"#{row.id}", lineterm="", n=2))
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return {"before": before.id, "more": max(0, len(lines) - DIFF_LINES), "lines": [
        (kinds.get(line[:1], "same"), line) for line in lines[:DIFF_LINES]]}


@router.get("/entries/{number}/events")
def entry_events(request: Request, number: Number) -> Response:
    """What happens to a submission, as server-sent events for its page."""
    service = service_of(request)
    with service.database.read() as session:
        _visible(session, viewer_of(session, request), number)

    async def told() -> AsyncIterator[bytes]:
        async for frame in submitting.watch(service, number):
            yield frame if frame.startswith(b"event: status") else submitting.frame("done", {"submission_id": number})

    return StreamingResponse(told(), media_type="text/event-stream", headers={
        "cache-control": "no-store", "x-accel-buffering": "no"})


