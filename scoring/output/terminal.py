# SPDX-License-Identifier: MIT
"""Records as text: terminal tables and their Markdown. What GitHub Actions reads is made of them in ``output.github``.

Pure functions from ``Record``s to strings; nothing here prints. Text is never wrapped. Names, logs and messages come
from whoever wrote the kernel, so they are made printable first, and message lines carry a gutter, so that none can
pass for a workflow command. A modelled time always says so.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scoring.output import case_columns, expectations, race, units
from scoring.output.doubts import doubts
from scoring.output.table import NOT_RUN, UNDECIDED, WIDTH, Column, Style, draw, markdown, shorten, total_width
from scoring.output.text import one_line, printable
from scoring.record import NOT_ASKED, CaseResult, Evidence, Record, Status

if TYPE_CHECKING:
    from scoring.store.store import LeaderboardRow

_MESSAGE_LINES = 30
_DIAGNOSTICS = 20
_FUNCTION = 40       # characters of a device function's name


def table(
    records: Sequence[Record], fmt: str = "simple", *, color: bool = False, width: int = WIDTH, verbose: bool = False,
) -> str:
    """Everything about a run, most important last, where a terminal leaves the eye: cases, usage, failures, summary.

    Of several records that could not be run only the reasons are told, at the end; likewise of one that says nothing
    else.
    """
    style = Style(fmt, color, width, verbose)
    idle = [record for record in records if is_idle(record)]
    brief = len(idle) > 1 or (len(records) == 1 and bool(records[0].device))
    ran = [record for record in records if not is_idle(record)] if brief else records
    parts = [part for record in ran for part in (cases(record, style), race.table(record, title_of(record), style))]
    wanted = dict.fromkeys(
        row for record in idle
        for row in expectations.rows(record.problem, record.kernel, record.facts.expect, ()))
    parts += [usage(records, style), expectations.table(list(wanted), style), failures(records, style)]
    parts.append(summary(ran, style))
    parts.append("\n".join(filter(None, (absences(records), verdict(records)))))
    return "\n\n".join(part for part in parts if part)


def summary(records: Sequence[Record], style: Style | None = None) -> str:
    """One row per record."""
    style = style or Style()
    if not records:
        return ""
    return draw([
        *_identity(records),
        Column("status", [status_of(record) for record in records], right=False),
        Column("cases", [passed_of(record) for record in records]),
        Column("step", [one_line(record.facts.step) for record in records], right=False, optional=4),
        Column("score", [units.time(record.score) for record in records]),
        Column("over", ["small cases" if record.score and is_small(record) else "" for record in records],
               right=False, optional=6),
        case_columns.rates([overall(record, "tflops") for record in records], "FLOP/s", 1e12, 4),
        Column("roofline", [units.percent(overall(record, "roofline_fraction")) for record in records]),
        Column("best peer", [best_peer(record) for record in records], right=False, optional=1),
        Column("evidence", [record.evidence if is_timed(record) else "" for record in records], right=False),
        Column("isolation", [one_line(record.isolation) if record.cases else "" for record in records], right=False,
               optional=2),
        Column("protocol", [one_line(record.protocol) for record in records], right=False, optional=5),
        Column("id", [record.id[:8] for record in records], right=False, optional=3),
    ], style)


def usage(records: Sequence[Record], style: Style | None = None) -> str:
    """What the compiler gave each device function: registers, spills, shared memory; of occupancy the bound."""
    style = style or Style()
    rows = [(record, entry, name) for record in records for entry, name in functions(record)]
    if not rows:
        return ""

    def cells(key: str, text: Callable[[Any], str] = str) -> list[str]:
        return ["" if entry.get(key) is None else one_line(text(entry[key])) for _, entry, _name in rows]

    several = len({record.id for record, *_ in rows}) > 1
    drawn = draw([
        *(_identity([record for record, *_ in rows]) if several else ()),
        Column("function", [name for *_, name in rows], right=False),
        Column("registers", cells("registers")),
        Column("AGPRs", cells("agprs")),
        Column("SGPRs", cells("scalar_registers"), optional=3),
        Column("spills", cells("spill_bytes", units.size)),
        Column("scratch", cells("scratch_bytes", units.size), optional=1),
        Column("smem/LDS", cells("shared_bytes", units.size)),
        Column("threads", cells("threads"), optional=2),
        Column("occupancy ≤", cells("occupancy", units.percent)),
    ], style)
    return f"{style.heading('Compiler usage' + ('' if several else f': {title_of(rows[0][0])}'))}\n{drawn}"


def functions(record: Record) -> list[tuple[Mapping[str, Any], str]]:
    """What the compiler said of each device function, and its name in at most 40 characters and a count.

    Instances of one template whose names are too long to be told apart, and which use the same, are one row.
    """
    told: dict[Hashable, list[tuple[Mapping[str, Any], str]]] = {}
    for number, entry in enumerate(record.usage):
        name = one_line(str(entry.get("name", ""))).removeprefix("(anonymous namespace)::")
        figures = tuple(sorted((key, str(value)) for key, value in entry.items() if key != "name"))
        alike = (name.partition("<")[0], figures) if len(name) > _FUNCTION else number
        told.setdefault(alike, []).append((entry, shorten(name, _FUNCTION)))
    return [(entry, name if len(rows) == 1 else f"{name} ×{len(rows)}")
            for rows in told.values() for entry, name in rows[:1]]


def failures(records: Sequence[Record], style: Style | None = None) -> str:
    """Why each failing record failed: message per failing case, compiler messages as file:line. Empty if none did."""
    style = style or Style()
    blocks = []
    for record in filter(failed, records):
        title = f"{title_of(record)} · {record.status}"
        lines = [f"  {line}" for line in diagnostics(record)]
        if record.message not in {result.message for result in record.cases} and not is_told(record):
            lines += _gutter(record.message, "  ")
        for result, others in failing(record):
            inputs = f" (generate_input seed {result.seed})" if result.seed else ""
            lines += [f"  {one_line(result.case.name)}: {result.status}{inputs}",
                      *_gutter(result.message, "    "), *(_wrong(result) if style.verbose else ()),
                      *_repeat(record, result)]
            if others:
                lines.append(f"  and the same in {units.plural(others, 'more case')}")
        if record.unjudged:
            lines.append(f"  and {left_note(record)}")
        where = markdown(title) if style.is_markdown else style.paint("bad", title)
        blocks.append(f"{where}\n" + (f"\n{style.block(lines)}" if style.is_markdown else style.block(lines)))
    return "\n\n".join([style.heading("Failures").rstrip("\n"), *blocks]) if blocks else ""


def is_told(record: Record) -> bool:
    """Whether the compiler's messages are all that the record's message says."""
    told = [one_line(str(entry.get("message", ""))) for entry in record.compile.get("diagnostics") or ()]
    said = [one_line(line) for line in record.message.splitlines() if line.strip()]
    return bool(told) and all(any(text and text in line for text in told) for line in said)


def failing(record: Record) -> list[tuple[CaseResult, int]]:
    """The cases that failed, each with how many later ones did with the very same words (a file that no worker can
    load fails in all of them)."""
    told: dict[tuple[str, str], list[CaseResult]] = {}
    for result in record.cases:
        if result.status is not Status.PASSED and result.status not in NOT_RUN:
            told.setdefault((result.status, result.message or result.case.name), []).append(result)
    return [(alike[0], len(alike) - 1) for alike in told.values()]


def absences(records: Sequence[Record]) -> str:
    """One line for each reason why records were not run, or have times and no score; "" if there is none."""
    absent = [record for record in records if record.status in NOT_RUN and record.message != NOT_ASKED]
    reasons: dict[str, int] = {}
    for record in absent:
        note = idle_note(record).removeprefix("compiled; not run: ").removeprefix("no device: ")
        reasons[note] = reasons.get(note, 0) + 1
    lines = [f"not run, {units.plural(count, 'kernel')}: {note}" for note, count in reasons.items()]
    if any(not record.device and not record.facts.problem_broken for record in absent):
        lines.append("(`python -m scoring doctor` says what was looked for; the same command runs them where it is)")
    partial = sum(bool(is_timed(record) and record.score is None and skipped_note(record)) for record in records)
    if partial:
        lines.append(f"no score, {units.plural(partial, 'kernel')}: cases too large for the device were left out "
                     "(limits.case_gflop of the settings)")
    return "\n".join(lines)


def leaderboard(rows: Sequence[LeaderboardRow], fmt: str = "simple", *, color: bool = False, width: int = WIDTH) -> str:
    """Every board under its own heading, the best kernel first, with its distance from the leader."""
    style = Style(fmt, color, width)
    boards: dict[tuple[str, ...], list[LeaderboardRow]] = {}
    for row in rows:
        boards.setdefault(row.board, []).append(row)
    parts = []
    for board in boards.values():
        first = board[0]
        heading = " · ".join(one_line(part) for part in (
            first.problem, first.gpu, first.evidence, first.protocol, f"cases {first.workload}"))
        parts.append(style.heading(heading) + "\n" + draw([
            Column("rank", [str(row.rank) for row in board]),
            Column("kernel", [one_line(row.kernel) for row in board], right=False),
            Column("score", [units.time(row.score) for row in board]),
            Column("behind", [units.ratio(row.score / first.score) if row.rank > 1 else "" for row in board]),
            Column("evidence", [row.evidence for row in board], right=False),
            Column("target", [one_line(row.target) for row in board], right=False),
            Column("machine", [one_line(row.host) for row in board], right=False),
            Column("created", [minute(row.created) for row in board], right=False, optional=1),
            Column("id", [row.id[:8] for row in board], right=False, optional=2),
        ], style))
    return "\n\n".join(parts)


def verdict(records: Sequence[Record]) -> str:
    """``8 passed, 2 failed, 1 not run``."""
    built = sum(record.message == NOT_ASKED for record in records)
    counts = (
        (sum(record.status is Status.PASSED for record in records), "passed"),
        (sum(map(failed, records)), "failed"),
        (sum(record.status is Status.INCOMPLETE for record in records), "incomplete"),
        (built, "compiled"),
        (sum(record.status in NOT_RUN for record in records) - built, "not run"))
    return ", ".join(f"{count} {what}" for count, what in counts if count) or "nothing ran"


def is_idle(record: Record) -> bool:
    """Whether a record says only that nothing could be run."""
    return record.status in NOT_RUN and not record.cases and record.message != NOT_ASKED


def failed(record: Record) -> bool:
    """Not passed, and neither impossible to run here nor ended early with nothing wrong until then."""
    return record.status is not Status.PASSED and record.status not in UNDECIDED


def title_of(record: Record) -> str:
    """``fp8_gemm · cuda/wgmma · H200 (sm_90a)``."""
    return " · ".join((one_line(record.problem), one_line(record.kernel), target_of(record)))


def diagnostics(record: Record, limit: int = _DIAGNOSTICS) -> list[str]:
    """The compiler's messages as ``file:line: severity: message``, errors first, at most ``limit``."""
    found = sorted(record.compile.get("diagnostics") or (), key=lambda entry: entry.get("severity") != "error")
    lines = []
    for entry in found[:limit]:
        where = f"{entry.get('file', '')}:{entry['line']}" if entry.get("line") else str(entry.get("file", ""))
        lines.append(one_line(f"{where}: {entry.get('severity', '')}: {entry.get('message', '')}"))
    return lines + ([f"… and {units.plural(len(found) - limit, 'more message')}"] if len(found) > limit else [])


