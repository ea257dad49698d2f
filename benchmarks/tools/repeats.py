# SPDX-License-Identifier: MIT
"""Whether a time lies in its stated interval when the same file is judged again.

    python benchmarks/tools/repeats.py 10 --backend cpu --problem fp8_gemm --kernel cpu/naive

The first argument is how often; all others are those of ``python -m scoring run``, each in a process of its own. One
row per case and judgement: its time and interval, how many of the other judgements' times lie in it, and what the judge
says of the machine. Exit code 1 if less than nine of ten do, over all pairs of judgements of a case.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scoring.output import units  # noqa: E402
from scoring.output.doubts import interval  # noqa: E402
from scoring.output.table import Column, grid  # noqa: E402
from scoring.record import CaseResult, Record  # noqa: E402

WANTED = 0.9


def judged(arguments: Sequence[str]) -> list[Record]:
    """The records of one ``scoring run``. Raises ``SystemExit`` with what it said if there are none."""
    done = subprocess.run([sys.executable, "-m", "scoring", "run", "--json", *arguments], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(done.stderr)
    return [Record.from_json(json.loads(line)) for line in done.stdout.splitlines()]


def held(results: Sequence[CaseResult]) -> list[int]:
    """How many of the other judgements' times lie in the interval of each judgement of one case."""
    times = [result.stats for result in results if result.stats is not None]
    return [sum(one.ci_low <= other.median <= one.ci_high for other in times) - 1 for one in times]


def row(number: int, result: CaseResult, inside: int, count: int) -> list[str]:
    stats, machine = result.stats, result.environment.get("machine", {})
    assert stats is not None
    pressure = machine.get("pressure")
    return [
        str(number), units.time(stats.median, 4), f"{units.time(stats.ci_low)} – {units.time(stats.ci_high)}",
        interval(stats), f"{inside}/{count - 1}", "" if pressure is None else units.percent(pressure),
        units.digits(machine.get("load"))]


def main() -> int:
    """Judge, print a table per case, and say how often a time lay in the interval of another judgement."""
    count, arguments = int(sys.argv[1]), sys.argv[2:]
    found: dict[tuple[str, str, str, str], list[CaseResult]] = {}
    for _judgement in range(count):
        for record in judged(arguments):
            for result in record.cases:
                if result.stats is not None:
                    key = record.problem, record.kernel, str(result.case.group), result.case.name
                    found.setdefault(key, []).append(result)
    shares = []
    for names, results in found.items():
        inside = held(results)
        rows = [row(number, result, hit, len(results))
                for number, (result, hit) in enumerate(zip(results, inside, strict=True), 1)]
        headers = ("", "time", "interval", "±CI", "others inside", "CPU pressure", "load")
        print(" · ".join(names))
        print(grid([Column(header, cells) for header, *cells in zip(headers, *rows, strict=True)], "github"))
        shares.append(sum(inside) / max(1, len(inside) * (len(inside) - 1)))
        middle = statistics.median(result.stats.median for result in results if result.stats)
        holds = sum(r.stats.ci_low <= middle <= r.stats.ci_high for r in results if r.stats)
        print(f"{units.percent(shares[-1])} of the times lie in the interval of another judgement; "
              f"{holds} of {len(results)} intervals hold the median of all\n", flush=True)
    return 0 if shares and min(shares) >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
