# SPDX-License-Identifier: MIT
"""Records as one self-contained HTML page: no script, nothing loaded, fit to print, light and dark.

``page`` takes any records, stored or fresh: of each kernel on each GPU the newest run that says most is shown, all
scored ones become its history. Names, logs and messages are untrusted: they are made printable here and escaped by the
template engine, and the page forbids itself scripts and requests.
"""

from __future__ import annotations

import datetime
import functools
import os
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scoring.output import case_columns, charts, doubts, expectations, terminal, units
from scoring.output.table import NOT_RUN, UNDECIDED, shorten
from scoring.output.text import first_line, one_line, printable
from scoring.record import CaseResult, Evidence, Record, Status
from scoring.store.store import workload

if TYPE_CHECKING:
    from jinja2 import Environment

T = TypeVar("T")
TEMPLATES = Path(__file__).with_name("templates")
COLORS, SHAPES = 8, 6                    # how many the style sheet and the macros know
# Of the system and the facts: stated elsewhere on the page, or about cases, not a machine.
_NOT_SHOWN = ("peaks", "peaks_source", "llc_bytes", "cases_skipped", "cases_skipped_why")
_LOG_LINES = 60                          # of one message; the JSON has all of it
_USAGE = (                                # key of KernelUsage, header, filter of the template
    ("registers", "Registers", "line"), ("agprs", "AGPRs", "line"), ("scalar_registers", "SGPRs", "line"),
    ("spill_bytes", "Spills", "size"), ("scratch_bytes", "Scratch", "size"), ("shared_bytes", "Shared / LDS", "size"),
    ("threads", "Threads", "line"), ("occupancy", "Occupancy ≤", "percent"))
_UNIT_SUFFIXES = {"mhz": "MHz", "w": "W", "c": "°C", "bytes": "bytes"}
_SECONDS = {"bound", "overhead", "resolution", "unseal", "unseal_alone", "claim"}      # of a chain


def page(
    records: Sequence[Record], title: str = "warpwave report", generated: str | None = None,
    pages: Mapping[str, str] | None = None,
) -> str:
    """The page for ``records`` in any order. ``generated`` is the time it states, now if None. ``pages``: by a
    record's id, a file beside this one that shows its machine code."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    shown = current(records)
    records_by_age = sorted(records, key=lambda record: record.created, reverse=True)
    timed = [record for record in shown if terminal.is_timed(record)]
    series = {key: number for number, key in enumerate(dict.fromkeys((r.problem, r.kernel) for r in timed))}
    boards = _grouped(timed, lambda r: (r.problem, r.gpu, r.evidence))
    lines = _grouped((run for run in records if run.score is not None), _line_of)
    targets = _grouped(timed, lambda r: (r.gpu, r.evidence))
    return environment().get_template("report.html.j2").render(
        title=one_line(title), generated=terminal.minute(generated or now), verdict=terminal.verdict(shown),
        records=shown,
        cards=[_card(group) for group in boards.values() if any(r.score for r in group)],
        rows=[_row(record) | {"page": (pages or {}).get(record.id, "")} for record in shown],
        failures=[_failure(record) for record in shown if terminal.failed(record)],
        boards=[_board(group, series) for group in boards.values()],
        rooflines=[view for group in targets.values() if (view := _roofline(group, series))],
        histories=[view for record in timed if (view := _history(record, lines.get(_line_of(record), ()), series))],
        usage=[(record, entry, name) for record in shown for entry, name in terminal.functions(record)],
        usage_columns=[column for column in _USAGE if any(
            entry.get(column[0]) is not None for record in shown for entry in record.usage)],
        timed=[(record, circumstances(record)) for record in timed],
        machines=_machines(shown),
        expected=list(dict.fromkeys(row for record in shown for row in expectations.rows(
            record.problem, record.kernel, record.facts.expect, records_by_age))),
        peaks_sources=sorted({r.facts.peaks_source for r in shown if r.facts.peaks_source}),
    )


def write(path: Path, records: Sequence[Record], title: str = "warpwave report") -> None:
    """Write the page of ``records`` to ``path``, as ``save`` does."""
    save(path, page(records, title))


def save(path: Path, text: str) -> None:
    """Write a page to ``path`` in one step: a reader sees the old page or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def current(records: Iterable[Record]) -> list[Record]:
    """The newest record of every kernel on every GPU, best score first within a problem and GPU.

    A newer run without times does not hide an older one with times unless it failed: it says less, and nothing
    different; nor does one that was ended early hide one that was not. Measured and modelled times stand side by side.
    """
    newest = sorted(records, key=lambda record: record.created, reverse=True)
    kept: list[Record] = []
    for runs in _grouped(newest, lambda r: (r.problem, r.kernel, r.gpu)).values():
        timed = {run.evidence: run for run in sorted(runs, key=lambda run: (not run.unjudged, run.created))
                 if terminal.is_timed(run)}
        kept += timed.values()
        if not terminal.is_timed(runs[0]) and (terminal.failed(runs[0]) or not timed):
            kept.append(runs[0])
    return sorted(kept, key=lambda r: (r.problem, r.gpu, r.evidence, r.score or float("inf"), r.kernel))