def idle_note(record: Record) -> str:
    """Why a record that neither passed nor failed did not run."""
    message = one_line(record.message)
    if record.facts.problem_broken:
        return f"the problem's own files: {one_line(record.facts.problem_broken)}"
    if record.cases or record.device or message.startswith("compiled"):     # there is a device, or it is said already
        what = ""
    else:
        what = "compiled; no device" if record.compile else "no device"
    return ": ".join(part for part in (what, message) if part) or "not run"


def skipped_note(record: Record) -> str:
    """How many cases a device was too slow for, and which are too large; "" if none."""
    skipped = record.facts.cases_skipped
    why = one_line(record.facts.cases_skipped_why)
    return f"{units.plural(len(skipped), 'case')} left out: {why}" if skipped else ""


def left_note(record: Record) -> str:
    """What was left to judge when the run was ended; "" of a complete record."""
    done, left = len(record.cases), len(record.unjudged)
    return f"the run was ended after {done} of {units.plural(done + left, 'case')}" if left else ""


def overall(record: Record, figure: str) -> float | None:
    """Geometric mean of a figure over the ranked cases; None of a record that does not have all of them."""
    return None if record.unjudged else geomean(getattr(result, figure) for result in record.ranked)


def cases(record: Record, style: Style) -> str:
    """Heading and one row per case of one record."""
    modelled = is_timed(record) and record.evidence is Evidence.MODELLED
    heading = f"{title_of(record)} · {record.mode}" + (" · modelled times" if modelled else "")
    if record.facts.stand_in:
        heading += f" · {record.facts.stand_in}"
    if record.status in NOT_RUN:
        note = idle_note(record)
        heading += f" · {markdown(note) if style.is_markdown else note}"
    elif skipped := skipped_note(record):
        heading += f" · {skipped}"
    if record.facts.predictable and is_timed(record):
        heading += " · predictable inputs (a seed was given)"
    if record.unjudged:
        heading += f" · INCOMPLETE: {left_note(record)}"
    if record.message == NOT_ASKED:
        return ""
    if not record.cases:
        return style.heading(heading).rstrip("\n") if record.status in NOT_RUN else ""
    results = record.cases
    quiet = [r for r in results if r.status is Status.PASSED and not r.stats] if is_timed(record) else []
    results = [result for result in results if result not in quiet]
    names, common = [one_line(result.case.name) for result in results], ""
    time = "time (modelled)" if modelled else "time"
    where = "" if record.facts.emulated else record.gpu
    wanted = [expectations.of_case(record.facts.expect, result.case, where) for result in results]
    columns = case_columns.columns(results, names, time, wanted, style.verbose)
    if total_width(columns) > style.width:
        names, common = case_columns.distinct_names([result.case for result in results])
        columns = case_columns.columns(results, names, time, wanted, style.verbose)
    lines = [draw(columns, style), *case_columns.single_calls(results, names, style),
             *case_columns.warm_calls(results, names, style)]
    if quiet:
        lines.append(f"and {units.plural(len(quiet), 'test case')} checked and not timed, all PASSED")
    lines += [*doubts(results), *case_columns.peer_notes(results)]
    return f"{style.heading(f'{heading} · {common}' if common else heading)}\n" + "\n".join(lines)


