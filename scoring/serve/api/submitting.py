# SPDX-License-Identifier: MIT
"""What clients do: register, join, submit (polling or as a series of server-sent events), cancel and delete."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Query, Request, UploadFile
from pydantic import BaseModel, Field
from sqlalchemy import delete, select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from scoring.popcorn.directives import MAX_SUBMISSION_BYTES
from scoring.serve import accounts, intake, profile, queue
from scoring.serve.api import views
from scoring.serve.api.reading import Name, Number
from scoring.serve.api.service import CliId, Service, WebId, address_of, service_of, who
from scoring.serve.errors import Refused
from scoring.serve.storage.models import Account, Result, Source, Submission

router = APIRouter(tags=["submitting"])
ModeName = Literal["test", "benchmark", "leaderboard", "profile", "TEST", "BENCHMARK", "LEADERBOARD", "PROFILE"]
Upload = Annotated[UploadFile, File(description="the submission: one file")]


class Code(BaseModel):
    """An invite."""

    code: str = Field(min_length=1, max_length=100)


@router.get("/auth/init")
def register(request: Request, provider: Annotated[str, Query(max_length=32)] = "github") -> dict[str, str]:
    """A new account and its token, which popcorn-cli keeps as its id. ``provider`` says nothing here."""
    service = service_of(request)
    if not service.new_accounts.take(address_of(request)):
        raise Refused(429, "too many new accounts from this address; try later")
    with service.database.write() as session:
        account, token = accounts.register(session, active=service.settings.registration == "open")
        return {"state": token, "user_id": str(account.id), "user_name": account.name}


@router.post("/user/join")
def join(request: Request, body: Code, cli_id: CliId = None) -> dict[str, Any]:
    """Use an invite."""
    with service_of(request).database.write() as session:
        return {"status": "ok", "leaderboards": accounts.join(session, who(session, cli_id), body.code)}


@router.post("/submission/{leaderboard}/{gpu}/{mode}", status_code=202)
def submit(
    request: Request, leaderboard: Name, gpu: Name, mode: ModeName, file: Upload, cli_id: CliId = None,
    web_id: WebId = None,
) -> dict[str, Any]:
    """Queue a submission; it is on disk when this answers."""
    service = service_of(request)
    with service.database.write() as session:
        row = take_in(service, session, who(session, cli_id, web_id), leaderboard, gpu, mode, file)
    with service.database.read() as session:
        return accepted(service, session, row)


@router.post("/{leaderboard}/{gpu}/{mode}", response_class=StreamingResponse)
async def submit_and_watch(
    request: Request, leaderboard: Name, gpu: Name, mode: ModeName, file: Upload, cli_id: CliId = None,
    web_id: WebId = None,
) -> StreamingResponse:
    """Queue a submission and tell what becomes of it, as server-sent events."""
    service = service_of(request)

    def queue_it() -> int:
        with service.database.write() as session:
            return take_in(service, session, who(session, cli_id, web_id), leaderboard, gpu, mode, file).id

    number = await run_in_threadpool(queue_it)
    return StreamingResponse(watch(service, number), media_type="text/event-stream",
                             headers={"cache-control": "no-store", "x-accel-buffering": "no"})


@router.delete("/user/submissions/{number}")
def remove(request: Request, number: Number, cli_id: CliId = None, web_id: WebId = None) -> dict[str, Any]:
    """Delete one of the caller's submissions; it is cancelled first if it waits or runs."""
    with service_of(request).database.write() as session:
        account = who(session, cli_id, web_id)
        erase(session, views.find_own(session, number, account), account.name)
        return {"status": "ok", "submission_id": number}


@router.post("/user/submissions/{number}/cancel")
def cancel(request: Request, number: Number, cli_id: CliId = None, web_id: WebId = None) -> dict[str, Any]:
    """End one of the caller's submissions and keep it."""
    with service_of(request).database.write() as session:
        account = who(session, cli_id, web_id)
        row = views.find_own(session, number, account)
        if not queue.cancel(session, row, "by its owner"):
            raise Refused(409, f"submission {number} is done already")
        accounts.log(session, account.name, "cancel", str(number))
        return {"status": "ok", "submission_id": number}


def take_in(
    service: Service, session: Session, account: Account, leaderboard: str, gpu: str, mode: str, file: UploadFile,
    organiser: bool = False,
) -> Submission:
    """Accept an uploaded file. Raises ``Refused``."""
    board = intake.find_board(session, leaderboard, account, organiser)
    content = file.file.read(MAX_SUBMISSION_BYTES + 1)
    return intake.accept(session, service.settings, account, board, gpu, mode.lower(), file.filename or "", content,
                         organiser)


def accepted(service: Service, session: Session, row: Submission) -> dict[str, Any]:
    """The answer to whoever submitted."""
    return {"status": "accepted", "details": {"id": row.id, "job_status_id": row.id},
            "runner_queue": queue.state_of(session, row.gpu, service.settings.lease_seconds)}


def erase(session: Session, row: Submission, actor: str) -> None:
    """Remove a submission with its result, and its source if nobody else sent the same."""
    queue.cancel(session, row, "deleted")
    digest, number = row.source_digest, row.id
    session.execute(delete(Submission).where(Submission.id == number))
    if session.scalar(select(Submission.id).where(Submission.source_digest == digest).limit(1)) is None:
        session.execute(delete(Source).where(Source.digest == digest))
    accounts.log(session, actor, "delete", str(number))


def frame(event: str, data: dict[str, Any]) -> bytes:
    """One server-sent event: ASCII JSON and plain line feeds, as simple clients need them."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode("ascii")


async def watch(service: Service, number: int) -> AsyncIterator[bytes]:
    """``status`` while a submission waits and runs, then ``result`` or ``error``."""
    started, told, said = time.monotonic(), 0.0, ""

    def look() -> tuple[str, dict[str, Any] | None]:
        with service.database.read() as session:
            row = session.get(Submission, number)
            if row is None:
                return "", {"status": "error", "detail": "the submission was deleted", "status_code": 410}
            result = session.get(Result, number)
            return f"{row.status} {row.progress}".strip(), profile.final_frame(row, result) if result else None

    while True:
        text, final = await run_in_threadpool(look)
        if final is not None:
            yield frame(str(final["status"]).replace("success", "result"), final)
            return
        now = time.monotonic()
        if text != said or now - told >= service.status_seconds:
            told, said = now, text
            yield frame("status", {"status": "processing", "elapsed_time": round(now - started, 2), "message": text,
                                   "submission_id": number})
        await asyncio.sleep(service.poll_seconds)
