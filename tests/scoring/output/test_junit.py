# SPDX-License-Identifier: MIT
"""The XML is well formed whatever the text in it, counts add up, and verdicts land in the right element."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.output import junit
from scoring.record import Evidence, Mode, Record, Status
from tests.scoring.records import compile_error, record, sample, unavailable


def parse(*records: Record) -> ET.Element:
    return ET.fromstring(junit.document(records).encode())


def outcome(testcase: ET.Element) -> str:
    """passed, failure, error or skipped; exactly one of them."""
    kinds = [child.tag for child in testcase if child.tag in ("failure", "error", "skipped")]
    assert len(kinds) <= 1
    return kinds[0] if kinds else "passed"


def check_structure(root: ET.Element) -> None:
    """What every reader of the dialect relies on."""
    assert root.tag == "testsuites"
    totals = dict.fromkeys(("tests", "failure", "error", "skipped"), 0)
    for suite in root:
        assert suite.tag == "testsuite"
        testcases = suite.findall("testcase")
        found = [outcome(testcase) for testcase in testcases]
        assert int(suite.attrib["tests"]) == len(testcases) > 0
        for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.attrib[plural]) == found.count(kind)
            totals[kind] += found.count(kind)
        totals["tests"] += len(testcases)
        float(suite.attrib["time"])
        names = [testcase.attrib["name"] for testcase in testcases]
        assert len(set(names)) == len(names)
        for testcase in testcases:
            assert set(testcase.attrib) == {"classname", "name", "time"}
            assert float(testcase.attrib["time"]) >= 0
        assert suite[0].tag == "properties"
        assert all(set(entry.attrib) == {"name", "value"} for entry in suite[0])
    assert int(root.attrib["tests"]) == totals["tests"]
    assert int(root.attrib["failures"]) == totals["failure"]
    assert int(root.attrib["errors"]) == totals["error"]
    assert int(root.attrib["skipped"]) == totals["skipped"]


def test_the_sample_is_valid() -> None:
    root = parse(*sample())
    check_structure(root)
    assert len(root) == len(sample())


def test_no_records_is_an_empty_document() -> None:
    assert parse().attrib["tests"] == "0"


def test_a_case_is_named_after_backend_arch_problem_variant_and_parameters() -> None:
    made = record(cases=1)
    made = replace(made, cases=[replace(made.cases[0], seconds=3.25)])
    testcase = parse(made).find("testsuite/testcase")
    assert testcase is not None
    assert testcase.attrib["classname"] == "cuda.sm_90a.fp8_gemm"
    assert testcase.attrib["name"] == "wgmma[m=64,n=7168,k=2048]"
    assert float(testcase.attrib["time"]) == 3.25, "wall time: a call takes microseconds"


def test_a_modelled_time_is_said_to_be_one_and_is_no_time_attribute() -> None:
    testcase = parse(record(gpu="MI300", cases=1, evidence=Evidence.MODELLED)).find("testsuite/testcase")
    assert testcase is not None
    assert float(testcase.attrib["time"]) == 0
    assert (testcase.findtext("system-out") or "").startswith("modelled: ")


@pytest.mark.parametrize(("status", "kind"), [
    (Status.INCORRECT_NUMERICAL, "failure"), (Status.INCORRECT_SHAPE, "failure"), (Status.INCORRECT_DTYPE, "failure"),
    (Status.MUTATED_INPUT, "failure"), (Status.TAMPERED, "failure"), (Status.TIMING_MISMATCH, "failure"),
    (Status.RUNTIME_ERROR, "error"), (Status.TIMEOUT, "error"), (Status.SANDBOX_VIOLATION, "error"),
    (Status.UNSUPPORTED, "failure"), (Status.UNAVAILABLE, "skipped"),
])
def test_each_status_has_its_element(status: Status, kind: str) -> None:
    root = parse(record(mode=Mode.TEST, status=status, failing=2, case_message="first line\nsecond line"))
    check_structure(root)
    testcases = root.findall("testsuite/testcase")
    assert [outcome(testcase) for testcase in testcases] == [kind, kind, *["passed"] * (len(testcases) - 2)]
    found = testcases[0].find(kind)
    assert found is not None
    assert found.attrib["message"] == "first line"
    if kind != "skipped":
        assert found.attrib["type"] == status
        assert found.text == "first line\nsecond line"


def test_a_compile_error_is_one_error_with_the_compilers_messages() -> None:
    root = parse(compile_error())
    check_structure(root)
    (testcase,) = root.findall("testsuite/testcase")
    assert testcase.attrib["name"] == "cluster"
    error = testcase.find("error")
    assert error is not None
    assert error.attrib == {"message": "nvcc refused the source", "type": "COMPILE_ERROR"}
    assert 'kernels/cuda/mla_decode/cluster.cu:42: error: identifier "barier" is undefined' in (error.text or "")


def test_an_unavailable_record_is_skipped_with_its_reason() -> None:
    skipped = parse(unavailable()).find("testsuite/testcase/skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "compiled; not run: no AMD GPU and no emulator on this machine"


def test_a_record_that_failed_though_its_cases_passed_has_a_failing_case() -> None:
    root = parse(replace(record(mode=Mode.TEST), status=Status.TAMPERED, message="the clock was patched"))
    check_structure(root)
    testcases = root.findall("testsuite/testcase")
    assert [outcome(testcase) for testcase in testcases][-1] == "failure"
    assert testcases[-1].attrib["name"] == "wgmma"


def test_equal_cases_get_different_names() -> None:
    made = record(cases=1)
    root = parse(replace(made, cases=made.cases * 3))
    check_structure(root)
    assert [t.attrib["name"] for t in root.iter("testcase")][1:] == [
        "wgmma[m=64,n=7168,k=2048] #2", "wgmma[m=64,n=7168,k=2048] #3"]


@given(text=st.text(min_size=1))
def test_any_text_makes_valid_xml(text: str) -> None:
    root = parse(record(mode=Mode.TEST, kernel=text, problem="fp8_gemm", status=Status.INCORRECT_NUMERICAL, failing=1,
                        case_message=text, message=text, device=text))
    check_structure(root)


def test_control_characters_and_markup_come_back_spelled_out() -> None:
    root = parse(record(mode=Mode.TEST, kernel="cuda/<b>&\"'", status=Status.RUNTIME_ERROR, failing=1,
                        case_message="\x00\x1b[31m ]]> \ufffe <script>alert(1)</script>"))
    (error,) = root.iter("error")
    assert error.text == "\\x00\\x1b[31m ]]> \\ufffe <script>alert(1)</script>"
    testcase = root.find("testsuite/testcase")
    assert testcase is not None
    assert testcase.attrib["name"].startswith("<b>&\"'[")