def _wrong(result: CaseResult) -> list[str]:
    """The first wrong elements, one line each."""
    return ["    " + one_line(f"{entry['output']} {entry['index']}: got {entry['got']}, expected {entry['expected']} "
                              f"± {entry['bound']}") for entry in result.wrong]


def _identity(records: Sequence[Record]) -> list[Column]:
    return [Column("problem", [one_line(record.problem) for record in records], right=False),
            Column("kernel", [one_line(record.kernel) for record in records], right=False),
            Column("target", [target_of(record) for record in records], right=False)]


def target_of(record: Record) -> str:
    emulated = ", emulated" if record.facts.emulated else ""
    where = f" on {record.facts.host}" if record.facts.host else ""
    return one_line(f"{record.gpu} ({record.target}{emulated}){where}")


def status_of(record: Record) -> str:
    if record.message == NOT_ASKED:
        return "compiled"
    absent = record.status is Status.UNAVAILABLE and record.compile and not record.device and not record.cases
    return "UNAVAILABLE: compiled; no device" if absent else str(record.status)


def passed_of(record: Record) -> str:
    count = sum(result.status is Status.PASSED for result in record.cases)
    return f"{count}/{len(record.cases) + len(record.unjudged)}" if record.cases else ""


def is_small(record: Record) -> bool:
    """Whether the score is over the small cases of a slow device."""
    return any(result.case.group == "small" for result in record.ranked)


