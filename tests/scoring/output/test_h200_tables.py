# SPDX-License-Identifier: MIT
"""benchmarks/tools/tables.py: complete Markdown from records of every kind, and nothing that was not measured."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from scoring.record import Status
from tests.scoring.records import record, sample

ROOT = Path(__file__).resolve().parents[3]


def test_records_become_tables(tmp_path: Path) -> None:
    older = record("fp8_gemm", "cuda/wgmma", efficiency=0.1, created="2026-11-01T09:30:00.000+00:00")
    silent = record("mla_decode", "cuda/silent", status=Status.INCORRECT_NUMERICAL, failing=1, case_message="o differs")
    made = [*sample(), older, silent]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(each.to_json()) + "\n" for each in made) + '{"cut')
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks/tools/tables.py"), str(file)], capture_output=True,
                          text=True, check=True)
    assert "fp8_gemm `mfma`: modelled" in done.stderr
    assert "fp8_gemm `mfma`" not in done.stdout
    lines = done.stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("| fp8_gemm `wgmma`")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["6", "6"]
    assert cells[4].endswith("× torch._scaled_mm")
    tables = [line for line in lines if line.startswith("## ")]
    assert len(tables) == 7
    for heading in tables:
        at = lines.index(heading)
        assert lines[at + 4].startswith("| case ")
        assert lines[at + 5].startswith("|:--")
        assert len({line.count("|") for line in lines[at + 4 : at + 8]}) == 1
    assert "o differs" in done.stdout
    assert "nvcc refused the source" in done.stdout


def test_parts_of_a_run_become_one_table(tmp_path: Path) -> None:
    whole = record("fp8_gemm", "cuda/wgmma")
    names = [result.case.name for result in whole.cases]

    def part(first: int, last: int, minute: int, **changes: object) -> str:
        left = replace(whole.facts, cases_unjudged=tuple(names[last:]))
        return json.dumps(replace(
            whole, id=f"{minute:032x}", created=f"2026-11-02T09:{minute:02}:00.000+00:00", status=Status.INCOMPLETE,
            score=None, cases=whole.cases[first:last], facts=left, seed=minute, **changes).to_json()) + "\n"

    def tables(*parts: str) -> str:
        file = tmp_path / "records.jsonl"
        file.write_text("".join(parts))
        command = [sys.executable, str(ROOT / "benchmarks/tools/tables.py"), str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    joined = tables(part(0, 3, 1), part(2, len(names) - 1, 2), part(0, 1, 0, digest="0" * 64))
    assert all(joined.count(f"| {name} ") == 1 for name in names[:-1])
    assert f"{len(names) - 1} of {len(names)} judged" in joined
    assert "INCOMPLETE: 1 cases are missing" in joined
    assert "seed 1, 2" in joined
    complete = tables(part(0, 3, 1), part(2, len(names), 2))
    assert "INCOMPLETE" not in complete
    assert complete.count("| m=") == len(names)
