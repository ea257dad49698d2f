# SPDX-License-Identifier: MIT
"""HIP kernels judged on the emulated MI300X: right ones pass, planted bugs are told with file and line, times say
``modelled``. Unit tests of ``scoring.ipc.emulator`` first, then jobs, then the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import backends
from backends import _emulated
from backends.cuda import find_nvcc, release
from backends.errors import BackendError, ToolchainMissing
from scoring import cli
from scoring.ipc.emulator import (
    KEPT,
    SHOWN,
    checks_of,
    entries,
    explain,
    modelled_seconds,
    parse_checks,
    parse_schedule,
)
from scoring.judge.job import Job
from scoring.judge.score import score
from scoring.output import github, terminal
from scoring.record import Case, CaseResult, Evidence, ExitCode, Mode, Record, Status, dumps
from scoring.record import score as ranking_score
from scoring.run import targets
from scoring.run.job import make_kernel_job, make_submission_job
from scoring.store.store import Store
from tests.scoring.harness import ROOT, SETTINGS, problem, toy
from tests.scoring.records import record

pytestmark = [pytest.mark.toolchain("rocm"), pytest.mark.timeout(600)]      # one of them may build the emulator

CASE = Case({"n": 1000})
BENCHMARK = Case({"n": 4096}, "benchmarks")
FINDING = {"check": "bounds", "message": "read of 4 bytes", "file": "a.hip", "line": 7, "text": "========= Invalid"}


# What the worker and the judge share ---------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "wanted"), [
    ("all", "all"), ("none", "none"), ("bounds, hazard", "bounds,hazard"), ("-lds-race", "all,-lds-race"),
    ("all,-waitcnt", "all,-waitcnt"), ("proxy-fence", "proxy-fence"),
])
def test_checks_are_named(text, wanted):
    assert parse_checks(text) == wanted


def test_a_device_gets_the_checks_that_it_has():
    text = "bounds,lds-race,shared-race,-hazard"
    assert checks_of("rocm", text) == "bounds,lds-race,-hazard"
    assert checks_of("cuda", text) == "bounds,shared-race"
    assert checks_of("cuda", "all,-waitcnt") == "all"
    assert checks_of("cuda", "waitcnt") == "none"


@pytest.mark.parametrize("text", ["", ",", "bound", "all,nonsense", "-"])
def test_a_check_that_there_is_not(text):
    with pytest.raises(ValueError, match="bounds, misaligned, uninitialised"):
        parse_checks(text)


@pytest.mark.parametrize("text", ["late", "eager", "random:0", "random:18446744073709551615"])
def test_schedules_are_named(text):
    assert parse_schedule(text) == text


@pytest.mark.parametrize("text", ["", "early", "random", "random:", "random:-1", "late:3",
                                  "random:18446744073709551616"])
def test_a_schedule_that_there_is_not(text):
    with pytest.raises(ValueError, match="there are eager, late and random:SEED"):
        parse_schedule(text)


def test_what_a_worker_sends_is_taken_with_care():
    assert entries({}, "findings") == ()
    assert entries({"findings": "none"}, "findings") == ()
    assert entries({"findings": [FINDING, 3, None]}, "findings") == (FINDING,)
    assert len(entries({"findings": [FINDING] * 5000}, "findings")) == KEPT["findings"]


def test_a_message_tells_the_first_findings_and_counts_the_others():
    assert explain([]) == ""
    text = explain([FINDING] * 5)
    assert text.count("========= Invalid") == SHOWN
    assert text.endswith("========= and 2 more (bounds)")
    assert explain([{"check": "hazard"}]) == "a finding without words"


@pytest.mark.parametrize(("counters", "seconds"), [
    ([], None), ([{}], None), ([{"modelled_us": 3.0}, {}], None), ([{"modelled_us": 0}], None),
    ([{"modelled_us": -1.0}], None), ([{"modelled_us": "3"}], None), ([{"modelled_us": 1e300}], None),
    ([{"modelled_us": 3.0}, {"modelled_us": 2}], 5e-6),
])
def test_a_modelled_time_is_that_of_all_launches_together(counters, seconds):
    assert modelled_seconds(counters) == (None if seconds is None else pytest.approx(seconds))


# Jobs ----------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def emulator():
    """The library, built once for all of these tests."""
    try:
        return _emulated.library()
    except ToolchainMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cuda_emulator():
    """The same of NVIDIA's GPUs."""
    try:
        return _emulated.cuda_library(release(find_nvcc()))
    except ToolchainMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def settings(cache, emulator, monkeypatch):
    monkeypatch.setattr(_emulated, "_chosen", [True])
    return toy(cache)