def is_timed(record: Record) -> bool:
    return any(result.stats for result in record.cases)


def best_peer(record: Record) -> str:
    """The peer that is hardest to beat over all cases, with the geometric mean of the speed-ups over it."""
    timed = [result for result in record.cases if result.stats and not record.unjudged]
    common = set.intersection(*(set(result.peers) for result in timed)) if timed else set()
    if not common:
        return ""
    speedup, peer = min(
        (geomean(r.peers[peer].median / r.stats.median for r in timed if r.stats) or 0.0, peer) for peer in common)
    return f"{units.ratio(speedup)} {shorten(one_line(peer), 24)}"


def geomean(values: Iterable[float | None]) -> float | None:
    """Geometric mean of the values there are."""
    known = [value for value in values if value]
    return math.exp(math.fsum(map(math.log, known)) / len(known)) if known else None


def _repeat(record: Record, result: CaseResult) -> list[str]:
    """The command line that runs a failed case again with the same inputs, where the record tells how it was made."""
    arguments = record.facts.repeat
    if not arguments:
        return []
    chosen = [*map(str, arguments), "--seed", str(record.seed), "--case", result.case.name]
    return [f"    repeat: python -m scoring {one_line(shlex.join(chosen))}"]


def _gutter(message: str, indent: str) -> list[str]:
    lines = printable(message).strip("\n").split("\n") if message.strip() else []
    more = len(lines) - _MESSAGE_LINES
    return [f"{indent}| {line}" for line in lines[:_MESSAGE_LINES]] + (
        [f"{indent}| … {units.plural(more, 'more line')}"] if more > 0 else [])


def minute(created: str) -> str:
    return one_line(created[:16].replace("T", " "))
