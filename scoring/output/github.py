# SPDX-License-Identifier: MIT
"""Records as GitHub Actions reads them: a step's summary in Markdown, and workflow commands, which annotate files.

Pure functions. What a kernel's author wrote is encoded, so that no name or message can be a command of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scoring.output.table import Style
from scoring.output.terminal import cases, failed, failures, left_note, summary, title_of, usage, verdict
from scoring.output.text import one_line, printable
from scoring.record import Record, Status


def step_summary(records: Sequence[Record]) -> str:
    """Markdown for ``$GITHUB_STEP_SUMMARY``: verdict and summary first, failures, then every case folded away."""
    style = Style("github")
    tables = [*(cases(record, style) for record in records), usage(records, style)]
    details = "\n\n".join(part for part in tables if part)
    folded = f"<details><summary>Every case</summary>\n\n{details}\n\n</details>" if details else ""
    parts = (f"### {verdict(records)}", summary(records, style), failures(records, style), folded)
    return "\n\n".join(part for part in parts if part) + "\n"


def workflow_commands(records: Sequence[Record]) -> list[str]:
    """Workflow commands: one per compiler message of a failing record, else one per place where an emulated device
    found something, else one per failing record; and one per record that is not complete."""
    lines = [f"::warning title={_property(title_of(record))}::{_command(left_note(record))}"
             for record in records if record.unjudged]
    for record in filter(failed, records):
        found = record.compile.get("diagnostics") or _located(record)
        for entry in found:
            level = {"error": "error", "warning": "warning"}.get(str(entry.get("severity")), "notice")
            line = f",line={entry['line']}" if entry.get("line") else ""
            lines.append(f"::{level} file={_property(entry.get('file', ''))}{line}"
                         f"::{_command(entry.get('message', ''))}")
        if not found:
            failing = next((result for result in record.cases if result.status is not Status.PASSED), None)
            case = f"{failing.case.name}: {failing.message}" if failing else record.message
            lines.append(f"::error title={_property(title_of(record))}::{_command(f'{record.status}: {case}')}")
    return lines


def _located(record: Record) -> list[dict[str, Any]]:
    """What an emulated device's checks found and can be shown in a file, once per place and check."""
    found: dict[tuple[str, int, str], dict[str, Any]] = {}
    for result in record.cases:
        for finding in result.findings:
            if finding.get("file"):
                key = (str(finding["file"]), int(finding.get("line", 0)), str(finding.get("check", "")))
                message = f"{key[2]}: {finding.get('message', '')} ({result.case.name})"
                found.setdefault(key, {"file": key[0], "line": key[1], "severity": "error", "message": message})
    return list(found.values())


def _command(text: object) -> str:
    """The message of a workflow command: its line breaks and percent signs are encoded."""
    escaped = printable(str(text)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escaped or "no message"


def _property(text: object) -> str:
    return _command(one_line(str(text))).replace(":", "%3A").replace(",", "%2C")
