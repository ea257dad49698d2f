# SPDX-License-Identifier: MIT
"""The last event of a watched submission: what the judge found, and for profiles a report with an archive of it."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

from scoring.output import terminal
from scoring.output.text import one_line, printable
from scoring.record import CaseResult, Record, Status
from scoring.serve.api import views
from scoring.serve.storage.models import SUCCEEDED, Result, Submission

PROFILE = "profile"
_STATUS_CODES = {"timed_out": 408}


def final_frame(row: Submission, result: Result) -> dict[str, Any]:
    """The data of a ``result`` event (status success), or of an ``error`` event (status error)."""
    record = views.record_of(result)
    if row.status != SUCCEEDED or record is None:
        return {"status": "error", "detail": result.error or row.status, "submission_id": row.id,
                "status_code": _STATUS_CODES.get(row.status, 400)}
    report = table(record)
    seconds = max(0.0, result.finished - (row.started or result.finished))
    runs: dict[str, Any] = {}
    if row.mode == PROFILE:
        timed = [each for each in record.cases if each.case.group == "benchmarks"]
        for index, each in enumerate(timed):
            text = case_report(record, each)
            found = {**views.popcorn_result([each], "benchmark", True),
                     "benchmark.0.report": base64.b64encode(text.encode()).decode()}
            made = {"profiler": f"warpwave ({record.evidence} times)", "trace": archive(record, each),
                    "download_url": None}
            runs[f"{PROFILE}.{index}"] = _run(row, result, seconds, found, text, made)
    else:
        for run in views.runs(row, result):
            runs[run["mode"]] = _run(row, result, seconds, run.get("result", {}), report, None)
    system = {"gpu": record.device, "device_count": 1, "cpu": record.system.get("machine", ""),
              "runtime": record.backend, "platform": record.system.get("platform", ""),
              "torch": record.system.get("torch", ""), "hostname": ""}
    return {"status": "success", "submission_id": row.id, "reports": [report],
            "results": [{"success": True, "error": "", "system": system, "runs": runs}]}


def _run(
    row: Submission, result: Result, seconds: float, found: dict[str, Any], text: str, profile: dict[str, Any] | None,
) -> dict[str, Any]:
    run = {"success": True, "passed": True, "command": "", "stdout": text, "stderr": "", "exit_code": 0,
           "duration": seconds, "result": found}
    return {"start": views.moment(row.started), "end": views.moment(result.finished), "compilation": None, "run": run,
            "profile": profile}


def table(record: Record) -> str:
    """The judge's table of a record, without colour."""
    return printable(terminal.table([record], width=120))


def case_report(record: Record, result: CaseResult) -> str:
    """All that is known of the time of one case, a line each."""
    return "\n".join(printable(line) for line in _lines(record, result)) + "\n"


def _lines(record: Record, result: CaseResult) -> Iterator[str]:
    stats = result.stats
    yield f"{record.problem} {result.case.name} on {record.device} ({record.target})"
    yield f"times are {record.evidence}, protocol {record.protocol or 'none'}, isolation {record.isolation}"
    if result.status is not Status.PASSED or stats is None:
        yield f"{result.status}: not timed. {result.message}"
        return
    for name in ("median", "ci_low", "ci_high", "mean", "std", "best", "worst"):
        yield f"{name} {getattr(stats, name) * 1e6:.3f} us"
    yield f"runs {stats.runs}"
    for name, value, unit in (("rate", result.tflops, "TFLOP/s"), ("traffic", result.gbps, "GB/s")):
        if value:
            yield f"{name} {value:.3f} {unit}"
    if result.roofline_fraction:
        yield f"{100 * result.roofline_fraction:.1f} % of the roofline, bound by {result.bound}"
    for key, value in sorted(result.environment.items()):
        yield f"environment {one_line(str(key))}: {one_line(json.dumps(value, default=str))[:200]}"
    for number, launch in enumerate(result.counters):
        yield f"launch {number}"
        for key, value in launch.items():
            yield f"  {one_line(str(key))}: {one_line(json.dumps(value, default=str))[:200]}"
    for entry in record.usage:
        yield f"function {one_line(json.dumps(dict(entry), default=str))}"


def archive(record: Record, result: CaseResult) -> str:
    """A zip file in base64: the report of a case as text, and the case as JSON."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("profile.txt", case_report(record, result))
        (case,) = (each for each in record.to_json()["cases"]
                   if each["case"]["params"] == dict(result.case.params) and each["case"]["group"] == result.case.group)
        zipped.writestr("case.json", json.dumps(case, indent=1))
    return base64.b64encode(held.getvalue()).decode()