def job(settings, kernel: str, cases=(CASE,), mode: Mode = Mode.TEST) -> Job:
    backend = backends.get("rocm")
    (candidate,) = targets.candidates(settings, [problem(settings)], {"rocm": backend.probe()}, [kernel], None)
    return make_kernel_job(settings, candidate, mode, list(cases), False)


def judged(job: Job, tmp_path: Path) -> Record:
    """Score, keep, read again: the store holds what was returned."""
    result = score(job)
    store = Store(tmp_path / "records.db")
    store.add(result)
    assert store.get(result.id) == Record.from_json(json.loads(dumps(result)))
    return result


def test_a_right_kernel_passes_and_says_it_was_emulated(settings, tmp_path):
    result = judged(job(settings, "honest", problem(settings).tests), tmp_path)
    assert result.status is Status.PASSED
    assert (result.device, result.facts.emulated, result.facts.checks) == (
        "AMD Instinct MI300X (emulated)", True, "all")
    assert "MI300 (gfx942, emulated)" in terminal.table([result])
    for case in result.cases:
        assert case.stats is None, "a test has no time"
        (launch,) = case.counters
        assert launch["instructions"] > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kernel", "line", "words"), [
    ("off_by_one", 9, ("read of 4 bytes", "0 bytes behind 'x'", "4000 bytes)", "lane 39")),
    ("overrun", 8, ("write of 4 bytes", "0 bytes behind 'y'", "4000 bytes)", "workgroup (3,0,0)")),
])
def test_a_planted_off_by_one_is_told_with_file_and_line(settings, tmp_path, kernel, line, words):
    """Both leave right numbers behind."""
    result = judged(job(settings, kernel), tmp_path)
    (case,) = result.cases
    assert case.status is Status.RUNTIME_ERROR
    for word in (f"kernels/hip/toy/{kernel}.hip:{line}", *words):
        assert word in case.message, case.message
    (finding,) = case.findings
    assert (finding["check"], finding["file"], finding["line"]) == ("bounds", f"kernels/hip/toy/{kernel}.hip", line)
    assert f"{kernel}.hip:{line}" in terminal.table([result])
    assert f"file=kernels/hip/toy/{kernel}.hip,line={line}" in "\n".join(github.workflow_commands([result]))


@pytest.mark.slow
def test_with_checks_off_the_numbers_decide(settings, cache, tmp_path):
    result = judged(job(toy(cache, checks="none"), "off_by_one"), tmp_path)
    assert (result.status, result.facts.checks) == (Status.PASSED, "none")
    result = judged(job(toy(cache, checks="hazard,waitcnt"), "off_by_one"), tmp_path)
    assert result.status is Status.PASSED
    result = judged(job(toy(cache, checks="none"), "overrun"), tmp_path)
    assert result.status is Status.MUTATED_INPUT, "the guard behind the output is still there"


def test_wrong_numbers_stay_wrong_numbers(settings, tmp_path):
    result = judged(job(settings, "wrong"), tmp_path)
    assert result.status is Status.INCORRECT_NUMERICAL
    assert "wrong.hip:8" in result.message
    assert "1000 of 1000 elements are wrong" in result.message


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kernel", "words"), [
    ("traps", ("error 719 (hipErrorLaunchFailure", "__builtin_trap()", "traps.hip:8", "s_trap")),
    ("crowd", ("error 9 (hipErrorInvalidConfiguration", "2048 x 1 x 1 threads; the device takes 1024")),
])
def test_a_launch_that_fails_says_why(settings, tmp_path, kernel, words):
    result = judged(job(settings, kernel, problem(settings).tests), tmp_path)
    assert [case.status for case in result.cases] == [Status.RUNTIME_ERROR] * 2
    for word in words:
        assert word in result.message, result.message


