# SPDX-License-Identifier: MIT
"""GPU MODE's dialect, stated as examples of what its runners write and read, and fuzzed where users write it."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from scoring.popcorn.cases import CaseError, format_case, parse_case, read_cases, write_cases
from scoring.popcorn.directives import cli_directives, server_directives
from scoring.popcorn.labels import LEADERBOARDS
from scoring.popcorn.report import (
    CaseReport,
    Report,
    ReportError,
    combine_seed,
    exit_code,
    format_entry,
    parse_entries,
    parse_report,
)
from scoring.popcorn.task import Task, TaskError, load_task, parse_task
from scoring.record import ExitCode

KEYS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=12)
VALUES = st.integers(-(2**70), 2**70) | KEYS
CASES = st.dictionaries(KEYS, VALUES, min_size=1, max_size=8)

TASK = """\
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: eval.py, source: ../eval.py}
lang: py
config: {main: eval.py}
description: d
tests:
  - {m: 1, lens: ragged, seed: 7}
benchmarks:
  - {m: 2, lens: uniform, seed: 8}
ranking_by: geom
"""


def parse(text: str) -> Task:
    return parse_task(text, Path("t/task.yml"))


# Case files


def test_case_line_is_written_as_the_runner_writes_it() -> None:
    assert format_case({"m": 1024, "n": 1536, "k": 7168, "seed": 1}) == "m: 1024; n: 1536; k: 7168; seed: 1"


@given(st.lists(CASES, max_size=5))
def test_case_file_round_trip(cases: list[dict[str, int | str]]) -> None:
    text = write_cases(cases, "test")
    assert read_cases(text, strict=True) == cases
    assert read_cases(text) == cases


def test_reader_takes_spaces_and_signs() -> None:
    assert parse_case("  a:5 ;b:   -3; c: +4 ; d: word") == {"a": 5, "b": -3, "c": 4, "d": "word"}


def test_lists_of_integers_are_read_unless_strict() -> None:
    assert parse_case("m: [96, 128]; n: (1,); g: 2") == {"m": [96, 128], "n": [1], "g": 2}
    assert parse_case(format_case({"m": [96, -128]})) == {"m": [96, -128]}
    with pytest.raises(CaseError, match="m"):
        parse_case("m: [96, 128]", strict=True)
    with pytest.raises(CaseError):       # and soon: no pattern tries every way to split this
        parse_case("m: [" + "1" * 5000 + "x]")


def test_yaml_booleans_arrive_as_words() -> None:
    assert parse_case(format_case({"bias": False})) == {"bias": "False"}


@pytest.mark.parametrize("line", [
    "", "a", "a: ", ": 1", "a: 1;", "a: 1; ; b: 2", "a: 1.5", "a: [1, x]", "a: []", "a: [1", "a = 1", "a: -x",
    "a : 1", "a: 1 2", "ä: 1", "a: ٣", "a: " + "9" * 5000,
])
def test_reader_refuses(line: str) -> None:
    with pytest.raises(CaseError):
        parse_case(line)


def test_identifiers_are_read_unless_strict() -> None:
    assert parse_case("world_size: 8; kind: a_1") == {"world_size": 8, "kind": "a_1"}
    with pytest.raises(CaseError, match="world_size"):
        parse_case("world_size: 8", strict=True)
    with pytest.raises(CaseError, match="m2"):
        parse_case("m2: 8", strict=True)


def test_reader_names_the_line() -> None:
    with pytest.raises(CaseError, match="line 2"):
        read_cases("a: 1\nnonsense\n")


@given(st.text())
def test_reader_only_raises_case_errors(text: str) -> None:
    try:
        cases = read_cases(text)
    except CaseError:
        return
    assert read_cases(write_cases(cases, "test")) == cases


def test_ranked_run_under_last_gets_the_last_case_alone() -> None:
    cases = [{"m": 1}, {"m": 2}]
    assert write_cases(cases, "leaderboard", "last") == "m: 2\n"
    assert write_cases(cases, "benchmark", "last") == "m: 1\nm: 2\n"
    assert write_cases(cases, "leaderboard", "geom") == "m: 1\nm: 2\n"


# Seeds


def test_seed_pairing() -> None:
    assert combine_seed(5, None) == 5
    assert combine_seed(0, 0) == 0
    assert combine_seed(5, 0) == 5 + 5 * 6 // 2        # a secret of 0 is one
    assert combine_seed(3, 4) == 3 + 7 * 8 // 2


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_seed_pairing_is_injective(a: int, b: int, c: int, d: int) -> None:
    assert (combine_seed(a, b) == combine_seed(c, d)) == ((a, b) == (c, d))


# Directives


def test_server_reads_the_leading_comment_block_only() -> None:
    text = "#!POPCORN leaderboard amd-fp8-mm\n# words\n//!POPCORN GPU MI300 H100\nimport torch\n#!POPCORN nonsense\n"
    found = server_directives(text)
    assert (found.leaderboard, found.gpus, found.errors) == ("amd-fp8-mm", ("MI300", "H100"), ())
    assert found.lines == {"leaderboard": 1, "gpus": 3}
    assert server_directives("#!popcorn Leaderboard amd-fp8-mm\n").leaderboard == "amd-fp8-mm"


@pytest.mark.parametrize(("text", "line", "words"), [
    ("#!POPCORN colour red", 1, "unknown directive 'colour'"),
    ("#!POPCORN", 1, "unknown directive ''"),
    ("# x\n#!POPCORN gpus", 2, "no argument"),
    ("#!POPCORN gpus L4\n#!POPCORN gpu L4", 2, "again"),
    ("#!POPCORN leaderboard a b", 1, "one word"),
])
def test_server_is_strict(text: str, line: int, words: str) -> None:
    ((number, message),) = server_directives(text).errors
    assert number == line
    assert words in message


def test_a_blank_line_ends_the_block() -> None:
    assert server_directives("# a\n\n#!POPCORN leaderboard x\n").leaderboard is None


def test_cli_reads_every_comment_and_the_last_one_wins() -> None:
    text = "#!POPCORN leaderboard a\n#!POPCORN gpus L4\nx = 1\n//!POPCORN leaderboard b\n#!POPCORN nonsense\n"
    found = cli_directives(text)
    assert (found.leaderboard, found.gpus, found.errors) == ("b", ("L4",), ())


def test_cli_takes_one_gpu() -> None:
    assert "one GPU" in cli_directives("#!POPCORN gpus L4 H100\n").errors[0][1]


@given(st.text(st.sampled_from("#/!POPCRNgpusleadrbo \n\t\r\x00é"), max_size=120))
def test_directive_parsers_never_raise(text: str) -> None:
    for parse_directives in (server_directives, cli_directives):
        found = parse_directives(text)
        assert all(1 <= line <= text.count("\n") + 1 for line, _ in found.errors)


# Result lines


def test_entries_split_at_the_first_colon_and_the_last_writer_wins() -> None:
    assert parse_entries("a: 1: 2\n  b :x  \nnoise\na: 3\n") == {"a": "3", "b": "x"}


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_an_entry_is_one_line(value: str) -> None:
    line = format_entry("key", value)
    assert line.count("\n") == 1
    assert parse_entries(line)["key"] == value.replace("\n", "\\n").strip()


def report(**extra: str) -> Report:
    entries = {"test-count": "2", "test.0.spec": "m: 1", "test.0.status": "pass", "test.0.message": "max 0.1",
               "test.1.spec": "m: 2", "test.1.status": "fail", "test.1.error": "a\\nb", "check": "fail"}
    return parse_report(entries | extra)


def test_report_of_tests() -> None:
    found = report()
    assert not found.passed
    assert [(case.spec, case.passed, case.text) for case in found.tests] == [
        ("m: 1", True, "max 0.1"), ("m: 2", False, "a\nb")]


def test_times_become_seconds_and_a_score() -> None:
    lines = ["benchmark-count: 2", "check: pass"]
    for index, mean in enumerate((1000, 4000)):
        lines += [f"benchmark.{index}.spec: m: 1"]
        lines += [f"benchmark.{index}.{name}: {value}" for name, value in
                  (("runs", 3), ("mean", mean), ("std", 1), ("err", 0.5), ("best", 999), ("worst", 1e4))]
    found = parse_report(parse_entries("\n".join(lines)))
    timing = found.benchmarks[0].timing
    assert timing is not None
    assert (timing.runs, timing.mean, timing.err) == (3, pytest.approx(1e-6), pytest.approx(5e-10))
    assert (timing.best, timing.worst) == (pytest.approx(9.99e-7), pytest.approx(1e-5))
    assert found.score("geom") == pytest.approx(2e-6)
    assert found.score("mean") == pytest.approx(2.5e-6)
    assert found.score("last") == pytest.approx(4e-6)


def test_old_evaluators_leave_best_and_worst_out() -> None:
    entries = {"benchmark-count": "1", "benchmark.0.runs": "3", "benchmark.0.mean": "5", "benchmark.0.std": "1",
               "benchmark.0.err": "1", "check": "pass"}
    timing = parse_report(entries).benchmarks[0].timing
    assert timing is not None
    assert timing.best is None


def test_profiles_are_decoded() -> None:
    text = "a table???"
    encoded = base64.b64encode(text.encode()).decode()
    assert "/" in encoded
    for report in (encoded, encoded.replace("/", "*")):
        entries = {"benchmark-count": "1", "benchmark.0.spec": "m: 1", "benchmark.0.report": report, "check": "pass"}
        assert parse_report(entries).benchmarks == (CaseReport("m: 1", True, profile=text),)


def test_no_check_line_is_no_pass() -> None:
    assert not parse_report({"test-count": "0"}).passed


def test_a_failed_benchmark_has_no_score() -> None:
    entries = {"benchmark-count": "1", "benchmark.0.status": "fail", "benchmark.0.error": "no", "check": "pass"}
    assert parse_report(entries).score("geom") is None


def test_a_failed_run_has_no_score_and_a_case_that_says_nothing_has_failed() -> None:
    timed = {"benchmark-count": "1", "benchmark.0.mean": "1000", "benchmark.0.runs": "3", "benchmark.0.std": "0",
             "benchmark.0.err": "0", "benchmark.0.best": "1000", "benchmark.0.worst": "1000"}
    assert parse_report({**timed, "check": "pass"}).score("geom") == pytest.approx(1e-6)
    assert parse_report({**timed, "check": "fail"}).score("geom") is None
    assert not parse_report({"test-count": "1", "test.0.spec": "m: 1", "check": "pass"}).tests[0].passed


@pytest.mark.parametrize("extra", [{"test-count": "many"}, {"test-count": "9999"}, {"test-count": "-1"},
                                   {"benchmark-count": "1", "benchmark.0.mean": "fast"}])
def test_broken_numbers_are_reported(extra: dict[str, str]) -> None:
    with pytest.raises(ReportError):
        report(**extra)


@given(st.dictionaries(st.sampled_from(["test-count", "benchmark-count", "benchmark.0.mean", "benchmark.0.runs",
                                        "test.0.status", "check"]), st.text(max_size=8)))
def test_any_entries_give_a_report_or_a_report_error(entries: dict[str, str]) -> None:
    try:
        found = parse_report(entries)
    except ReportError:
        return
    assert found.passed == (entries.get("check") == "pass")


@pytest.mark.parametrize(("code", "passed", "expected"), [
    (0, True, ExitCode.OK), (0, False, ExitCode.FAILED), (112, False, ExitCode.FAILED), (110, False, ExitCode.FAILED),
    (111, False, ExitCode.INTERNAL), (113, False, ExitCode.USAGE), (114, False, ExitCode.FAILED),
    (2, False, ExitCode.USAGE), (-11, False, ExitCode.FAILED),
])
def test_exit_codes(code: int, passed: bool, expected: ExitCode) -> None:
    assert exit_code(code, passed) is expected


def test_every_known_board_uses_known_labels() -> None:
    gpus = backends.labels()
    assert all(gpu in gpus for gpus in LEADERBOARDS.values() for gpu in gpus)
    assert gpus["H100"].arches[0] == "sm_90a"
    assert "sm_90a" not in gpus["B200"].arches     # arch-specific code runs on its own generation alone


# task.yml


def test_task() -> None:
    task = parse(TASK)
    assert task.files == (("submission.py", "@SUBMISSION@"), ("eval.py", "../eval.py"))
    assert task.tests == ({"m": 1, "lens": "ragged", "seed": 7},)
    assert (task.ranking_by, task.timeout("test"), task.main, task.warnings) == ("geom", 180.0, "eval.py", ())


def test_load_task_takes_the_folder_or_the_file(tmp_path: Path) -> None:
    (tmp_path / "task.yml").write_text(TASK)
    assert load_task(tmp_path) == load_task(tmp_path / "task.yml")
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(tmp_path / "nothing")


def test_every_error_is_listed_with_its_path() -> None:
    text = """\
