# SPDX-License-Identifier: MIT
"""What somebody expects of a kernel (its ``expect`` directives) beside what was measured. Nothing here judges.

An expectation is a line "CASEGLOB LOW-HIGHUNIT@GPU" (``backends.source``). It speaks of one GPU: a measurement on
another GPU, and a modelled or emulated one, is no answer to it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scoring.output import units
from scoring.output.table import Column, Style, draw
from scoring.output.text import one_line
from scoring.record import Case, CaseResult, Evidence, Record


class Row(NamedTuple):
    """One expectation: ``kernel`` as records call it, ``measured`` on that GPU, "" where nothing was."""

    problem: str
    kernel: str
    cases: str
    gpu: str
    figure: str
    measured: str


def of_case(lines: Iterable[str], case: Case, gpu: str) -> str:
    """What ``lines`` say of a case on ``gpu``, with the GPU's name where it is another one; "" if nothing."""
    found = []
    for line in lines:
        cases, figure, wanted = _parts(line)
        if fnmatch.fnmatch(case.name, cases):
            found.append(figure if wanted.lower() == gpu.lower() else f"{figure} on {wanted}")
    return one_line(", ".join(found))


def rows(problem: str, kernel: str, lines: Iterable[str], records: Iterable[Record]) -> list[Row]:
    """A row per line, in their order. ``records``, newest first, are searched for what was measured."""
    own = [record for record in records if (record.problem, record.kernel) == (problem, kernel)]
    made = []
    for line in lines:
        cases, figure, gpu = map(one_line, _parts(line))
        made.append(Row(one_line(problem), one_line(kernel), cases, gpu, figure, _measured(own, cases, figure, gpu)))
    return made


def table(found: Sequence[Row], style: Style) -> str:
    """The rows under a heading that says what they are; "" if there are none."""
    if not found:
        return ""
    drawn = draw([
        Column("problem", [row.problem for row in found], right=False),
        Column("kernel", [row.kernel for row in found], right=False),
        Column("GPU", [row.gpu for row in found], right=False),
        Column("expected", [row.figure for row in found]),
        Column("measured", [row.measured for row in found]),
        Column("case", [row.cases for row in found], right=False),
    ], style)
    return f"{style.heading('Expected, by the kernel files; nothing is judged by it')}\n{drawn}"


def _parts(line: str) -> tuple[str, str, str]:
    """(case glob, figure, GPU)."""
    cases, _, text = line.partition(" ")
    figure, _, gpu = text.partition("@")
    return cases, figure, gpu


def _measured(records: Iterable[Record], cases: str, figure: str, gpu: str) -> str:
    """The newest measurement of the first case that ``cases`` matches, in the figure's unit; "" if there is none."""
    for record in records:
        if record.gpu.lower() != gpu.lower() or record.evidence is not Evidence.MEASURED or record.facts.emulated:
            continue
        for result in record.cases:
            if fnmatch.fnmatch(result.case.name, cases) and (text := _in_unit_of(figure, result)):
                return text
    return ""


def _in_unit_of(figure: str, result: CaseResult) -> str:
    """A result's time or rate, whichever ``figure`` is; "" of one without a time, and of a rate per SM."""
    if not result.stats:
        return ""
    if figure.endswith("FLOP/s"):
        return f"{result.tflops:.3g} TFLOP/s" if result.tflops else ""
    if figure.endswith("B/s"):
        return f"{result.gbps:.3g} GB/s" if result.gbps else ""
    return "" if figure.endswith("/SM") else units.time(result.stats.median)