# Times ---------------------------------------------------------------------------------------------------------------

def test_a_time_is_modelled_from_the_counters(settings, tmp_path):
    result = judged(job(settings, "honest", problem(settings).cases, Mode.BENCHMARK), tmp_path)
    assert result.status is Status.PASSED
    assert (result.evidence, result.protocol, result.facts.checks) == (Evidence.MODELLED, "modelled/1", "none")
    timed = [case for case in result.cases if case.stats]
    assert [case.case.group for case in timed] == ["benchmarks"] * 2
    for case in timed:
        assert case.stats.runs == 1
        assert case.stats.median == pytest.approx(1e-6 * sum(launch["modelled_us"] for launch in case.counters))
    assert result.score == pytest.approx(ranking_score([case.stats.median for case in timed], "geom"))
    text = terminal.table([result])
    assert "modelled times" in text
    assert "time (modelled)" in text
    assert "±" in text
    assert "the model's errors" in text
    assert all(case.stats.ci_low < case.stats.median < case.stats.ci_high for case in timed)


FORGED = """
import sys

wire = next(module for name, module in sys.modules.items() if name.endswith("scoring.ipc.wire"))
REAL = wire.answer


def answer(pipe, message):
    if "counters" in message:
        message["counters"] = [{"kernel": "fast", "modelled_us": 0.1}]
    REAL(pipe, message)


wire.answer = answer


def custom_kernel(data):
    return data[0] * data[1]
"""


def test_forged_counters_give_no_time(settings, tmp_path):
    (place,) = targets.places(settings, backends.get("rocm"), backends.get("rocm").probe(), None)
    path, staging = tmp_path / "forged.py", tmp_path / "staged"
    path.write_text(FORGED)
    staging.mkdir(mode=0o755)
    made = make_submission_job(settings, problem(settings), place, path, staging, Mode.BENCHMARK, [BENCHMARK], False)
    result = judged(made, tmp_path)
    assert (result.status, result.score, result.protocol) == (Status.PASSED, None, "")
    (case,) = result.cases
    assert (case.stats, case.counters) == (None, ())
    assert "no modelled time: " in case.message


def test_a_modelled_time_never_ranks_with_a_measured_one(settings, tmp_path):
    modelled = score(job(settings, "honest", problem(settings).cases, Mode.BENCHMARK))
    measured = replace(
        modelled, id="0" * 32, evidence=Evidence.MEASURED, kernel="hip/real", score=modelled.score * 2,
        facts=replace(modelled.facts, emulated=False))
    store = Store(tmp_path / "records.db")
    store.add(modelled)
    store.add(measured)
    rows = store.leaderboard(["toy"], None)
    assert sorted((row.kernel, row.evidence, row.rank) for row in rows) == [
        ("hip/honest", "modelled", 1), ("hip/real", "measured", 1)]
    assert len({row.board for row in rows}) == 2


def test_large_cases_are_left_out_with_the_reason(settings, cache, tmp_path):
    small = toy(cache, limits__case_gflop={"emulated": 2e-6})
    result = judged(job(small, "honest", problem(settings).cases, Mode.BENCHMARK), tmp_path)
    assert result.status is Status.PASSED
    assert result.facts.cases_skipped == ("n=4096", "n=50000")
    assert "on an emulated device (limits.case_gflop.emulated" in result.facts.cases_skipped_why
    assert [case.case.name for case in result.cases if case.stats] == ["n=64", "n=1000"], "what it can do is timed"


def test_a_record_without_findings_and_counters_can_be_read():
    data = record(cases=1).to_json()
    for case in data["cases"]:
        del case["findings"], case["counters"]
    read = Record.from_json(data)
    assert (read.cases[0].findings, read.cases[0].counters) == ((), ())


def test_a_finding_is_annotated_once_per_place():
    base = record(cases=1)
    case = base.cases[0].case
    failing = CaseResult(case, Status.RUNTIME_ERROR, findings=(FINDING, dict(FINDING, line=8), {"check": "barrier"}))
    lines = github.workflow_commands([
        replace(base, status=Status.RUNTIME_ERROR, score=None, cases=(failing, failing))])
    assert [line.split("::")[1] for line in lines] == ["error file=a.hip,line=7", "error file=a.hip,line=8"]


