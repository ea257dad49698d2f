# SPDX-License-Identifier: MIT
"""The cases of one record as columns of a table, the tables of single and warm calls below it, and notes on peers."""

from __future__ import annotations

from collections.abc import Sequence

from scoring.output import units
from scoring.output.doubts import interval, unconfirmed
from scoring.output.table import Column, Style, draw, shorten
from scoring.output.text import first_line, one_line
from scoring.record import Case, CaseResult, Stats, Status


def columns(
    results: Sequence[CaseResult], names: Sequence[str], time: str, wanted: Sequence[str], verbose: bool = False,
) -> list[Column]:
    """The columns of a record's table. ``time``: the heading of times; ``wanted``: what is expected of each case."""
    peers = list(dict.fromkeys(name for result in results for name in result.peers))
    untimed = not any(result.stats for result in results)
    notes = [one_line(result.message) if untimed and result.status is Status.PASSED else "" for result in results]
    bounds = [one_line(result.bound) if result.stats else "" for result in results]
    return [
        Column("case", names, right=False),
        Column("status", [str(result.status) for result in results], right=False),
        Column(time, [units.time(result.stats.median) if result.stats else "" for result in results]),
        Column("±CI", [interval(result.stats) for result in results]),
        Column("expected", wanted, optional=97),
        *(_spread([result.stats for result in results]) if verbose else ()),
        Column("claimed", [unconfirmed(result) for result in results], optional=94),
        rates([result.tflops for result in results], "FLOP/s", 1e12, 95),
        rates([result.gbps for result in results], "B/s", 1e9, 96),
        Column("roofline", [units.percent(result.roofline_fraction) for result in results]),
        Column("bound", bounds, right=False, optional=99),
        *(Column(f"vs {shorten(one_line(peer), 24)}", [_against(result, peer) for result in results], optional=number)
          for number, peer in enumerate(peers, start=2)),
        Column("note", [shorten(note, 60) for note in notes], right=False, optional=98),
    ]


def single_calls(results: Sequence[CaseResult], names: Sequence[str], style: Style) -> list[str]:
    """A table of the single calls, where they were asked for."""
    found = [(name, result.calls) for name, result in zip(names, results, strict=True) if result.calls]
    if not found:
        return []
    drawn = draw([
        Column("single calls", [name for name, _ in found], right=False),
        Column("calls", [str(stats.runs) for _, stats in found]),
        Column("p50", [units.time(stats.median) for _, stats in found]),
        *_spread([stats for _, stats in found]),
    ], style)
    return ["", drawn]


def warm_calls(results: Sequence[CaseResult], names: Sequence[str], style: Style) -> list[str]:
    """A table of the calls that repeat one slot beside the time, where they were asked for."""
    found = [(name, r, r.warm, r.stats) for name, r in zip(names, results, strict=True) if r.warm and r.stats]
    if not found:
        return []
    drawn = draw([
        Column("warm", [name for name, *_ in found], right=False),
        Column("cold", [units.time(stats.median) for *_, stats in found]),
        Column("warm", [units.time(warm.median) for _, _, warm, _ in found]),
        Column("cold/warm", [f"{stats.median / warm.median:.2f}" for _, _, warm, stats in found]),
        Column("GB/s warm", [f"{r.bytes_moved / warm.median / 1e9:.4g}" for _, r, warm, _ in found]),
        Column("", [_beyond(r, warm) for _, r, warm, _ in found], right=False),
    ], style)
    return ["", drawn]


def peer_notes(results: Sequence[CaseResult]) -> list[str]:
    """Why a peer has no time: one line per peer and reason."""
    found: dict[tuple[str, str], int] = {}
    for result in results:
        for peer, reason in (result.environment.get("peer_notes") or {}).items():
            key = (one_line(str(peer)), shorten(first_line(str(reason)), 100))
            found[key] = found.get(key, 0) + 1
    return [f"no time of {peer} in {units.plural(count, 'case')}: {reason}" for (peer, reason), count in found.items()]


def distinct_names(cases: Sequence[Case]) -> tuple[list[str], str]:
    """Names of cases without the parameters that all of them share, and those."""
    shared = dict(cases[0].params) if len(cases) > 1 else {}
    for case in cases[1:]:
        shared = {key: value for key, value in shared.items() if case.params.get(key) == value}
    names = [Case({key: value for key, value in case.params.items() if key not in shared}).name for case in cases]
    if not all(names):                                    # all the same: then the parameters are their names
        return [one_line(case.name) for case in cases], ""
    return [one_line(name) for name in names], one_line(Case(shared).name)


def _spread(stats: Sequence[Stats | None]) -> list[Column]:
    """Minimum, percentiles and maximum of every row."""
    return [Column(header, [units.time(getattr(each, name)) if each and each.runs > 1 else "" for each in stats])
            for header, name in (("min", "best"), ("p10", "p10"), ("p90", "p90"), ("max", "worst"))]


def rates(values: Sequence[float | None], unit: str, usual: float, optional: int) -> Column:
    """A column of rates that are given in ``usual`` per second."""
    header, cells = units.rates([None if value is None else value * usual for value in values], unit, usual)
    return Column(header, cells, optional=optional)


def _against(result: CaseResult, peer: str) -> str:
    if result.stats is None or peer not in result.peers:
        return ""
    median = result.peers[peer].median
    return f"{units.time(median)} {units.ratio(median / result.stats.median):>6}"


def _beyond(result: CaseResult, warm: Stats) -> str:
    """What a warm time that no memory allows says."""
    limit = result.roofline_seconds if result.bound == "bytes" else None
    return "faster than memory: read from the cache" if limit and warm.median < limit else ""
