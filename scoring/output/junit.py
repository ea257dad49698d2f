# SPDX-License-Identifier: MIT
"""Records as JUnit XML, the dialect CI systems agree on: a test suite per record, a test case per case.

``time`` of a test case is the wall time spent on it, in seconds, as everywhere in JUnit; what a call takes, measured or
modelled, stands in ``system-out``. Text is made safe for XML, whoever wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from scoring.output import units
from scoring.output.doubts import doubts
from scoring.output.table import NOT_RUN
from scoring.output.terminal import diagnostics, idle_note, left_note, title_of
from scoring.output.text import one_line, printable
from scoring.record import CaseResult, Record, Status

# The machinery broke or was stopped, as against an answer that is wrong.
_ERRORS = (Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.SANDBOX_VIOLATION,
           Status.INCOMPLETE)


def document(records: Sequence[Record]) -> str:
    """The XML document, with its declaration."""
    suites = [_suite(record) for record in records]
    root = ET.Element("testsuites", {"name": "warpwave", **_totals(suites), "time": _seconds(
        sum(record.seconds for record in records))})
    root.extend(suites)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(record: Record) -> ET.Element:
    cases = _testcases(record)
    suite = ET.Element("testsuite", {
        "name": title_of(record), "tests": str(len(cases)), **_counts(cases), "time": _seconds(record.seconds),
        "timestamp": one_line(record.created[:19])})
    properties = ET.SubElement(suite, "properties")
    facts = {
        "id": record.id, "status": record.status, "mode": record.mode, "gpu": record.gpu, "device": record.device,
        "digest": record.digest, "protocol": record.protocol, "isolation": record.isolation,
        "evidence": record.evidence, "score_seconds": repr(record.score) if record.score is not None else "",
        "compiler": str(record.compile.get("version", ""))}
    for name, value in facts.items():
        if value:
            ET.SubElement(properties, "property", {"name": name, "value": one_line(value)})
    suite.extend(cases)
    return suite


def _testcases(record: Record) -> list[ET.Element]:
    """One per case; and one for the kernel itself where the record says more than its cases do."""
    variant = one_line(record.kernel).rsplit("/", 1)[-1]
    classname = one_line(f"{record.backend}.{record.target}.{record.problem}")
    elements, seen = [], Counter[str]()
    for result in record.cases:
        name = f"{variant}[{one_line(result.case.name)}]"
        seen[name] += 1
        element = ET.Element("testcase", {
            "classname": classname, "name": f"{name} #{seen[name]}" if seen[name] > 1 else name,
            "time": _seconds(result.seconds)})
        note = idle_note(record) if record.status is result.status is Status.UNAVAILABLE else ""
        _add_outcome(element, result.status, result.message or note, result.message)
        _add_output(element, record, result)
        elements.append(element)
    if record.unjudged:
        element = ET.Element("testcase", {"classname": classname, "name": variant, "time": _seconds(record.seconds)})
        _add_outcome(element, Status.INCOMPLETE, left_note(record), "\n".join(record.unjudged))
        elements.append(element)
    elif record.status not in {result.status for result in record.cases} and (
            record.status is not Status.PASSED or not record.cases):
        element = ET.Element("testcase", {"classname": classname, "name": variant, "time": _seconds(record.seconds)})
        note = idle_note(record) if record.status in NOT_RUN else record.message
        _add_outcome(element, record.status, note, "\n".join([*diagnostics(record), record.message]))
        elements.append(element)
    return elements


def _add_outcome(element: ET.Element, status: Status, message: str, text: str) -> None:
    if status is Status.PASSED:
        return
    kind = "skipped" if status in NOT_RUN else "error" if status in _ERRORS else "failure"
    first = printable(message).strip().split("\n")[0] or str(status)
    outcome = ET.SubElement(element, kind, {"message": one_line(first)})
    if kind != "skipped":
        outcome.set("type", status)
        outcome.text = printable(text).strip() or None


def _add_output(element: ET.Element, record: Record, result: CaseResult) -> None:
    if result.stats is None:
        return
    facts = [f"{record.evidence}: {units.time(result.stats.median)} "
             f"{units.uncertainty(result.stats.ci_low, result.stats.ci_high, result.stats.median)}"]
    facts += doubts([result])
    if result.tflops is not None:
        facts.append(f"{units.digits(result.tflops)} TFLOP/s")
    if result.gbps is not None:
        facts.append(f"{units.digits(result.gbps)} GB/s")
    if result.roofline_fraction is not None:
        facts.append(f"{units.percent(result.roofline_fraction)} of the roofline")
    facts += [f"{units.ratio(peer.median / result.stats.median)} {one_line(name)}"
              for name, peer in result.peers.items()]
    ET.SubElement(element, "system-out").text = ", ".join(facts)


def _counts(cases: Sequence[ET.Element]) -> dict[str, str]:
    return {plural: str(sum(case.find(kind) is not None for case in cases))
            for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped"))}


def _totals(suites: Sequence[ET.Element]) -> dict[str, str]:
    return {name: str(sum(int(suite.get(name, "0")) for suite in suites))
            for name in ("tests", "failures", "errors", "skipped")}


def _seconds(value: float) -> str:
    return f"{value:.9f}"
