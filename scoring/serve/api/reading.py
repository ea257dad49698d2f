# SPDX-License-Identifier: MIT
"""What clients read: leaderboards, their GPUs and ranks, queues, and one's own submissions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from sqlalchemy import select

from scoring.serve import queue, standings
from scoring.serve.api import views
from scoring.serve.api.service import CliId, WebId, service_of, who, who_if_any
from scoring.serve.intake import find_board, may_see
from scoring.serve.storage.models import Board, Result, Submission

router = APIRouter(tags=["reading"])
LARGEST = 2**31 - 1
Limit = Annotated[int, Query(ge=1, le=100)]
Offset = Annotated[int, Query(ge=0, le=LARGEST)]
Number = Annotated[int, Path(ge=1, le=LARGEST)]
Name = Annotated[str, Path(min_length=1, max_length=64)]


@router.get("/health")
def health(request: Request) -> dict[str, Any]:
    """Whether the server and its database answer."""
    with service_of(request).database.read() as session:
        session.scalar(select(Board.id).limit(1))
    return {"status": "ok"}


@router.get("/leaderboards")
def leaderboards(request: Request, cli_id: CliId = None, web_id: WebId = None) -> list[dict[str, Any]]:
    """Every board that the caller may see."""
    with service_of(request).database.read() as session:
        account = who_if_any(session, cli_id, web_id)
        rows = session.scalars(select(Board).where(Board.active).order_by(Board.name))
        return [views.board(row) for row in rows if may_see(session, row, account)]


@router.get("/gpus/{leaderboard}")
def gpus(request: Request, leaderboard: Name, cli_id: CliId = None, web_id: WebId = None) -> list[str]:
    """The GPUs of a board."""
    with service_of(request).database.read() as session:
        return list(find_board(session, leaderboard, who_if_any(session, cli_id, web_id)).gpus)


@router.get("/runner_queue/{gpu}")
def runner_queue(request: Request, gpu: Name) -> dict[str, Any]:
    """How much waits for a GPU, and how many workers it has."""
    service = service_of(request)
    with service.database.read() as session:
        return queue.state_of(session, gpu, service.settings.lease_seconds)


@router.get("/submissions/{leaderboard}/{gpu}")
def ranking(
    request: Request, leaderboard: Name, gpu: Name, limit: Limit = 100, offset: Offset = 0, cli_id: CliId = None,
    web_id: WebId = None,
) -> list[dict[str, Any]]:
    """The best of each person, best first. Scores of another evidence, protocol or workload have ranks of their own."""
    with service_of(request).database.read() as session:
        board = find_board(session, leaderboard, who_if_any(session, cli_id, web_id))
        rows = [row for group in standings.leading(session, board, gpu) for row in group]
        return [views.standing(row, board.name, gpu) for row in rows[offset:offset + limit]]


@router.get("/submission_count/{leaderboard}/{gpu}")
def count(
    request: Request, leaderboard: Name, gpu: Name, user_id: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
    cli_id: CliId = None, web_id: WebId = None,
) -> dict[str, int]:
    """How many submissions a board and GPU have."""
    with service_of(request).database.read() as session:
        board = find_board(session, leaderboard, who_if_any(session, cli_id, web_id))
        return {"count": standings.count(session, board, gpu, user_id)}


@router.get("/user/submissions")
def own(
    request: Request, leaderboard: Annotated[str | None, Query(max_length=64)] = None, limit: Limit = 50,
    offset: Offset = 0, cli_id: CliId = None, web_id: WebId = None,
) -> list[dict[str, Any]]:
    """The caller's submissions, newest first."""
    with service_of(request).database.read() as session:
        account = who(session, cli_id, web_id)
        query = (select(Submission, Result, Board.name).join(Board, Board.id == Submission.board_id)
                 .outerjoin(Result, Result.submission_id == Submission.id)
                 .where(Submission.account_id == account.id))
        if leaderboard is not None:
            query = query.where(Board.name == find_board(session, leaderboard, account).name)
        rows = session.execute(query.order_by(Submission.id.desc()).limit(limit).offset(offset))
        return [views.listed(*row) for row in rows]


@router.get("/user/submissions/{number}")
def own_one(request: Request, number: Number, cli_id: CliId = None, web_id: WebId = None) -> dict[str, Any]:
    """One of the caller's submissions: its source, its state, and its runs."""
    service = service_of(request)
    with service.database.read() as session:
        return views.detailed(session, number, who(session, cli_id, web_id), service.settings.lease_seconds)
