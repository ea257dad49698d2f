# SPDX-License-Identifier: MIT
"""Where a kernel stands beside the best peer of each row, from records of ``run --peers --against``.

    python -m scoring run --kernel fp8_gemm/wgmma_tma --peers --against OLD.cu --records races.jsonl --case …
    python benchmarks/tools/standing.py races.jsonl [--group FIELD=LOW-HIGH]

One row per case: times, then each rival's time over the kernel's (above 1 the kernel is faster). Below it the geometric
mean and the worst row against the best peer, and against each rival that is no peer. Rows without a peer's time are
counted and left out of the means.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scoring.output import units  # noqa: E402
from scoring.output.table import Column, Style, draw  # noqa: E402
from scoring.record import CaseResult, Record, Rival, Status  # noqa: E402

STYLE = Style("pipe", width=10_000)


def best(result: CaseResult) -> Rival | None:
    """The fastest peer that was right and has a ratio."""
    peers = [rival for rival in (result.race.rivals if result.race else ()) if rival.peer and rival.ratio is not None]
    return min(peers, key=lambda rival: rival.ratio or 0.0, default=None)


def others(result: CaseResult) -> list[Rival]:
    """Rivals that are no peers and have a ratio."""
    rivals = result.race.rivals if result.race else ()
    return [rival for rival in rivals if not rival.peer and rival.ratio is not None]


def report(record: Record, rows: list[CaseResult]) -> str:
    """The table of these rows and what they come to."""
    peers = [best(row) for row in rows]
    columns = [
        Column("case", [row.case.name for row in rows], right=False),
        Column("time", [units.time(row.race.stats.median) if row.race and row.race.stats else "" for row in rows]),
        Column("best peer", [peer.name if peer else "" for peer in peers], right=False),
        Column("its ratio", [f"{peer.ratio:.3f}" if peer and peer.ratio else "" for peer in peers])]
    against = {name: [next((rival.ratio for rival in others(row) if rival.name == name), None) for row in rows]
               for name in dict.fromkeys(rival.name for row in rows for rival in others(row))}
    columns += [Column(name, [f"{ratio:.3f}" if ratio else "" for ratio in ratios]) for name, ratios in against.items()]
    against = {"best peer": [peer.ratio if peer else None for peer in peers]} | against
    lines = [draw(columns, STYLE), ""]
    for name, ratios in against.items():
        found = [ratio for ratio in ratios if ratio is not None]
        if found:
            lines.append(f"{record.problem} · {record.kernel} · {record.device}: {name}, {len(found)} of {len(rows)} "
                         f"rows, geometric mean {statistics.geometric_mean(found):.3f}, worst {min(found):.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--group", metavar="FIELD=LOW-HIGH", help="only rows whose parameter lies in this range")
    options = parser.parse_args()
    field, _, range_of = (options.group or "").partition("=")
    low, high = map(int, range_of.split("-")) if field else (0, 0)
    for path in options.records:
        for line in path.read_text().splitlines():
            record = Record.from_json(json.loads(line))
            rows = [row for row in record.cases if row.status is Status.PASSED and row.race
                    and (not field or low <= int(str(row.case.params[field])) <= high)]
            if rows:
                print(report(record, rows), end="\n\n")


if __name__ == "__main__":
    main()
