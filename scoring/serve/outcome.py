# SPDX-License-Identifier: MIT
"""From the judge's record to what is kept of a submission: its status, its score, and the text a person needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scoring.output import terminal
from scoring.output.text import printable
from scoring.record import Mode, Record, Status, dumps
from scoring.record import score as ranking_score
from scoring.serve.queue import Outcome
from scoring.serve.storage.models import FAILED, SUCCEEDED, TIMED_OUT
from scoring.store.store import workload

ERROR_LETTERS = 12_000


def outcome_of(event: Mapping[str, Any]) -> Outcome:
    """What is kept after an executor's last event."""
    if event["event"] != "done":
        return Outcome(FAILED, str(event.get("text", "")), str(Status.UNAVAILABLE))
    record = Record.from_json(event["record"])
    status, error = SUCCEEDED, ""
    if record.status is not Status.PASSED:
        status = TIMED_OUT if record.status is Status.TIMEOUT else FAILED
        error = explain(record)
    elif record.mode is Mode.LEADERBOARD and record.score is None:
        status, error = FAILED, "every check passed, but there is no score: " + unscored(record)
    low, high = interval(record)
    return Outcome(
        status, error, str(record.status), dumps(record), record.score, low, high, str(record.evidence),
        record.facts.emulated, record.protocol, workload(record))


def explain(record: Record) -> str:
    """Why a submission failed, as the command line would say it; printable, and cut to a readable length."""
    text = terminal.failures([record]) or f"{record.status}: {record.message or 'no case was judged'}"
    text = printable(text).strip()
    return text if len(text) <= ERROR_LETTERS else text[:ERROR_LETTERS] + "\n… (the rest is left out)"


def unscored(record: Record) -> str:
    """Why a record that passed has no score."""
    if record.facts.cases_skipped:
        return f"cases were left out, {record.facts.cases_skipped_why}; tell the organiser"
    timed = [result for result in record.cases if result.case.group == "benchmarks"]
    if timed and record.facts.emulated:
        return "the submission launched no kernel on the emulated device, whose times are of kernels alone"
    return "no benchmark was timed"


def interval(record: Record) -> tuple[float | None, float | None]:
    """Bounds of the score: the score of all lower, and of all upper, ends of the cases' intervals (95 % each, so it
    is wider than a 95 % interval of the score). None without a score, or where a time is modelled."""
    timed = [result.stats for result in record.cases if result.stats and result.case.group == "benchmarks"]
    if record.score is None or any(stats.runs < 2 for stats in timed):
        return None, None
    return (ranking_score([stats.ci_low for stats in timed], record.ranking_by),
            ranking_score([stats.ci_high for stats in timed], record.ranking_by))