files: [{name: a/b.py, source: x}, 3, {name: e.py}]
lang: rust
config: {main: ../x.py}
templates: {Fortran: a.f}
tests: [{m: 1.5}, {}, {k: [x]}]
test_timeout: -1
ranking_by: luck
gpus: [1]
seed: soon
multi_gpu: 1
"""
    with pytest.raises(TaskError) as caught:
        parse(text)
    places = [error.removeprefix("t/task.yml: ").partition(": ")[0] for error in caught.value.errors]
    assert sorted(places) == sorted([
        "files[0].name", "files[1]", "files[2].source", "files", "lang", "templates.Fortran", "tests[0].m",
        "tests[1]", "tests[2].k", "benchmarks", "test_timeout", "ranking_by", "gpus[0]", "seed", "multi_gpu",
        "description"])


@pytest.mark.parametrize(("line", "where"), [
    ("test_timeout: 0", "test_timeout"), ("ranked_timeout: 86400", "ranked_timeout"), ("seed: true", "seed"),
])
def test_one_wrong_value_is_an_error(line: str, where: str) -> None:
    with pytest.raises(TaskError, match=rf"{where}: "):
        parse(f"{TASK}{line}\n")


def test_a_file_is_listed_once() -> None:
    with pytest.raises(TaskError, match=r"files\[2\]"):
        parse(TASK.replace("lang:", "  - {name: eval.py, source: ../eval.py}\nlang:", 1))


def test_every_mode_has_its_cases_and_its_time() -> None:
    task = parse(TASK + "test_timeout: 10\nbenchmark_timeout: 20\nranked_timeout: 30\n")
    assert [task.timeout(mode) for mode in ("test", "benchmark", "leaderboard")] == [10.0, 20.0, 30.0]
    assert task.cases("test") == task.tests != task.benchmarks


def test_config_main_is_a_plain_file_name() -> None:
    with pytest.raises(TaskError, match=r"config\.main"):
        parse(TASK.replace("main: eval.py", "main: ../x.py"))


def test_multi_gpu_needs_world_sizes() -> None:
    with pytest.raises(TaskError, match=r"tests\[0\]\.world_size"):
        parse(TASK + "multi_gpu: true\n")


def test_what_is_legal_but_surprising_is_a_warning() -> None:
    task = parse(TASK.replace("lens: ragged", "bias: false").replace("geom", "last") + "colour: red\n")
    assert task.tests[0]["bias"] == "False"
    assert [word for word in ("bias", "colour") for warning in task.warnings if word in warning] == ["bias", "colour"]


def test_a_ranking_by_the_last_of_several_cases_is_a_warning() -> None:
    task = parse(TASK.replace("geom", "last").replace("benchmarks:", "benchmarks:\n  - {m: 3}"))
    assert len(task.warnings) == 1
    assert "ranks the last of 2" in task.warnings[0]


def errors_of(text: str) -> tuple[str, ...]:
    """What is wrong with the task; no other exception than TaskError may come out."""
    try:
        task = parse(text)
    except TaskError as error:
        return error.errors or ("an error without a word",)
    assert task.tests
    return ()


SNIPPETS = st.sampled_from([
    "files:", "tests:", "- ", "{m: 1}", "lang: py", "description: d", "\n", " ", "[", "]", ":",
    "source: '@SUBMISSION@'", "name: a.py", "&a ", "*a", "!!int ", "2001-99-99",
    "0x" + "f" * 5000, "test_timeout: ", "nan", ".inf", "config: ",
    "templates: ", "multi_gpu: yes", "seed: ", "\x00"])


@given(st.lists(SNIPPETS, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_is_a_task_or_a_task_error(text: str) -> None:
    assert all(line.startswith("t/task.yml: ") for line in errors_of(text))


YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3),
    max_leaves=6)
TASK_KEYS = ["files", "lang", "config", "description", "templates", "libraries", "tests", "benchmarks", "test_timeout",
             "ranking_by", "seed", "multi_gpu", "gpus", "colour"]


@given(st.dictionaries(st.sampled_from(TASK_KEYS), YAML_VALUES))
def test_any_values_under_the_known_keys(data: dict[str, object]) -> None:
    import yaml

    assert all(line.startswith("t/task.yml: ") for line in errors_of(yaml.safe_dump(data)))


def test_integers_too_long_to_print_are_errors() -> None:
    huge = "0x" + "f" * 5000
    assert any("tests[0].m" in error for error in errors_of(TASK.replace("m: 1,", f"m: {huge},")))
    assert any("lang" in error for error in errors_of(TASK.replace("lang: py", f"lang: {huge}")))
