# SPDX-License-Identifier: MIT
"""Tables say what the records say, fit, and cannot be abused by the text in them."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from scoring.output import github, table, terminal
from scoring.record import Case, CaseResult, Evidence, Mode, Record, Status
from scoring.store.store import Store
from tests.scoring.records import compile_error, record, sample, stats, unavailable

HOSTILE = "evil|`\x1b[2J\n::error::owned <script>"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def one_case(**changes: object) -> Record:
    """One case with round numbers: 2 µs, half of its roofline, 4 TFLOP/s, 500 GB/s, 1.5 times as fast as its peer."""
    made = record(cases=1)
    result = replace(made.cases[0], stats=stats(2e-6, 0.01), flops=8e6, bytes_moved=1e6, roofline_seconds=1e-6,
                     peers={"vendor": stats(3e-6)})
    return replace(made, cases=(result,), score=2e-6, **changes)


def row(text: str, start: str) -> list[str]:
    """The cells of the line that begins with ``start``."""
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return re.split(r"\s{2,}", line.strip())


def test_a_case_row_has_time_interval_rates_roofline_and_peer() -> None:
    text = terminal.table([one_case()])
    assert row(text, "case  ") == ["case", "status", "time", "±CI", "TFLOP/s", "GB/s", "roofline", "bound", "vs vendor"]
    assert row(text, "m=64,") == ["m=64,n=7168,k=2048", "PASSED", "2.00 µs", "±1.0%", "4.00", "500", "50%", "bytes",
                                  "3.00 µs", "1.50×"]


def test_an_expectation_stands_beside_the_time_and_names_another_gpu() -> None:
    made = one_case()
    lines = ("m=64,* 1-3us@H200", "m=64,* 80-120us@L4", "m=1,* 5us@H200")
    made = replace(made, facts=replace(made.facts, expect=lines, step="4b tiles"))
    text = terminal.table([made])
    assert row(text, "case  ")[2:5] == ["time", "±CI", "expected"]
    assert row(text, "m=64,")[2:5] == ["2.00 µs", "±1.0%", "1-3us, 80-120us on L4"]
    assert "4b tiles" in row(terminal.summary([made]), "fp8_gemm")


def test_the_summary_has_one_row_per_record() -> None:
    text = terminal.summary(sample())
    assert len(text.splitlines()) == 2 + len(sample()) + 1      # header, rule, records, note on what did not fit
    assert row(terminal.summary([one_case()]), "fp8_gemm") == [
        "fp8_gemm", "cuda/wgmma", "H200 (sm_90a)", "PASSED", "1/1", "2.00 µs", "4.00", "50%", "1.50× vendor",
        "measured", "process", "graph_cold/2", one_case().id[:8]]


@pytest.mark.parametrize(("environment", "shown"), [
    ({"clock": "judge", "claim": 1.25e-6}, "1.25 µs"), ({"clock": "judge"}, "?"),
    ({"clock": "judge", "claim": "x"}, "?"), ({"clock": "judge", "claim": float("nan")}, "?")])
def test_a_time_by_the_judges_clock_stands_beside_the_claim(environment, shown) -> None:
    made = one_case()
    result = replace(made.cases[0], environment={**made.cases[0].environment, **environment})
    told = {"clock": "claim within the judge's bound", "claim": 1e-6}
    other = replace(made.cases[0], case=Case({"m": 1}), environment=told)
    text = terminal.table([replace(made, cases=(result, other), isolation="bubblewrap")], width=200)
    assert row(text, "case  ")[4] == "claimed"
    assert shown in row(text, "m=64,")
    assert "1.00 µs" not in row(text, "m=1 "), "what was confirmed is the time"
    assert "did not confirm it" in text
    assert "bubblewrap" in text
    assert "claimed" not in terminal.table([made], width=200)
    alike = replace(result, environment={"clock": "judge", "claim": 1.9999e-6})
    assert "claimed" not in terminal.table([replace(made, cases=(alike,))], width=200)


def test_wide_intervals_and_a_busy_machine_are_marked() -> None:
    made = one_case()
    assert not any(word in terminal.table([made]) for word in ("busy:", " !"))
    machine = {"busy": True, "pressure": 0.59, "steal": 0.0, "load": 5.9}
    wide = replace(made.cases[0], stats=stats(2e-6, 0.06), environment={"machine": machine})
    quiet = replace(made.cases[0], case=Case({"m": 1}), environment={"machine": {"busy": False, "load": 9.0}})
    text = terminal.table([replace(made, cases=(wide, quiet))])
    assert "±6.0% !" in row(text, "m=64,")
    assert "±1.0%" in row(text, "m=1 ")
    assert "!: the interval is wider than 10% of the time" in text
    assert ("busy: others used the machine while 1 of 2 cases were timed (at most: something waited for a core during"
            " 59%, 0% stolen, load average 5.9)") in text
    assert "busy" not in terminal.table([replace(made, cases=(replace(wide, environment={"machine": "x"}),))])


def test_the_best_peer_is_the_one_that_is_hardest_to_beat() -> None:
    made = one_case()
    result = replace(made.cases[0], peers={"slow": stats(9e-6), "fast": stats(1e-6), "middle": stats(3e-6)})
    assert "0.50× fast" in terminal.summary([replace(made, cases=(result,))])


def test_numbers_align_right_and_names_left() -> None:
    lines = terminal.summary(sample()).splitlines()
    score_end = lines[0].index("score") + len("score")
    assert all(line[:score_end].endswith(("s", " ")) for line in lines[2:-1])
    assert all(not line.startswith(" ") for line in lines)


def test_nothing_is_wider_than_the_limit() -> None:
    text = terminal.table(sample())
    assert max(map(len, text.splitlines())) <= table.WIDTH
    assert "flash-attn 3" in text


def test_where_space_is_short_detail_goes_and_says_so() -> None:
    text = terminal.table(sample(), width=120)
    tabled = text[:text.index("Failures")]
    rows = [line for line in tabled.splitlines() if " · " not in line and not line.startswith("(")]
    assert max(map(len, rows)) <= 120
    assert "left out: see --json or the report)" in text
    assert "hq=32,hk=8,dim=128,half=0" in text.split("flash_attention")[1]     # what cases share moves to the heading
    assert all(status in text for status in ("PASSED", "INCORRECT_NUMERICAL", "COMPILE_ERROR", "UNAVAILABLE"))


def test_an_unavailable_record_says_compiled_no_device_and_shows_usage() -> None:
    text = terminal.table([unavailable()])
    assert "compiled; not run: no AMD GPU and no emulator on this machine" in text
    assert "UNAVAILABLE: compiled; no device" in terminal.summary([unavailable()])
    assert "Compiler usage: flash_attention · hip/mfma · MI300 (gfx942)" in text, "one record: named once"
    assert row(text, "flash_attention_kernel")[1:] == [
        "128", "128", "96", "24 B", "32 B", "64 KiB", "256", "25%"]
    assert "0 passed" not in text
    assert text.endswith("1 not run")


def test_what_was_not_run_says_why_at_the_end_as_well_and_where_to_look() -> None:
    text = terminal.table([unavailable(), replace(unavailable(), kernel="hip/other"), one_case()])
    end = text[text.rindex("one_case" if "one_case" in text else "id\n"):]
    assert "not run, 2 kernels: no AMD GPU and no emulator on this machine" in end
    assert "python -m scoring doctor" in end
    assert "not run" not in terminal.table([one_case()])


def test_a_compilers_messages_are_told_once() -> None:
    made = compile_error()
    error = made.compile["diagnostics"][0]["message"]
    assert "nvcc refused the source" in terminal.failures([made]), "a message that says more stays"
    assert terminal.failures([replace(made, message=f"/somewhere/cluster.cu:42: {error}\n")]).count(error) == 1


def test_a_failure_that_all_cases_share_is_told_once() -> None:
    made = replace(record(cases=3), status=Status.RUNTIME_ERROR, score=None)
    same = [replace(result, status=Status.RUNTIME_ERROR, stats=None, message="importing it failed")
            for result in made.cases]
    text = terminal.failures([replace(made, cases=tuple(same))])
    assert text.count("importing it failed") == 1
    assert "and the same in 2 more cases" in text
    text = terminal.failures([replace(made, cases=(same[0], replace(same[1], message="something else"), same[2]))])
    assert "something else" in text
    assert "and the same in 1 more case\n" in text + "\n"


def test_instances_too_long_to_be_told_apart_are_one_row_if_they_use_the_same() -> None:
    long = "(anonymous namespace)::attend<Shape<128, 64, 3>, Softmax<24, {}>, {}>"
    entries = [{"name": long.format(i, i), "registers": 168 if i < 3 else 96} for i in range(4)]
    entries += [{"name": "copy<0>", "registers": 8}, {"name": "copy<1>", "registers": 8}]
    names = [name for _entry, name in terminal.functions(replace(one_case(), usage=tuple(entries)))]
    assert len(names) == 4, "three alike, one that uses less, two with names that can be read"
    assert names[0].startswith("attend<")
    assert names[0].endswith(" ×3")
    assert names[2:] == ["copy<0>", "copy<1>"]


@pytest.mark.parametrize(("columns", "expected"), [("100", 100), ("20", 72), ("900", table.WIDTH)])
def test_a_terminal_gets_tables_of_its_width(monkeypatch: pytest.MonkeyPatch, columns: str, expected: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert table.width_of(Terminal()) == expected
    assert table.width_of(io.StringIO()) == expected, "COLUMNS counts for a pipe as well"
    monkeypatch.delenv("COLUMNS")
    assert table.width_of(io.StringIO()) == table.WIDTH, "a file or a pipe wraps nothing"


def test_a_warm_time_that_no_memory_allows_says_so() -> None:
    made = one_case()
    timed = replace(made.cases[0], stats=stats(2e-6), warm=stats(1e-6), bytes_moved=4e6, roofline_seconds=1.5e-6,
                    bound="bytes")
    text = terminal.table([replace(made, cases=(timed,))])
    assert row(text, "warm  ") == ["warm", "cold", "warm", "cold/warm", "GB/s warm"]
    line = next(line for line in text.splitlines() if "faster than memory" in line)
    assert re.split(r"\s{2,}", line.strip())[1:] == [
        "2.00 µs", "1.00 µs", "2.00", "4000", "faster than memory: read from the cache"]
    slow = replace(timed, warm=stats(1.8e-6))
    assert "faster than memory" not in terminal.table([replace(made, cases=(slow,))])
    assert "faster than memory" not in terminal.table([replace(made, cases=(replace(timed, bound="flop"),))])


def test_verbose_shows_the_spread_and_the_first_wrong_elements() -> None:
    made = one_case()
    timed = replace(made.cases[0], stats=replace(stats(2e-6), p10=1.9e-6, p90=2.2e-6), calls=stats(5e-6, runs=100))
    text = terminal.table([replace(made, cases=(timed,))], verbose=True)
    assert row(text, "case  ")[2:8] == ["time", "±CI", "min", "p10", "p90", "max"]
    assert row(text, "single calls") == ["single calls", "calls", "p50", "min", "max"], "older statistics lack the rest"
    assert "single calls" in terminal.table([replace(made, cases=(timed,))])
    wrong = {"output": "c", "index": [0, 3], "got": "nan", "expected": 1.5, "bound": 0.25}
    bad = replace(made.cases[0], status=Status.INCORRECT_NUMERICAL, stats=None, wrong=(wrong,))
    failed = replace(made, status=Status.INCORRECT_NUMERICAL, score=None, cases=(bad,))
    line = "c [0, 3]: got nan, expected 1.5 ± 0.25"
    assert line in terminal.table([failed], verbose=True)
    assert line not in terminal.table([failed])


def test_several_kernels_that_could_not_be_run_are_one_line() -> None:
    text = terminal.table([unavailable(), replace(unavailable(), kernel="hip/other"), one_case()])
    assert text.count("no AMD GPU") == 1
    assert "hip/other" not in text[text.rindex("problem  "):], "only among what was compiled"


def test_a_device_that_is_here_but_full_is_not_called_absent() -> None:
    made = replace(record(status=Status.UNAVAILABLE, failing=1, mode=Mode.TEST, case_message="needs 9 GiB"),
                   message="needs 9 GiB")
    text = terminal.table([made])
    assert "needs 9 GiB" in text
    assert "no device" not in text


def test_a_reason_that_does_not_say_compiled_is_completed() -> None:
    made = replace(unavailable(), message="the cable is out")
    assert "compiled; no device: the cable is out" in terminal.table([made])


def test_the_records_message_is_not_repeated_where_a_case_says_it() -> None:
    made = record(status=Status.TIMEOUT, failing=1, mode=Mode.TEST, case_message="no answer in 60 s")
    assert terminal.failures([replace(made, message="no answer in 60 s")]).count("no answer in 60 s") == 1
    assert terminal.failures([replace(made, message="the worker is gone")]).count("| the worker is gone") == 1


def test_without_a_compiler_nothing_claims_to_be_compiled() -> None:
    text = terminal.table([replace(unavailable(), compile={}, usage=(), message="no hipcc")])
    assert "compiled" not in text
    assert "no device: no hipcc" in text


@pytest.mark.parametrize("show", [
    lambda r: terminal.table([r]), lambda r: terminal.summary([r]), lambda r: github.step_summary([r])])
def test_a_modelled_time_always_says_so(show: object) -> None:
    assert callable(show)
    modelled = record(gpu="MI300", kernel="hip/mfma", evidence=Evidence.MODELLED)
    assert "modelled" in show(modelled)
    assert "modelled" not in show(replace(modelled, evidence=Evidence.MEASURED))


def test_the_header_of_modelled_times_says_so() -> None:
    assert "time (modelled)" in terminal.table([record(gpu="MI300", evidence=Evidence.MODELLED)])


def test_a_test_run_shows_no_time_columns_but_the_largest_error() -> None:
    made = record(mode=Mode.TEST, cases=1)
    made = replace(made, cases=(replace(made.cases[0], message="largest error 0.3 of the bound"),))
    assert row(terminal.table([made]), "case  ") == ["case", "status", "note"]
    assert "largest error 0.3 of the bound" in terminal.table([made])


def test_failures_name_element_case_and_seed() -> None:
    text = terminal.failures(sample())
    assert "flash_attention · cuda/twopass · H200 (sm_90a) · INCORRECT_NUMERICAL" in text
    assert "causal=1,half=0: INCORRECT_NUMERICAL (generate_input seed 4711)" in text
    assert "    | first at [0, 0, 64, 0]: got 0.1377, expected 0.0214, allowed ±0.0041" in text
    assert "causal=0" not in text                                            # a passing case of the failing record
    assert "hip/mfma" not in text                                            # unavailable is no failure
    assert terminal.failures([record(), unavailable()]) == ""


def test_compiler_messages_are_clickable_and_errors_come_first() -> None:
    made = compile_error()
    text = terminal.failures([replace(made, compile={"diagnostics": made.compile["diagnostics"][::-1]})])
    lines = [line.strip() for line in text.splitlines()]
    assert lines[3] == 'kernels/cuda/mla_decode/cluster.cu:42: error: identifier "barier" is undefined'
    assert lines[4].startswith("kernels/cuda/mla_decode/cluster.cu:57: warning:")


def test_long_messages_are_cut_and_say_so() -> None:
    text = terminal.failures([replace(compile_error(), message="\n".join(f"line {n}" for n in range(100)), compile={
        "diagnostics": [{"file": "a.cu", "line": n, "severity": "error", "message": "x"} for n in range(50)]})])
    assert "… and 30 more messages" in text
    assert "… 70 more lines" in text
    assert len(text.splitlines()) < 60


def test_a_diagnostic_without_a_line_has_no_colon_zero() -> None:
    assert terminal.diagnostics(replace(compile_error(), compile={"diagnostics": [
        {"file": "<command line>", "line": 0, "severity": "error", "message": "no"}]})) == ["<command line>: error: no"]


@pytest.mark.parametrize("fmt", ["simple", "github", "plain"])
def test_hostile_text_is_disarmed(fmt: str) -> None:
    made = record(status=Status.INCORRECT_NUMERICAL, failing=1, kernel=HOSTILE, case_message=HOSTILE, message=HOSTILE)
    made = replace(made, usage=({"name": HOSTILE, "registers": 1},))
    text = terminal.table([made], fmt)
    assert "\x1b" not in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())


def test_markdown_cells_are_escaped() -> None:
    text = terminal.summary([record(kernel="a|b<script>*x*`y`")], table.Style("github"))
    assert "a\\|b&lt;script>\\*x\\*\\`y\\`" in text
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()}
    assert len(bars) == 1                                                     # each line has the same cells


def test_a_fence_in_a_message_does_not_end_the_block() -> None:
    text = github.step_summary([record(status=Status.RUNTIME_ERROR, message="```\n# owned\n````")])
    fences = [line for line in text.splitlines() if re.fullmatch(r"`{3,}", line)]
    assert fences == ["`````", "`````"]


def test_colour_only_when_asked_and_the_text_is_the_same() -> None:
    plain, coloured = terminal.table(sample()), terminal.table(sample(), color=True)
    assert "\x1b[32mPASSED\x1b[0m" in coloured
    assert "\x1b[31mCOMPILE_ERROR\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


@pytest.mark.parametrize(("environ", "on_terminal", "expected"), [
    ({}, True, True), ({}, False, False), ({"TERM": "dumb"}, True, False), ({"NO_COLOR": "1"}, True, False),
    ({"NO_COLOR": ""}, True, True), ({"FORCE_COLOR": "1"}, False, True), ({"FORCE_COLOR": "0"}, False, False),
    ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False), ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
])
def test_use_color(environ: dict[str, str], on_terminal: bool, expected: bool) -> None:
    assert table.use_color(Terminal() if on_terminal else io.StringIO(), environ) is expected


def test_leaderboard_table(tmp_path: object) -> None:
    store = Store(f"{tmp_path}/leaderboard.db")
    fast, slow = one_case(), replace(one_case(), id="f" * 32, kernel="cuda/slow", score=5e-6)
    modelled = record(gpu="MI300", kernel="hip/mfma", evidence=Evidence.MODELLED)
    for made in (slow, fast, modelled):
        store.add(made)
    text = terminal.leaderboard(store.leaderboard())
    first, second = text.split("\n\n")
    assert first.splitlines()[0].startswith("fp8_gemm · H200 · measured · graph_cold/2 · cases ")
    assert [re.split(r"\s{2,}", line.strip())[:3] for line in first.splitlines()[3:]] == [
        ["1", "cuda/wgmma", "2.00 µs"], ["2", "cuda/slow", "5.00 µs"]]
    assert "2.50×" in first.splitlines()[-1]
    assert second.count("modelled") == 2                                      # in the heading and in the row


def test_leaderboard_of_nothing_is_empty() -> None:
    assert terminal.leaderboard([]) == terminal.summary([]) == terminal.usage([]) == ""


def test_annotations_point_at_the_line() -> None:
    assert github.workflow_commands([record(), unavailable(), compile_error()]) == [
        '::error file=kernels/cuda/mla_decode/cluster.cu,line=42::identifier "barier" is undefined',
        '::warning file=kernels/cuda/mla_decode/cluster.cu,line=57::variable "lane" was declared but never referenced']


def test_annotations_encode_what_would_end_them() -> None:
    made = replace(compile_error(), compile={"diagnostics": [
        {"file": "a,b:c%.cu", "line": 3, "severity": "note", "message": "100%\n::set-env name=x::y"}]})
    assert github.workflow_commands([made]) == [
        "::notice file=a%2Cb%3Ac%25.cu,line=3::100%25%0A::set-env name=x::y"]


def test_a_failure_without_compiler_messages_is_annotated_by_its_first_case() -> None:
    made = record(status=Status.INCORRECT_NUMERICAL, failing=2, case_message="c differs")
    (line,) = github.workflow_commands([made])
    assert line == ("::error title=fp8_gemm · cuda/wgmma · H200 (sm_90a)::INCORRECT_NUMERICAL: m=64,n=7168,k=2048: "
                    "c differs")


def test_a_step_summary_puts_the_verdict_first_and_folds_the_cases() -> None:
    text = github.step_summary(sample())
    assert text.startswith("### 8 passed, 2 failed, 1 not run\n")
    assert text.index("| problem") < text.index("#### Failures") < text.index("<details>")
    assert text.count("<details>") == text.count("</details>") == 1


def test_verdict() -> None:
    assert terminal.verdict([]) == "nothing ran"
    assert terminal.verdict([record()]) == "1 passed"
    assert terminal.verdict([compile_error(), unavailable()]) == "1 failed, 1 not run"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown table format 'sixel'"):
        terminal.table([record()], "sixel")


@pytest.mark.parametrize("fmt", ["simple", "github", "plain"])
def test_an_unsupported_case_is_a_failure_of_its_own_kind(fmt: str) -> None:
    made = record(status=Status.UNSUPPORTED, failing=1, mode=Mode.TEST)
    text = terminal.table([made], fmt)
    assert "UNSUPPORTED" in text
    assert "Failures" in text


def test_shorten_keeps_both_ends() -> None:
    assert table.shorten("abcdefghij", 7) == "abc…hij"
    assert table.shorten("abcdefghij", 10) == "abcdefghij"
    assert all(len(table.shorten("x" * 50, width)) == width for width in range(2, 50))


def test_a_case_without_peaks_has_no_roofline() -> None:
    made = record(gpu="CPU", kernel="cpu/naive", cases=1)
    assert isinstance(made.cases[0], CaseResult)
    assert "roofline" not in terminal.table([made])