# The command line ----------------------------------------------------------------------------------------------------

@pytest.fixture
def main(monkeypatch, capsys, tmp_path, cache):
    """The command line in this process: (exit code, stdout, stderr)."""
    monkeypatch.setattr(_emulated, "_chosen", [])
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.delenv(_emulated.VARIABLE, raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["--config", str(SETTINGS), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return int(code), out, err

    return call


RUN = ("run", "--backend", "rocm", "--case", "n=64", "--no-save")


def test_run_emulates_and_says_so(main, emulator):
    code, out, _err = main(*RUN, "--emulate", "--kernel", "honest", "--json")
    assert code == ExitCode.OK
    (line,) = out.splitlines()
    found = json.loads(line)
    assert (found["device"], found["facts"]["emulated"]) == ("AMD Instinct MI300X (emulated)", True)
    assert found["cases"][0]["counters"][0]["kernel"]
    code, out, _err = main(*RUN, "--emulate", "--kernel", "overrun", "--checks", "all")
    assert code == ExitCode.FAILED
    assert "kernels/hip/toy/overrun.hip:8" in out
    (repeat,) = (line for line in out.splitlines() if "repeat: " in line)
    assert "--emulate --checks all" in repeat


def test_cuda_kernels_run_on_emulated_gpus_and_have_no_time(main, cuda_emulator):
    run = ("run", "--backend", "cuda", "--gpu", "L4", "--case", "n=64", "--no-save", "--emulate")
    code, out, _err = main(*run, "--kernel", "honest", "--mode", "benchmark", "--json")
    assert code == ExitCode.OK
    found = json.loads(out.splitlines()[0])
    assert (found["device"], found["facts"]["emulated"]) == ("NVIDIA L4 (emulated)", True)
    assert found["facts"]["checks"] == "none"        # as for the other emulated device outside of test mode
    assert found["cases"][0]["stats"] is None
    assert found["score"] is None
    (counted,) = found["cases"][0]["counters"]
    assert (counted["evidence"], counted["block"], counted["global"]["written_bytes"]) == ("emulated", [64, 1, 1], 256)
    code, out, _err = main(*run, "--kernel", "honest", "--sanitize", "racecheck", "--json")
    assert code == ExitCode.OK
    assert json.loads(out.splitlines()[0])["facts"]["checks"] == (
        "global-race,shared-race,proxy-fence,in-flight,grid-order")
    code, out, _err = main(*run, "--kernel", "overrun", "--schedule", "random:7")
    assert code == ExitCode.FAILED
    assert "kernels/cuda/toy/overrun.cu:8" in out
    assert "cudaErrorIllegalAddress" in out
    (repeat,) = (line for line in out.splitlines() if "repeat: " in line)
    assert "--schedule random:7" in repeat
    code, out, _err = main(*run, "--kernel", "honest", "--schedule", "random:7", "--mode", "test", "--json")
    assert json.loads(out.splitlines()[0])["facts"]["checks"] == "all; schedule random:7"
    code, _out, err = main(*run, "--schedule", "random")
    assert code == ExitCode.USAGE
    assert "--schedule: no schedule 'random'; there are eager, late and random:SEED" in err


def test_profile_counts_cuda_kernels_on_emulated_gpus(main, cuda_emulator):
    """64 numbers are read and written by two warps, and nothing says how long that takes."""
    profile = ("profile", "--kernel", "cuda/honest", "--gpu", "L4", "--case", "n=64")
    code, out, _err = main(*profile, "--json")
    assert code == ExitCode.OK
    found = json.loads(out)
    assert (found["tool"], found["evidence"], found["device"]) == ("emulator", "emulated", "NVIDIA L4 (emulated)")
    (launch,) = found["cases"][0]["launches"]
    assert (launch["global_bytes"], launch["coalesced_fraction"], launch["lines"]) == (512, 1.0, [])
    assert "modelled" not in out
    code, out, _err = main(*profile)
    assert code == ExitCode.OK
    assert out.splitlines()[0].endswith("L4 (emulated)")
    assert "512 B" in out
    assert "modelled" not in out
    assert " µs" not in out


def test_the_emulator_can_be_refused(main, monkeypatch):
    from backends import _amd

    monkeypatch.setattr(_amd, "devices", lambda: ((), ("no AMD device: none plugged in",)))
    code, out, _err = main(*RUN, "--no-emulate", "--kernel", "honest")
    assert code == ExitCode.UNAVAILABLE
    assert "not run: no MI300 here" in out


def test_an_unknown_check_is_a_usage_error(main):
    code, _out, err = main(*RUN, "--checks", "bound")
    assert code == ExitCode.USAGE
    assert "--checks: no check 'bound'; there are all, none, bounds" in err


def test_an_emulator_that_cannot_be_built_is_said_without_a_traceback(main, monkeypatch):
    from backends.emulator import build

    def broken(report=None):
        raise BackendError("the emulator cannot be built in /full (no space left)")

    monkeypatch.setattr(build, "library", broken)
    code, _out, err = main(*RUN, "--emulate", "--kernel", "honest")
    assert code == ExitCode.UNAVAILABLE
    assert "rocm: no emulated MI300X: the emulator cannot be built in /full" in err
    monkeypatch.setattr("backends._amd.devices", lambda: ((), ("no AMD device: none plugged in",)))
    code, out, err = main("run", "--kernel", "honest", "--case", "n=64", "--no-save", "--backend", "rocm")
    assert code == ExitCode.UNAVAILABLE
    assert "no emulated MI300X" in err
    assert "not run: no MI300 here" in out


def test_build_needs_no_emulator(main, monkeypatch):
    from backends.emulator import build

    def never(report=None):
        raise AssertionError("build does not run anything")

    monkeypatch.setattr(build, "library", never)
    code, out, _err = main("build", "--backend", "rocm", "--kernel", "honest")
    assert code == ExitCode.OK
    assert "scale" in out


@pytest.mark.parametrize(("library", "words"), [
    (None, "emulator: not built yet"), (Path("/cache/lib/libamdhip64.so"), "emulator: /cache/lib/libamdhip64.so"),
])
def test_doctor_says_which_runtime_is_in_use_and_why(main, monkeypatch, library, words):
    from backends.emulator import build

    monkeypatch.setattr(build, "ready", lambda: library)
    monkeypatch.setattr("backends._amd.devices", lambda: ((), ("no AMD device: none plugged in",)))
    code, out, _err = main("doctor")
    assert code == ExitCode.OK
    assert words in out
    assert "AMD Instinct MI300X (emulated) (gfx942, 192 GiB, emulated)" in out
    assert "the MI300X is emulated, as no real one was found" in out
    code, out, _err = main("doctor", "--json", "--emulate")
    facts = json.loads(out)
    assert facts["settings"]["emulate"] == {"value": "True", "origin": "flag"}
    assert facts["backends"]["rocm"]["reasons"] == ["the MI300X is emulated, as was asked for"]


@pytest.mark.slow
def test_a_submission_runs_on_the_cpu_unless_the_emulator_is_asked_for(main, emulator, tmp_path):
    path = tmp_path / "s.py"
    path.write_text("def custom_kernel(data):\n    x, alpha, y = data\n    return x * alpha\n")
    arguments = ("run", "--submission", str(path), "--problem", "toy", "--case", "n=64", "--no-save", "--json")
    code, out, _err = main(*arguments)
    assert (code, json.loads(out)["backend"]) == (0, "cpu")
    code, out, _err = main(*arguments, "--backend", "rocm", "--emulate")
    assert (code, json.loads(out)["facts"]["emulated"]) == (0, True)


def test_another_runtime_in_the_process_is_refused(emulator, tmp_path):
    """Kernels would be launched on whichever was there first."""
    source = tmp_path / "other.c"
    source.write_text("int hipLaunchKernel(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "other.so"], check=True)
    script = (f"import ctypes; ctypes.CDLL({str(tmp_path / 'other.so')!r}, mode=ctypes.RTLD_GLOBAL)\n"
              f"from scoring.ipc.emulator import Emulator\nEmulator({str(emulator)!r}, {{}})")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "another HIP runtime is in the process" in done.stderr
