# SPDX-License-Identifier: MIT
"""Rows of the database as the JSON objects that clients read. Nothing secret is ever in one."""

from __future__ import annotations

import datetime
import json
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from scoring.popcorn.cases import format_case
from scoring.record import Case, CaseResult, Record, Status
from scoring.serve import queue
from scoring.serve.errors import Refused
from scoring.serve.standings import Standing
from scoring.serve.storage import models
from scoring.serve.storage.models import Account, Board, Lease, Result, Source, Submission

# What popcorn-cli knows of a job's state: whatever is neither of these it only shows.
_STATES = {models.QUEUED: "pending", models.RUNNING: "running", models.SUCCEEDED: "succeeded", models.FAILED: "failed",
           models.TIMED_OUT: "timed_out", models.CANCELLED: "failed"}

# A poll asks for all this at once: made once, since SQLAlchemy takes longer to make it than the database to answer.
_WHOLE = (select(Submission, Result, Lease.expires, Board.name, Source.content)
          .join(Board, Board.id == Submission.board_id).join(Source, Source.digest == Submission.source_digest)
          .outerjoin(Result, Result.submission_id == Submission.id)
          .outerjoin(Lease, Lease.submission_id == Submission.id).where(Submission.id == bindparam("number")))


def moment(seconds: float | None) -> str | None:
    """ISO 8601 in UTC."""
    if seconds is None:
        return None
    text = datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def board(row: Board) -> dict[str, Any]:
    return {
        "id": row.id, "name": row.name, "description": row.description, "task": row.task, "gpu_types": row.gpus,
        "deadline": moment(row.deadline), "visibility": row.visibility, "created_at": moment(row.created),
    }


def standing(row: Standing, name: str, gpu: str) -> dict[str, Any]:
    return {
        "submission_id": row.submission, "rank": row.rank, "submission_name": row.file_name,
        "submission_time": moment(row.created), "submission_score": row.score, "leaderboard_name": name,
        "user_id": str(row.account), "user_name": row.name, "gpu_type": gpu, "score_low": row.low,
        "score_high": row.high, "evidence": row.evidence, "emulated": row.emulated, "protocol": row.protocol,
        "workload": row.workload,
    }


def listed(row: Submission, result: Result | None, name: str) -> dict[str, Any]:
    runs = [{"gpu_type": row.gpu, "score": result.score}] if result is not None else []
    return {"id": row.id, "leaderboard_name": name, "file_name": row.file_name, "submission_time": moment(row.created),
            "done": result is not None, "runs": runs, "mode": row.mode, "status": _STATES[row.status]}


def record_of(result: Result | None) -> Record | None:
    """The judge's record of a submission; None if there is none."""
    return Record.from_json(json.loads(result.record)) if result is not None and result.record else None


def detailed(session: Session, number: int, account: Account | None, lease_seconds: float) -> dict[str, Any]:
    """A submission as its owner polls it, or the organiser (None). Raises ``Refused``: 404 for none, 403 for somebody
    else's."""
    found = session.execute(_WHOLE, {"number": number}).one_or_none()
    row = own(None if found is None else found[0], number, account)
    assert found is not None
    _, result, expires, board_name, content = found
    status, error = _STATES[row.status], result.error if result is not None and result.error else None
    if row.status == models.CANCELLED:
        error = f"cancelled: {error}"
    return {
        "id": row.id, "leaderboard_id": row.board_id, "leaderboard_name": board_name, "file_name": row.file_name,
        "user_id": str(row.account_id), "submission_time": moment(row.created), "done": result is not None,
        "code": content.decode(), "mode": row.mode, "gpu": row.gpu,
        "runs": runs(row, result),
        "job": {"status": status, "error": error, "progress": row.progress, "attempts": row.attempts,
                "last_heartbeat": moment(expires - lease_seconds) if expires is not None else None},
        "runner_queue": queue.state_of(session, row.gpu, lease_seconds) if result is None else None,
    }


def runs(row: Submission, result: Result | None) -> list[dict[str, Any]]:
    """One run for the tests, and one for the benchmarks if the mode has them and the tests passed."""
    record = record_of(result)
    if record is None or result is None:
        return []
    common = {"start_time": moment(row.started), "end_time": moment(result.finished), "secret": False,
              "runner": row.gpu, "evidence": result.evidence, "emulated": result.emulated}
    tests = [each for each in record.cases if each.case.group == "tests"]
    timed = [each for each in record.cases if each.case.group == "benchmarks"]
    found = []
    for mode, cases in (("test", tests), (row.mode, timed)):
        if not cases or (mode == "test") != (cases is tests):
            continue
        passed = all(each.status is Status.PASSED for each in cases)
        score = result.score if mode == "leaderboard" else None
        run: dict[str, Any] = {**common, "mode": mode, "passed": passed, "score": score}
        if row.mode != "leaderboard":
            run["result"] = popcorn_result(cases, "test" if mode == "test" else "benchmark", passed)
        found.append(run)
    if not found:
        found.append({**common, "mode": row.mode, "passed": False, "score": None})
    return found


def popcorn_result(cases: list[CaseResult], kind: str, passed: bool) -> dict[str, Any]:
    """Cases under the keys that evaluators write; times in nanoseconds."""
    made: dict[str, Any] = {f"{kind}-count": len(cases)}
    for index, each in enumerate(cases):
        at = f"{kind}.{index}"
        made[f"{at}.spec"] = format_case(dict(each.case.params))
        made[f"{at}.status"] = "pass" if each.status is Status.PASSED else "fail"
        if each.message:
            made[f"{at}.{'message' if each.status is Status.PASSED else 'error'}"] = each.message
        if each.stats is not None:
            made[f"{at}.runs"] = each.stats.runs
            for name in ("mean", "std", "err", "best", "worst", "median", "ci_low", "ci_high"):
                made[f"{at}.{name}"] = getattr(each.stats, name) * 1e9
    return {**made, "check": "pass" if passed else "fail"}


def case_name(params: dict[str, Any]) -> str:
    return Case(params).name


def find_own(session: Session, number: int, account: Account) -> Submission:
    """A submission of the account. Raises ``Refused``: 404 for none, 403 for somebody else's."""
    return own(session.scalar(select(Submission).where(Submission.id == number)), number, account)


def own(row: Submission | None, number: int, account: Account | None) -> Submission:
    """``row``, if it is there and the account's; the organiser (None) may see each. Raises ``Refused``."""
    if row is None:
        raise Refused(404, f"no submission {number}")
    if account is not None and row.account_id != account.id:
        raise Refused(403, f"submission {number} is somebody else's")
    return row