def circumstances(record: Record) -> dict[str, str]:
    """What ``CaseResult.environment`` says, over all timed cases: ranges of numbers, every different word."""
    gathered: dict[str, list[Any]] = {}
    for result in record.cases:
        for key, value in (result.environment if result.stats else {}).items():
            gathered.setdefault(str(key), []).append(value)
    return {one_line(_label(key)): one_line(_range(key, values)) for key, values in gathered.items()}


@functools.cache
def environment() -> Environment:
    """The templates of all pages, which escape what they are given."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True)
    environment.filters.update(
        px=lambda value: f"{value:.1f}".removesuffix(".0"), line=_line, log=_log, time=units.time,
        percent=units.percent, size=units.size, ratio=units.ratio, minute=terminal.minute,
        flops=lambda tflops: "" if tflops is None else units.rate(tflops * 1e12, "FLOP/s"),
        bandwidth=lambda gbps: "" if gbps is None else units.rate(gbps * 1e9, "B/s"),
        shorten=shorten, first=first_line, rest=_rest)
    environment.globals.update(
        target_of=terminal.target_of, interval=doubts.interval, unconfirmed=doubts.unconfirmed,
        passed_of=terminal.passed_of, colors=COLORS, shapes=SHAPES)
    return environment


def _card(group: Sequence[Record]) -> dict[str, Any]:
    """The best kernel of a board at a glance."""
    best = min((record for record in group if record.score), key=lambda record: record.score or 0.0)
    return {"record": best, "roofline": terminal.geomean(r.roofline_fraction for r in best.cases),
            "peer": terminal.best_peer(best), "modelled": best.evidence is Evidence.MODELLED, "of": len(group)}


def _row(record: Record) -> dict[str, Any]:
    kind = "good" if record.status is Status.PASSED else "idle" if record.status in UNDECIDED else "bad"
    return {
        "record": record, "kind": kind, "roofline": terminal.overall(record, "roofline_fraction"),
        "tflops": terminal.overall(record, "tflops"), "peer": terminal.best_peer(record),
        "modelled": terminal.is_timed(record) and record.evidence is Evidence.MODELLED,
        "left_out": terminal.skipped_note(record),
        "note": terminal.idle_note(record) if record.status in NOT_RUN else terminal.left_note(record)}


def _failure(record: Record) -> dict[str, Any]:
    failing = terminal.failing(record)
    told = {result.message for result, _others in failing}
    return {"record": record, "title": terminal.title_of(record), "diagnostics": terminal.diagnostics(record),
            "message": "" if record.message in told or terminal.is_told(record) else record.message, "cases": failing}


def _board(group: Sequence[Record], series: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """Everything about one problem on one GPU: a bar per case and kernel or peer, and the figures."""
    peers = list(dict.fromkeys(name for r in group for result in r.cases for name in result.peers))
    keys = {name: -1 - number for number, name in enumerate(peers)}
    cases: dict[str, list[tuple[Record, CaseResult]]] = {}
    for record in group:
        for result in record.cases:
            if result.stats:
                cases.setdefault(result.case.name, []).append((record, result))
    names, common = case_columns.distinct_names([found[0][1].case for found in cases.values()])
    bars = []
    for name, found in zip(names, cases.values(), strict=True):
        entries = [(series[record.problem, record.kernel], one_line(record.kernel), result.stats, result)
                   for record, result in found if result.stats]
        host = next((result for _, result in found if result.peers), found[0][1])
        entries += [(keys[peer], one_line(peer), stats, host) for peer, stats in host.peers.items()]
        bars.append((shorten(name, 46), entries))
    beside = next((record for record in group if any(result.peers for result in record.cases)), None)
    return {
        "title": one_line(group[0].problem), "gpu": terminal.target_of(group[0]), "common": common, "peers": peers,
        "modelled": group[0].evidence is Evidence.MODELLED, "chart": charts.bars(bars),
        "legend": [*((series[r.problem, r.kernel], one_line(r.kernel)) for r in group),
                   *((keys[peer], one_line(peer)) for peer in peers)],
        "cases": list(zip(names, cases.values(), strict=True)),
        "unconfirmed": any(doubts.unconfirmed(result) for found in cases.values() for _, result in found),
        "bounded": any(result.roofline_seconds for found in cases.values() for _, result in found),
        "doubts": doubts.doubts([result for found in cases.values() for _, result in found]),
        "beside": one_line(beside.kernel) if beside and len(group) > 1 else "",
        "notes": list(dict.fromkeys(
            first_line(f"{name}: {text}") for r in group for result in r.cases
            for name, text in dict(result.environment.get("peer_notes") or {}).items()))}


def _roofline(group: Sequence[Record], series: Mapping[tuple[str, str], int]) -> dict[str, Any] | None:
    peaks: Mapping[str, float] = next((r.facts.peaks for r in group if r.facts.peaks), {})
    pairs = [(series[record.problem, record.kernel], record) for record in group]
    chart = charts.roofline(pairs, peaks)
    legend = [(number, one_line(f"{record.problem} {record.kernel}")) for number, record in pairs]
    return {"title": terminal.target_of(group[0]), "modelled": group[0].evidence is Evidence.MODELLED, "chart": chart,
            "legend": legend} if chart and chart.roofs else None


def _history(
    record: Record, runs: Iterable[Record], series: Mapping[tuple[str, str], int]
) -> dict[str, Any] | None:
    """The score of ``record`` among the ``runs`` that compare with it."""
    ordered = sorted({run.id: run for run in runs}.values(), key=lambda run: run.created)
    chart = charts.timeline(series[record.problem, record.kernel], ordered)
    return {"record": record, "chart": chart, "modelled": record.evidence is Evidence.MODELLED} if chart else None


def _line_of(record: Record) -> tuple[str, ...]:
    """What two runs of one kernel must share for their scores to compare."""
    return record.problem, record.kernel, record.gpu, record.evidence, record.protocol, workload(record)


def _machines(records: Iterable[Record]) -> list[dict[str, str]]:
    """Every different description of a machine, with the GPUs it was for."""
    found: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for record in records:
        facts = {"compiler": str(record.compile.get("version", "")), "isolation": record.isolation}
        decided = {key: value for key, value in asdict(record.facts).items() if value or key == "emulated"}
        told = {**record.system, **decided}
        facts |= {_label(key): _words(value) for key, value in told.items() if key not in _NOT_SHOWN}
        key = (("GPU", terminal.target_of(record)), ("device", one_line(record.device)))
        known = found.setdefault(key, {})
        for name, value in facts.items():
            if value and value not in known.get(name, "").split(" | "):
                known[one_line(name)] = " | ".join(filter(None, (known.get(name, ""), one_line(value))))
    return [{**{name: value for name, value in key if value}, **facts} for key, facts in found.items()]


def _range(key: str, values: Sequence[Any]) -> str:
    if all(isinstance(value, Mapping) and not _is_reading(value) for value in values):
        parts = {inner: [value[inner] for value in values if inner in value] for value in values for inner in value}
        texts = (f"{_label(str(inner))} {_range(str(inner), found)}" for inner, found in parts.items())
        return ", ".join(texts) or "none"
    flat = [value for entry in values for value in (entry.values() if _is_reading(entry) else [entry])]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in flat):
        show = units.time if key in _SECONDS else "{:.4g}".format
        low, high = (show(value) for value in (min(flat), max(flat)))
        unit = _UNIT_SUFFIXES.get(key.rpartition("_")[2], "") if "_" in key else ""
        return f"{low if low == high else f'{low} – {high}'} {unit}".strip()
    return " | ".join(dict.fromkeys(filter(None, map(_words, values)))) or "none"


def _is_reading(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"min", "median", "max"}


def _label(key: str) -> str:
    words = key.split("_")
    if len(words) > 1 and words[-1] in _UNIT_SUFFIXES:
        words.pop()
    return " ".join({"sm": "SM", "cpu": "CPU", "os": "OS"}.get(word, word) for word in words)


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return str(value)


def _line(value: object) -> str:
    return "" if value is None else one_line(str(value))


def _log(text: str) -> str:
    lines = printable(text).strip("\n").split("\n")
    more = len(lines) - _LOG_LINES
    return "\n".join(lines[:_LOG_LINES] + ([f"… {units.plural(more, 'more line')}"] if more > 0 else []))


def _rest(text: str) -> str:
    """What follows the first line of a message, as a log; "" if it has one line only."""
    return _log(text.strip().partition("\n")[2])


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> dict[Hashable, list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
