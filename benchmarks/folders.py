# SPDX-License-Identifier: MIT
"""What happens on this machine with every problem folder of a checkout in GPU MODE's form.

    python benchmarks/folders.py CHECKOUT [--cases N] [--match GLOB] [--markdown] [--json]

Each folder is tried with its own ``submission.py``, in test mode, on its first N tests (default: 1). Where that comes
to no verdict, the folder's reference answers for it, so that one sees whether the folder itself works here. Nothing is
timed, kept or copied. The last line counts; the exit code is 0 if every folder could be read, 1 if not, 2 for usage.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import backends
from scoring.config.load import load_config
from scoring.judge.score import score
from scoring.output.text import one_line
from scoring.popcorn.task import TaskError
from scoring.problem import Problem, ProblemError
from scoring.record import Case, Mode, Record, Status
from scoring.run import targets
from scoring.run.job import make_submission_job

NO_VERDICT = (Status.UNAVAILABLE, Status.COMPILE_ERROR, Status.TIMEOUT)


@dataclass(frozen=True)
class Row:
    """One folder: what its template and, where that says nothing, its reference came to."""

    folder: str
    template: str          # a status, or "cannot be read"
    reference: str         # a status, or "" if it was not asked
    why: str
    seconds: float

    @property
    def verdict(self) -> bool:
        return any(word and word not in (*map(str, NO_VERDICT), "cannot be read")
                   for word in (self.template, self.reference))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a folder with task.yml files somewhere below it")
    parser.add_argument("--cases", type=int, default=1, metavar="N", help="tests of each folder (default: 1)")
    parser.add_argument("--match", default="*", metavar="GLOB", help="only folders whose path matches")
    parser.add_argument("--markdown", action="store_true", help="as a Markdown table")
    parser.add_argument("--json", action="store_true", help="one JSON object per folder")
    options = parser.parse_args()
    found = sorted(path.parent for path in options.checkout.rglob("task.yml"))
    names = {path.relative_to(options.checkout).as_posix(): path for path in found}
    chosen = {name: path for name, path in names.items() if fnmatch.fnmatch(name, options.match)}
    if not chosen:
        print(f"error: no task.yml below {options.checkout} in a folder that matches", file=sys.stderr)
        return 2
    if options.markdown:
        print("| folder | its template | its reference | why |\n|---|---|---|---|")
    rows = []
    for row in sweep(chosen, options.cases):
        rows.append(row)
        if options.json:
            print(json.dumps(vars(row)), flush=True)
        elif options.markdown:
            print(f"| {row.folder} | {row.template} | {row.reference} | {row.why.replace('|', '/')} |", flush=True)
        else:
            print(f"{row.folder:44} {row.template:20} {row.reference:20} {row.seconds:6.0f} s  {row.why}", flush=True)
    lost = sum(row.template == "cannot be read" for row in rows)
    print(f"{len(rows)} folders: {len(rows) - lost} read, {sum(row.verdict for row in rows)} with a verdict, "
          f"{sum(row.template == Status.PASSED for row in rows)} templates passed", file=sys.stderr)
    return 1 if lost else 0


def sweep(folders: dict[str, Path], count: int) -> Iterator[Row]:
    """A row for each folder, by name."""
    for name, path in folders.items():
        started = time.monotonic()
        try:
            problem = Problem(path)
        except (ProblemError, TaskError) as error:
            yield Row(name, "cannot be read", "", one_line(str(error)), time.monotonic() - started)
            continue
        cases = problem.tests[:count]
        record = judged(path, path / "submission.py", cases)
        other = ""
        why = reason(record)
        if record.status in NO_VERDICT:
            with tempfile.TemporaryDirectory() as folder:
                answer = Path(folder) / "submission.py"
                answer.write_text(by_reference(problem), encoding="utf-8")
                second = judged(path, answer, cases)
            other = str(second.status)
            why = "; ".join(dict.fromkeys(filter(None, [why, reason(second)])))
        yield Row(name, str(record.status), other, why.replace(f"{path}/", ""), time.monotonic() - started)


def by_reference(problem: Problem) -> str:
    """A submission that answers as the folder's reference does, which lies beside it when it runs."""
    try:
        entries = problem.entry_points
    except ProblemError:
        entries = None
    if entries is None:
        return "from reference import ref_kernel as custom_kernel\n"
    return "".join(f"from reference import {function.__name__} as {name}\n"
                   for name, function, _positions in entries.functions)


def judged(folder: Path, submission: Path, cases: Sequence[Case]) -> Record:
    """The record of a submission on the CPU, in test mode."""
    settings = load_config({"mode": "test"}, None)
    backend = backends.get("cpu")
    (place, *_others) = targets.places(settings, backend, backend.probe(), None)
    with tempfile.TemporaryDirectory(prefix="warpwave-") as staging:
        problem = Problem(folder)
        job = make_submission_job(settings, problem, place, submission, Path(staging), Mode.TEST, cases, False)
        return score(job)


def reason(record: Record) -> str:
    """Why a record is what it is, in one sentence; "" of a pass."""
    skipped = record.facts.cases_skipped_why
    if record.status is Status.PASSED:
        return f"some cases are {skipped}" if skipped else ""
    lines = (record.message or skipped).strip().splitlines()
    return one_line(lines[-1] if record.status is Status.COMPILE_ERROR and lines else (lines or [""])[0])[:200]


if __name__ == "__main__":
    sys.exit(main())
