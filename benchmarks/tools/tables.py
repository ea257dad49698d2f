# SPDX-License-Identifier: MIT
"""The tables of benchmarks/h200.md from what the scorer says, one JSON document per line:

    python -m scoring run --backend cuda --peers --json > records.jsonl
    python benchmarks/tools/tables.py records.jsonl [more.jsonl] > tables.md

A run may be cut in parts (--kernel 'fp8_gemm/*', --case 'm=1024,*'), or be ended early: of a kernel that occurs twice
the newest code counts, and of each of its cases the newest result. What is missing is said. What was modelled or
emulated is left out: the page has what was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scoring.output import terminal, units  # noqa: E402
from scoring.output.table import Column, Style, draw, grid  # noqa: E402
from scoring.record import CaseResult, Evidence, Record, Status, score, worst  # noqa: E402

STYLE = Style("pipe", width=10_000)


def read(paths: Sequence[Path]) -> list[Record]:
    """One record per problem, kernel and target, of the newest code, in order of those names; a cut line is none."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                record = Record.from_json(json.loads(line))
            except ValueError as error:
                print(f"{path}: left out a line: {error}", file=sys.stderr)
                continue
            if record.evidence is not Evidence.MEASURED:
                print(f"{path}: left out {name(record)}: {record.evidence}", file=sys.stderr)
                continue
            found.setdefault((record.problem, record.kernel, record.target), []).append(record)
    return [joined(sorted(found[key], key=lambda record: record.created)) for key in sorted(found)]


def joined(records: Sequence[Record]) -> Record:
    """One record with the newest result of every case that the newest code was judged on; oldest record first."""
    newest = records[-1]
    parts = [record for record in records if record.digest == newest.digest and record.mode is newest.mode]
    if len(parts) == 1:
        return newest
    results = {(result.case.group, result.case.name): result for record in parts for result in record.cases}
    judged = {case for _, case in results}
    left = [case for case in dict.fromkeys(case for record in parts for case in record.unjudged) if case not in judged]
    status = worst([result.status for result in results.values()] + [Status.INCOMPLETE] * bool(left))
    return replace(
        newest, cases=tuple(results.values()), status=status, score=None,
        message=f"{len(left)} cases are missing" if left else newest.message if status is newest.status else "",
        seconds=sum(record.seconds for record in parts), facts=replace(newest.facts, cases_unjudged=tuple(left)),
        system={**newest.system, "seeds": ", ".join(str(record.seed) for record in parts)})


def name(record: Record) -> str:
    return f"{record.problem} `{record.kernel.partition('/')[2]}`"


def timed(record: Record) -> list[CaseResult]:
    return [result for result in record.cases if result.stats is not None]


def peers_of(record: Record) -> list[str]:
    return sorted({name for result in timed(record) for name in result.peers})


def geomean(values: Sequence[float]) -> float:
    return score(values, "geom")


def ahead(record: Record) -> str:
    """For each peer the geometric mean of its time over ours, and of how many cases."""
    found = []
    for peer in peers_of(record):
        ratios = [result.peers[peer].median / result.stats.median for result in timed(record)
                  if result.stats is not None and peer in result.peers]
        found.append(f"{units.ratio(geomean(ratios))} {peer}" + ("" if len(ratios) == len(timed(record)) else
                                                                f" ({len(ratios)} cases)"))
    return ", ".join(found)


def judged(record: Record) -> str:
    """How many cases there are; if not all of them were judged, or passed, how many."""
    passed, every = sum(result.status is Status.PASSED for result in record.cases), len(record.cases)
    left = len(record.unjudged)
    what = f"{passed} of {every + left} passed" if passed < every else f"{every} of {every + left} judged"
    return what if left or passed < every else str(every)


def summary(records: Sequence[Record]) -> str:
    """A row per kernel that has cases, then how many there were."""
    shown = [record for record in records if record.cases]
    times = [[result.stats.median for result in timed(record) if result.stats is not None] for record in shown]
    passed = [sum(result.status is Status.PASSED for result in record.cases) for record in shown]
    every = [len(record.cases) + len(record.unjudged) for record in shown]
    table = grid([
        Column("kernel", [name(record) for record in shown], right=False),
        Column("cases", [judged(record) for record in shown]),
        Column("timed", [str(len(values)) for values in times]),
        Column("geomean", [units.time(geomean(values)) if values else "–" for values in times]),
        Column("beside", [ahead(record) or "–" for record in shown], right=False),
    ], STYLE.fmt)
    minutes, seconds = divmod(round(sum(record.seconds for record in shown)), 60)
    return (f"{table}\n\n{len(shown)} kernels, {sum(every)} cases, "
            f"{'all' if passed == every else sum(passed)} passed, in {minutes} min {seconds} s.")


def reason(record: Record) -> str:
    """Why a record did not pass: what it says, else what its first such case says."""
    told = [record.message, *(f"{result.case.name}: {result.message}" for result in record.cases
                              if result.status is not Status.PASSED)]
    return next((text.splitlines()[0] for text in told if text), "")


def circumstances(record: Record) -> str:
    clocks = [reading[end] for result in timed(record) if (reading := result.environment.get("sm_clock_mhz"))
              for end in ("min", "max")]
    driver, torch = record.system.get("driver"), record.system.get("torch")
    return ", ".join(filter(None, (
        record.created[:10], record.device, f"driver {driver}" if driver else "",
        str(record.compile.get("version", "")).partition(";")[0], f"torch {torch}" if torch else "",
        f"{min(clocks):.0f} to {max(clocks):.0f} MHz" if clocks else "", record.protocol,
        f"seed {record.system.get('seeds', record.seed)}", terminal.left_note(record))))


def against(result: CaseResult, peer: str) -> str:
    if result.stats is None or peer not in result.peers:
        return "–"
    median = result.peers[peer].median
    return f"{units.time(median)} ({units.ratio(median / result.stats.median)})"


def events(result: CaseResult) -> str:
    """What device events said of a case whose time is the judge's own bound; "" of the others."""
    claim = result.environment.get("claim")
    return units.time(claim) if result.environment.get("clock") == "judge" and claim else ""


def cases(record: Record) -> str:
    rows = timed(record)
    stats = [result.stats for result in rows if result.stats is not None]
    return draw([
        Column("case", [result.case.name for result in rows], right=False),
        Column("time", [units.time(one.median) for one in stats]),
        Column("±CI", [units.uncertainty(one.ci_low, one.ci_high, one.median) for one in stats]),
        Column("TFLOP/s", [units.digits(result.tflops) for result in rows]),
        Column("GB/s", [units.digits(result.gbps) for result in rows]),
        Column("of roofline", [units.percent(result.roofline_fraction) for result in rows]),
        Column("events, where the judge's clock counts", [events(result) for result in rows]),
        *(Column(peer, [against(result, peer) for result in rows]) for peer in peers_of(record)),
    ], STYLE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    records = read(parser.parse_args().records)
    print(summary(records))
    for number, record in enumerate(filter(timed, records), 1):
        print(f"\n## {number}. {name(record).replace(' ', ', ', 1)} ({record.target})\n\n{circumstances(record)}\n\n"
              + cases(record))
    for record in records:
        if record.status is not Status.PASSED:
            print(f"\n{name(record)} ({record.target}): {record.status}: {reason(record)}")
    return 0 if records else 1


if __name__ == "__main__":
    sys.exit(main())
