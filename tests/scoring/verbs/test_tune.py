# SPDX-License-Identifier: MIT
"""``tune``: which values are tried, what counts as fastest, and the verb from outside on kernels for the CPU."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import backends
from scoring import cli
from scoring.judge.score import skeleton
from scoring.output import tuning, tuning_cache
from scoring.output.table import Style
from scoring.record import SCHEMA, Case, CaseResult, Evidence, ExitCode, Mode, Record, Stats, Status
from scoring.run import plan, search
from tests.scoring.harness import DATA, ROOT

# Wrong with FACTOR=2 alone; SPINS makes it slower than anything that a busy host puts in between.
TUNED = """// SPDX-License-Identifier: MIT
//!KERNEL summary tunable
//!KERNEL tune SPINS=9000000,0
//!KERNEL tune FACTOR=1,2
#include "toy.h"

TOY {
    volatile int sink = 0;
    for (int i = 0; i < SPINS; ++i) sink = i;
    honest(x, y, n, alpha * FACTOR);
    return 0;
}
"""


@pytest.fixture
def tune(tmp_path, cache, monkeypatch, capsys):
    """``tune`` on a checkout with one kernel that has tunables and one that has none: (exit code, stdout, stderr)."""
    shutil.copytree(DATA / "problems", tmp_path / "problems")
    task = tmp_path / "problems" / "toy" / "task.yml"
    task.write_text(task.read_text().replace("../../../../problems/utils.py", str(ROOT / "problems" / "utils.py")))
    folder = tmp_path / "kernels" / "cpu" / "toy"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "kernels" / "cpu" / "toy" / "honest.cpp", folder)
    shutil.copy(DATA / "kernels" / "cpu" / "toy.h", folder.parent)
    (folder / "tuned.cpp").write_text(TUNED)
    (tmp_path / "c.yaml").write_text(
        "paths: {problems: problems, kernels: kernels}\nbackends: [cpu]\n"
        "timing: {processes: 1, min_rounds: 2, max_rounds: 3, seconds: 0.5}\n")
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(cache))

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(["--config", str(tmp_path / "c.yaml"), "tune", *arguments])
        except SystemExit as stop:       # argparse
            code = stop.code
        out, err = capsys.readouterr()
        assert "internal error" not in err
        return int(code), out, err

    return call


def variant(values: dict[str, str], times: dict[str, tuple[float, float, float]], status: Status = Status.PASSED):
    """A variant with (median, low, high) in µs per case."""
    results = tuple(
        CaseResult(Case({"n": name}, "benchmarks"), Status.PASSED, stats=Stats(
            3, *(1e-6 * value for value in (median, low, high, median)), 0.0, 0.0, 1e-6 * low, 1e-6 * high))
        for name, (median, low, high) in times.items())
    record = Record(
        id="0" * 32, created="", problem="toy", kernel="cpu/tuned[…]", digest="", backend="cpu", target="x86",
        gpu="CPU", device="", mode=Mode.BENCHMARK, status=status, cases=results)
    return tuning.Variant(values, record)


# What is tried -------------------------------------------------------------------------------------------------------

def test_every_combination_is_tried_defaults_first():
    tunables = {"A": ("2", "1"), "B": ("x", "y", "z")}
    found = tuning.combinations(tunables, {})
    assert found[0] == {"A": "2", "B": "x"}
    assert len(found) == 6
    assert len({tuple(values.items()) for values in found}) == 6


def test_what_is_given_is_not_varied_and_stays():
    assert tuning.combinations({"A": ("2", "1"), "B": ("x", "y")}, {"B": "y", "C": "7"}) == [
        {"A": "2", "B": "y", "C": "7"}, {"A": "1", "B": "y", "C": "7"}]


def test_what_is_to_be_varied_can_be_named():
    tunables = {"A": ("2", "1"), "B": ("x", "y"), "C": ("7", "8")}
    assert tuning.combinations(tunables, {}, ["B"]) == [{"B": "x"}, {"B": "y"}]
    assert tuning.combinations(tunables, {"A": "1"}, ["C"]) == [{"A": "1", "C": "7"}, {"A": "1", "C": "8"}]
    assert tuning.combinations(tunables, {}, ["D"]) == []


def test_hundreds_of_combinations_are_not_tried_unasked():
    tunables = dict.fromkeys("ABCDEFG", ("1", "0"))
    assert "128 combinations of A (2), B (2)" in tuning.excess(tunables, {}, [])
    assert tuning.excess(tunables, {"A": "1"}, []) == ""
    assert tuning.excess(tunables, {}, list(tunables)) == "", "that is what was asked for"


def test_without_tunables_there_is_nothing_to_try():
    assert tuning.combinations({}, {"C": "7"}) == []


# What came of it -----------------------------------------------------------------------------------------------------

def test_the_fastest_of_each_case_and_what_noise_may_have_decided():
    tuned = tuning.Tuning([
        variant({"A": "1"}, {"64": (10, 9.5, 10.5), "65": (20, 19, 21)}),
        variant({"A": "2"}, {"64": (10.2, 10.1, 10.3), "65": (5, 4.9, 5.1)}),
        variant({"A": "3"}, {"64": (12, 11, 13), "65": (5.2, 5.11, 5.3)}),
    ])
    assert [tuned.fastest(case) for case in ("n=64", "n=65")] == [0, 1]
    assert [tuned.equals(case) for case in ("n=64", "n=65")] == [[1], []]
    assert tuned.best == 1
    assert tuned.score(0) == pytest.approx(200**0.5 * 1e-6)


def test_a_variant_that_failed_is_never_the_fastest():
    tuned = tuning.Tuning([
        variant({"A": "1"}, {"64": (10, 9, 11)}),
        variant({"A": "2"}, {"64": (1, 1, 1)}, Status.INCORRECT_NUMERICAL),
    ])
    assert (tuned.fastest("n=64"), tuned.best, tuned.score(1)) == (0, 0, None)
    text = tuning.table(tuned, Style())
    assert "INCORRECT_NUMERICAL" in text
    assert "1.00 µs" not in text


def test_modelled_times_say_so():
    measured = variant({"A": "1"}, {"64": (10, 9, 11)})
    record = replace(measured.record, evidence=Evidence.MODELLED, facts=replace(measured.record.facts, emulated=True))
    heading = tuning.table(tuning.Tuning([replace(measured, record=record)]), Style()).splitlines()[0]
    assert "emulated" in heading
    assert "modelled times" in heading
    assert "modelled" not in tuning.table(tuning.Tuning([measured]), Style())


def test_a_variant_without_all_cases_has_no_score():
    tuned = tuning.Tuning([
        variant({"A": "1"}, {"64": (10, 9, 11), "65": (10, 9, 11)}), variant({"A": "2"}, {"64": (1, 1, 1)})])
    assert (tuned.fastest("n=64"), tuned.score(1), tuned.best) == (1, None, 0)


def test_nothing_passed_is_a_table_all_the_same():
    tuned = tuning.Tuning([variant({"A": "1"}, {}, Status.COMPILE_ERROR)])
    assert (tuned.cases, tuned.best, tuned.fastest("n=64"), tuned.equals("n=64")) == ([], None, None, [])
    assert "COMPILE_ERROR" in tuning.table(tuned, Style())
    assert tuning.document(tuned)["best"] is None


def test_many_variants_are_shown_in_several_blocks():
    tuned = tuning.Tuning([variant({"A": str(i)}, {"64": (10 + i, 9 + i, 11 + i)}) for i in range(40)])
    text = tuning.table(tuned, Style(width=100))
    assert max(map(len, text.splitlines())) <= 100
    assert all(f"#{i}" in text.replace("\n", " ").split() for i in range(1, 41))
    assert "10.0 µs*" in text


def test_a_table_to_be_kept_is_markdown_and_says_where_it_comes_from():
    tuned = tuning.Tuning([variant({"A": "1"}, {"64": (10, 9, 11)}), variant({"A": "2"}, {"64": (9.5, 9, 10)})])
    first = tuned.variants[0]
    record = replace(first.record, created="2026-11-22T10:00:00", device="NVIDIA H200", seed=7,
                     system={"driver": "580"}, compile={"version": "nvcc 13.0.88; host g++"})
    text = tuning.table(tuning.Tuning([replace(first, record=record), tuned.variants[1]]), Style("github"))
    assert "\n2026-11-22, NVIDIA H200, driver 580, nvcc 13.0.88, seed 7\n\n|" in text
    assert [line.count("|") for line in text.splitlines() if line.startswith("| n=64")] == [4]
    assert "9.50 µs\\*" in text


def compiled(values: dict[str, str], *usage: tuple[str, int]):
    """A variant that was compiled and not run: (function, registers)."""
    found = variant(values, {}, Status.UNAVAILABLE)
    return replace(found, record=replace(found.record, usage=[
        {"name": name, "registers": registers, "spill_bytes": 0, "shared_bytes": 1024, "occupancy": 0.5}
        for name, registers in usage]))


def test_without_a_device_only_the_functions_that_differ_are_shown():
    tuned = tuning.Tuning([
        compiled({"A": "1"}, ("copy", 16), ("product<1>", 128)), compiled({"A": "2"}, ("copy", 16), ("product<2>", 96)),
        compiled({"A": "3"}, ("copy", 16), ("product<2>", 96))])
    lines = tuning.table(tuned, Style()).splitlines()
    assert [line.split()[:3] for line in lines if "product<" in line] == [
        ["1", "product<1>", "128"], ["2,3", "product<2>", "96"]]
    assert "occupancy ≤" in "\n".join(lines)
    assert "1 function the same in all 3 combinations" in lines
    assert not [line for line in lines if "copy" in line]


def test_a_cache_of_kernel_tuners_format(tmp_path):
    """The fields that its schema 1.0.0 requires, keys of digits, times in milliseconds, words for what failed."""
    tuned = tuning.Tuning([variant({"A": "1", "B": "8"}, {"64": (10, 9, 11)}),
                           variant({"A": "2", "B": "8"}, {}, Status.COMPILE_ERROR)])
    content = tuning_cache.document(tuned, {"A": ("1", "2"), "B": ("8",)}, "digest")
    assert set(content) >= {"schema_version", "device_name", "kernel_name", "problem_size", "tune_params_keys",
                            "tune_params", "objective", "cache"}
    assert (content["schema_version"], content["tune_params"]) == ("1.0.0", {"A": [1, 2], "B": [8]})
    assert content["cache"]["1,8"]["time"] == pytest.approx(0.01)
    assert content["cache"]["2,8"]["time"] == "CompilationFailedConfig"
    for entry in content["cache"].values():
        assert set(entry) >= {"time", "compile_time", "verification_time", "benchmark_time", "strategy_time",
                              "framework_time", "timestamp"}
    path = tmp_path / "cache.json"
    tuning_cache.write(path, content)
    found = tuning_cache.read(path, "toy/cpu/tuned", "CPU", "digest")
    assert [record.status for record in found.values()] == [Status.PASSED, Status.COMPILE_ERROR]
    assert tuning_cache.read(path, "toy/cpu/tuned", "CPU", "another source") == {}
    with pytest.raises(tuning_cache.CacheError, match="name another file"):
        tuning_cache.read(path, "toy/cpu/other", "CPU", "digest")
    with pytest.raises(tuning_cache.CacheError, match="A=x: Kernel Tuner's cache takes natural numbers"):
        tuning_cache.document(tuning.Tuning([variant({"A": "x"}, {})]), {"A": ("x",)}, "digest")


# The verb ------------------------------------------------------------------------------------------------------------

def test_values_are_compared_and_wrong_ones_told(tune, tmp_path):
    before = (tmp_path / "kernels/cpu/toy/tuned.cpp").read_bytes()
    code, out, err = tune()
    assert code == ExitCode.FAILED, "two of four are wrong"
    assert "toy · cpu/tuned · CPU" in out
    rows = [line.split() for line in out.splitlines() if "SPINS=" in line and "FACTOR=" in line]
    assert [row[:4] for row in rows[:4]] == [
        ["1", "SPINS=9000000", "FACTOR=1", "PASSED"], ["2", "SPINS=9000000", "FACTOR=2", "INCORRECT_NUMERICAL"],
        ["3", "SPINS=0", "FACTOR=1", "PASSED"], ["4", "SPINS=0", "FACTOR=2", "INCORRECT_NUMERICAL"]]
    assert rows[2][4:] == [*rows[2][4:6], "2", "of", "2"], "the one that does not spin wins both cases"
    assert rows[2][5].endswith("*")
    assert "n=50000" in out
    assert "· wall_" in out
    assert "-D SPINS=9000000 -D FACTOR=2" in next(line for line in out.splitlines() if "repeat: " in line)
    assert "honest" not in out + err
    assert (tmp_path / "kernels/cpu/toy/tuned.cpp").read_bytes() == before
    assert not (tmp_path / "records.db").exists(), "tuning keeps nothing"


@pytest.mark.slow
def test_json_is_one_document_per_kernel(tune):
    code, out, err = tune("--json", "-D", "FACTOR=1", "--seed", "5")
    assert (code, err) == (0, "")
    (line,) = out.splitlines()
    found = json.loads(line)
    assert (found["schema"], found["kernel"], found["best"]) == (SCHEMA, "cpu/tuned", 1)
    assert [entry["values"] for entry in found["variants"]] == [
        {"FACTOR": "1", "SPINS": "9000000"}, {"FACTOR": "1", "SPINS": "0"}]
    records = [Record.from_json(entry["record"]) for entry in found["variants"]]
    assert [record.kernel for record in records] == ["cpu/tuned[FACTOR=1,SPINS=9000000]", "cpu/tuned[FACTOR=1,SPINS=0]"]
    assert {record.seed for record in records} == {5}
    assert [result.case.group for result in records[0].cases] == ["tests"] * 2 + ["benchmarks"] * 2
    assert {name: case["variant"] for name, case in found["fastest"].items()} == {"n=4096": 1, "n=50000": 1}
    assert found["variants"][1]["score"] == pytest.approx(records[1].score)


def test_markdown_is_all_that_is_on_stdout(tune):
    code, out, err = tune("--markdown", "--case", "n=64", "-D", "FACTOR=1")
    assert code == 0
    assert out.startswith("#### toy · cpu/tuned · CPU")
    assert all(line[:1] in "#|\\2 " for line in out.splitlines()), "headings, tables, the legend and the circumstances"
    assert "2 passed" in err


def test_interrupted_it_shows_what_it_has(tune, monkeypatch):
    score = plan.score

    def interrupted(job, *rest):
        if "SPINS=0" in job.kernel:
            raise KeyboardInterrupt
        return score(job, *rest)

    monkeypatch.setattr(plan, "score", interrupted)
    code, out, _err = tune("--case", "n=64", "-D", "FACTOR=1")
    assert code == ExitCode.INTERRUPTED
    assert "1 passed" in out
    assert "SPINS=9000000" in out
    assert "SPINS=0" not in out


def test_a_cache_is_gone_on_from(tune, tmp_path, monkeypatch):
    path = tmp_path / "tuned.json"
    score, judged = plan.score, []

    def counted(job, *rest):
        judged.append(job.kernel)
        if "SPINS=0" in job.kernel and len(judged) == 2:
            raise KeyboardInterrupt
        return score(job, *rest)

    monkeypatch.setattr(plan, "score", counted)
    arguments = ("--cache", str(path), "--case", "n=64", "-D", "FACTOR=1")
    assert tune(*arguments)[0] == ExitCode.INTERRUPTED
    assert list(json.loads(path.read_text())["cache"]) == ["1,9000000"]
    code, out, _err = tune(*arguments)
    assert code == 0
    assert judged[2:] == ["cpu/tuned[FACTOR=1,SPINS=0]"], "what is in the file is not judged again"
    assert [line.split()[0] for line in out.splitlines() if "SPINS=" in line][:2] == ["1", "2"]
    assert list(json.loads(path.read_text())["cache"]) == ["1,9000000", "1,0"]
    (tmp_path / "bad.json").write_text("[]")
    code, _out, err = tune("--cache", str(tmp_path / "bad.json"))
    assert code == ExitCode.USAGE
    assert "is no cache of tune's" in err


def test_too_many_combinations_without_a_device_are_refused_with_what_to_do(tune, monkeypatch):
    monkeypatch.setattr(tuning, "MOST", 3)
    probe = backends.get("cpu").probe()
    monkeypatch.setattr(type(backends.get("cpu")), "probe", lambda self: replace(probe, devices=()))
    code, out, err = tune()
    assert (code, out) == (ExitCode.USAGE, "")
    assert "cpu/toy/tuned: 4 combinations of SPINS (2), FACTOR (2); --vary NAME" in err


def test_without_a_device_the_compiler_s_answer_is_no_failure(tune, monkeypatch):
    probe = backends.get("cpu").probe()
    monkeypatch.setattr(type(backends.get("cpu")), "probe", lambda self: replace(probe, devices=()))
    code, out, _err = tune("--backend", "cpu")
    assert code == 0
    assert out.count("UNAVAILABLE") >= 4


# Search --------------------------------------------------------------------------------------------------------------

SPACE = {"A": [str(2**n) for n in range(8)], "B": [str(n) for n in range(10)], "C": ["7"], "D": ["0", "1"]}


def cost(values: dict[str, str]) -> float | None:
    """Least at A=16, B=7, D=1; it fails where A=128."""
    if values["A"] == "128":
        return None
    return 1.0 + abs(int(values["A"]).bit_length() - 5) + abs(int(values["B"]) - 7) + (values["D"] == "0")


def searched(seed: int, trials: int, known: int = 0) -> list[dict[str, str]]:
    asked = search.Search(SPACE, {"E": "3"}, seed)
    tried: list[dict[str, str]] = []
    while len(tried) < trials and (batch := asked.ask(min(8, trials - len(tried)))):
        for values in batch:
            asked.tell(values, cost(values))
        tried += batch
    return tried


def test_a_search_begins_with_the_defaults_and_repeats_nothing():
    tried = searched(1, 60)
    assert tried[0] == {"E": "3", "C": "7", "A": "1", "B": "0", "D": "0"}
    assert len({tuple(sorted(values.items())) for values in tried}) == len(tried) == 60
    assert searched(1, 60) == tried


def test_a_search_beats_chance():
    """Of 160 combinations in 40 trials: within one step of the best in most searches; chance gets there in half."""
    best = [min(cost(values) or 99 for values in searched(seed, 40)) for seed in range(12)]
    assert sum(score <= 2 for score in best) >= 9


def test_a_search_ends_when_all_were_tried():
    asked = search.Search({"A": ["1", "2"], "B": ["1", "2"]}, {}, 0)
    assert len(asked.ask(9)) == 4
    assert asked.ask(9) == []


def test_a_search_goes_on_from_what_is_known():
    asked = search.Search(SPACE, {}, 5)
    known = [{"A": "16", "B": str(n), "C": "7", "D": "1"} for n in range(10)]
    for values in known:
        asked.tell(values, cost(values))
    assert all(values not in known for values in asked.ask(20))


@pytest.fixture
def judged(monkeypatch):
    """Names of the kernels that reach the judge, whose answer is made up: SPINS takes time, FACTOR=2 is wrong."""
    found: list[str] = []

    def made(job, *rest):
        found.append(job.kernel)
        time = 2e-6 if "SPINS=0" in job.kernel else 9e-3
        stats = Stats(3, *(time,) * 4, 0.0, 0.0, time, time)
        status = Status.INCORRECT_NUMERICAL if "FACTOR=2" in job.kernel else Status.PASSED
        return replace(skeleton(job), status=status, cases=(
            CaseResult(job.cases[0], status, stats=stats if status is Status.PASSED else None),))

    monkeypatch.setattr(plan, "score", made)
    return found


def test_more_combinations_than_are_all_tried_are_searched_and_resumed(tune, tmp_path, judged):
    path = tmp_path / "kept.json"
    arguments = ("--case", "n=64", "--seed", "4", "--cache", str(path))
    code, _out, err = tune(*arguments, "--trials", "2")
    assert code == 0
    assert "searched: 2 of 4 combinations" in err
    assert judged[0] == "cpu/tuned[FACTOR=1,SPINS=9000000]", "the defaults come first"
    first = json.loads(path.read_text())["cache"]
    assert len(first) == len(judged) == 2
    code, out, err = tune(*arguments, "--trials", "3")
    assert code == 0
    assert "searched: 3 of 4 combinations" in err
    assert len(judged) == len(set(judged)) == 3, "what is in the file is not judged again"
    assert first.items() <= json.loads(path.read_text())["cache"].items()
    assert [line.split()[0] for line in out.splitlines() if "SPINS=" in line][:3] == ["1", "2", "3"]
    tune(*arguments, "--trials", "3")
    assert len(judged) == 3


def test_a_search_without_optuna_says_what_to_install(tune, monkeypatch):
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    code, out, err = tune("--trials", "2")
    assert (code, out) == (ExitCode.UNAVAILABLE, "")
    assert 'pip install -e ".[tune]"' in err


def test_all_variants_get_one_seed(tune):
    _code, out, _err = tune("--json", "--case", "n=64", "--vary", "SPINS")
    seeds = {entry["record"]["seed"] for entry in json.loads(out)["variants"]}
    assert len(seeds) == 1


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["--kernel", "honest"], ExitCode.NOTHING, "no '//!KERNEL tune' line in cpu/toy/honest"),
    (["--kernel", "nothing-like-it"], ExitCode.NOTHING, "nothing matches the selection"),
    (["--vary", "NONE"], ExitCode.NOTHING, "no '//!KERNEL tune' line for NONE in cpu/toy/"),
    (["-D", "FACTOR=3"], ExitCode.USAGE, "tunable FACTOR is one of 1, 2, not 3"),
    (["--mode", "test"], ExitCode.USAGE, "tune takes no --mode test"),
])
def test_nothing_to_tune_and_wrong_values(tune, arguments, code, words):
    found, out, err = tune(*arguments)
    assert (found, out) == (code, "")
    assert words in err


def test_a_variant_that_does_not_compile_is_told(tune, tmp_path):
    path = tmp_path / "kernels/cpu/toy/tuned.cpp"
    path.write_text(path.read_text().replace("TOY {", "#if SPINS == 9000000\n#error no\n#endif\nTOY {"))
    code, out, _err = tune("-D", "FACTOR=1", "--case", "n=64")
    assert code == ExitCode.FAILED
    assert "COMPILE_ERROR" in out
    assert "SPINS=0" in out
