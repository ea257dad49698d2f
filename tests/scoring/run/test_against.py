# SPDX-License-Identifier: MIT
"""``run --against``: rivals race in the kernel's own rounds, are checked there, and cost the kernel nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends import _emulated
from backends.errors import BackendError, ToolchainMissing
from scoring import cli
from scoring.judge import timing
from scoring.judge.job import Entrant
from scoring.judge.rivals import Turns, race
from scoring.output import race as output
from scoring.output import terminal
from scoring.output.table import Style
from scoring.record import ExitCode, Outcome, Record, Status
from scoring.run import rivals, targets
from scoring.run.select import SelectionError
from scoring.store.store import Store
from tests.scoring.harness import DATA

SUBMISSIONS = DATA / "submissions"


@pytest.fixture
def raced(tmp_path, monkeypatch, capsys):
    """``run`` of a toy kernel's largest case against others: exit code, record and what was said on stderr."""
    settings = tmp_path / "config.yaml"
    settings.write_text(
        "backends: [cpu]\nmode: benchmark\ntiming: {processes: 1, min_rounds: 6, max_rounds: 8, seconds: 20}\n"
        "limits: {load_seconds: 120, call_seconds: 60, job_seconds: 600}\n"
        f"paths: {{problems: {DATA}/problems, kernels: {DATA}/kernels, peers: peers}}\n")
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "kept.db"))

    def run(kernel: str, *against: str, flags: tuple[str, ...] = ()) -> tuple[int, Record | None, str]:
        words = ["--config", str(settings), "run", "--problem", "toy", "--kernel", kernel, "--case", "n=50000",
                 "--seed", "5", "--json", *flags, *(word for text in against for word in ("--against", text))]
        code = cli.main(words)
        out, err = capsys.readouterr()
        return code, Record.from_json(json.loads(out)) if out else None, err

    return run


# What a rival's name means --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "what", "defines"), [
    ("mine", "mine", {}), ("cuda/p/mine[A=1,B=x]", "cuda/p/mine", {"A": "1", "B": "x"}), ("mine[]", "mine", {}),
    ("a/b.cu[A=0]", "a/b.cu", {"A": "0"}),
])
def test_a_rival_is_named_with_its_values(text, what, defines):
    assert rivals.parse(text) == rivals.Spec(what, defines)


@pytest.mark.parametrize("text", ["", "mine[A]", "mine[A=1", "[A=1]", "mine[A=1,A=2]"])
def test_what_names_no_rival(text):
    with pytest.raises(SelectionError) as caught:
        rivals.parse(text)
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize(("against", "told"), [
    ("loop", ("no such kernel; cpu/toy has", "honest", "did you mean loops?")),
    ("fp8_gemm/naive", ("is no kernel of toy", "one problem")),
    ("hip/toy/honest", ("is a hip kernel", "cpu/honest runs on CPU")),
    ("loops[LOPS=2]", ("sets LOOPS, not LOPS",)),
    ("loops[LOOPS=7]", ("LOOPS is one of 1, 200, not 7",)),
    ("nowhere.cpp", ("no such file",)),
    ("nowhere.py", ("no such file",)),
    (str(DATA / "kernels/hip/toy/honest.hip"), ("is a hip kernel",)),
])
def test_a_rival_that_there_is_not_is_a_usage_error_with_what_there_is(raced, against, told):
    code, record, err = raced("honest", against)
    assert (code, record) == (ExitCode.USAGE, None)
    assert err.startswith(f"error: --against {against}: ")
    assert all(words in err for words in told), err


def test_a_race_is_of_times(raced):
    code, _record, err = raced("honest", "loops", flags=("--mode", "test"))
    assert code == ExitCode.USAGE
    assert "--mode test has none" in err


def test_a_submission_for_another_problem_does_not_race(raced, monkeypatch):
    monkeypatch.setattr(targets, "submission_problem", lambda config, path: "fp8_gemm")
    code, _record, err = raced("honest", str(SUBMISSIONS / "honest.py"))
    assert code == ExitCode.USAGE
    assert "its header names fp8_gemm; a race is between answers to one problem, here toy" in err


# Races on the CPU -----------------------------------------------------------------------------------------------------

def test_a_slower_build_of_the_same_kernel_is_shown_as_slower(raced, tmp_path):
    """Two builds of one file: a copy that does the same 200 times, and the same again."""
    code, record, _err = raced("loops", "loops[LOOPS=200]", "loops")
    assert code == ExitCode.OK
    assert record is not None
    (result,) = record.cases
    found = result.race
    assert found is not None
    assert found.stats is not None
    slow, again = found.rivals
    assert (slow.name, again.name) == ("cpu/loops[LOOPS=200]", "cpu/loops (2)")
    assert slow.outcome is Outcome.SLOWER
    assert slow.ratio is not None
    assert slow.ratio > 10
    assert slow.ratio_low is not None
    assert slow.ratio_low > 1
    assert slow.same_bits is again.same_bits is True
    assert len(slow.digest) == 64 != len(again.name)
    assert again.digest != slow.digest
    assert found.cold is False, "four slots of 200 kB are in the cache"
    assert len(found.order) == found.stats.runs >= 6
    assert all(sorted(turn) == [0, 1, 2] for turn in found.order)
    assert len(set(found.order)) > 1, "every round has an order of its own"
    text = terminal.table([record])
    assert "Race of toy · cpu/loops · CPU" in text
    assert "not cold" in text
    assert "cpu/loops[LOOPS=200]" in text
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_a_faster_rival_is_faster_and_takes_no_place_on_the_leaderboard(raced, tmp_path):
    code, record, _err = raced("loops", "loops", str(SUBMISSIONS / "honest.py"), flags=("-D", "LOOPS=200"))
    assert code == ExitCode.OK
    assert record is not None
    assert record.kernel == "cpu/loops[LOOPS=200]"
    assert record.cases[0].race is not None
    fast, python = record.cases[0].race.rivals
    assert (fast.name, fast.outcome) == ("cpu/loops", Outcome.FASTER)
    assert python.name.startswith("honest.py@")
    assert python.stats is not None
    store = Store(tmp_path / "kept.db")
    (kept,) = store.records()
    assert kept.cases[0].race == record.cases[0].race
    assert {row.kernel for row in store.leaderboard()} <= {"cpu/loops[LOOPS=200]"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("against", "status"), [
    ("nan", Status.INCORRECT_NUMERICAL), ("overrun", Status.MUTATED_INPUT), ("input", Status.MUTATED_INPUT),
    ("segfault", Status.RUNTIME_ERROR), ("declines", Status.UNSUPPORTED), ("broken", Status.COMPILE_ERROR),
    (str(SUBMISSIONS / "raises.py"), Status.RUNTIME_ERROR),
])
def test_a_rival_that_fails_is_shown_and_the_kernel_keeps_its_time(raced, against, status):
    code, record, _err = raced("honest", against, "loops")
    assert code == ExitCode.OK
    assert record is not None
    (result,) = record.cases
    assert result.status is Status.PASSED
    assert result.stats is not None
    assert result.race is not None
    failed, right = result.race.rivals
    assert (failed.status, failed.stats, failed.outcome) == (status, None, None)
    assert failed.message
    assert right.stats is not None
    assert all(sorted(turn) == [0, 1] for turn in result.race.order)
    assert str(status) in terminal.table([record])


def test_the_seed_gives_the_turns(raced):
    code, record, _err = raced("honest", "loops[LOOPS=200]")
    assert code == ExitCode.OK
    _code, again, _err = raced("honest", "loops[LOOPS=200]")
    first, second = (found.cases[0].race.order for found in (record, again))
    assert first[: len(second)] == second[: len(first)]


# Modelled times -------------------------------------------------------------------------------------------------------

@pytest.mark.toolchain("rocm")
@pytest.mark.timeout(600)
def test_modelled_times_are_compared_within_the_errors_of_the_model(raced, monkeypatch):
    try:
        _emulated.library()
    except (BackendError, ToolchainMissing) as error:
        pytest.skip(str(error))
    flags = ("--backend", "rocm", "--emulate")
    code, record, _err = raced("loops", "loops[LAUNCHES=3]", "loops", "wrong", flags=flags)
    assert code == ExitCode.OK
    assert record is not None
    (result,) = record.cases
    assert result.race is not None
    slow, same, wrong = result.race.rivals
    assert (slow.outcome, same.outcome, wrong.outcome) == (Outcome.SLOWER, Outcome.NOT_RESOLVED, None)
    assert same.ratio == 1.0
    assert same.ratio_low < 1.0 < same.ratio_high, "the model's errors"
    assert slow.ratio is not None
    assert slow.ratio > 1.5
    assert wrong.status is not Status.PASSED
    assert "modelled times" in result.race.note
    assert "modelled times" in terminal.table([record])
    _code, again, _err = raced("loops", "loops[LAUNCHES=3]", flags=flags)
    assert again is not None
    assert again.cases[0].race is not None
    assert again.cases[0].race.rivals[0].ratio == slow.ratio, "a model has no noise"


# The figures ----------------------------------------------------------------------------------------------------------

def test_a_race_is_told_in_the_order_that_rivals_were_named():
    turns = Turns({"own": [[1.0] * 6], "peer": [[2.0] * 6], "b": [[3.0] * 6]}, 7, [(2, 0, 1)] * 6, {"b": False})
    found = race(turns, "own", [Entrant("a"), Entrant("b", "d")], {"a": (Status.UNSUPPORTED, "no")}, True)
    assert [(rival.name, rival.peer, rival.ratio) for rival in found.rivals] == [
        ("a", False, None), ("b", False, 3.0), ("peer", True, 2.0)]
    assert found.order == ((1, 0, 2),) * 6, "0 is the kernel, 1 is b, 2 is the peer"
    few = race(Turns({"own": [[1.0] * 3], "b": [[2.0] * 3]}), "own", [Entrant("b")], {}, True, confirmed=False)
    assert few.rivals[0].outcome is None
    assert few.note == ("3 rounds are too few for an outcome; the judge's clock does not confirm the kernel's claims, "
                        "and ratios are of claims")


@pytest.mark.parametrize(("slots", "size", "cold"), [(1, 1000, False), (3, 100, True), (2, 100, False), (23, 10, True)])
def test_a_race_is_cold_by_what_it_reads(slots, size, cold):
    assert timing.racing_cold(slots, size, 100) is cold


def test_slots_of_a_race_are_counted_by_their_inputs():
    assert timing.slots_needed(400, 1000, 1.0, 1 << 30) == 2
    assert timing.slots_needed(400, 1000, 1e-3, 1 << 30, input_bytes=100) == 22


def test_a_rival_that_failed_has_no_time():
    from scoring.record import Rival

    with pytest.raises(ValueError, match="no time and no outcome"):
        Rival("x", status=Status.TIMEOUT, outcome=Outcome.FASTER)


def test_a_record_without_rivals_has_no_race_table(raced):
    _code, record, _err = raced("honest")
    assert record is not None
    assert record.cases[0].race is None
    assert output.table(record, "title", Style()) == ""


def test_paths_are_looked_for_where_the_command_runs(raced, monkeypatch):
    monkeypatch.chdir(DATA / "kernels/cpu/toy")
    code, record, _err = raced("honest", "loops.cpp[LOOPS=200]")
    assert code == ExitCode.OK
    assert record is not None
    assert record.cases[0].race is not None
    assert record.cases[0].race.rivals[0].name == "cpu/loops[LOOPS=200]"
    assert Path("loops.cpp").is_file()


def test_a_case_that_is_not_listed_is_given_by_all_its_parameters(raced, capsys):
    code, record, _err = raced("honest", "loops[LOOPS=200]", flags=("--case", "n=70000"))
    assert code == ExitCode.OK
    assert record is not None
    assert [result.case.name for result in record.cases] == ["n=50000", "n=70000"]
    assert all(result.race is not None for result in record.cases)
    assert record.score is None, "not all benchmarks of the problem"
    code, record, err = raced("honest", flags=("--case", "m=3"))
    assert (code, len(record.cases) if record else 0) == (ExitCode.OK, 1), err


@pytest.mark.parametrize(("other", "outcome"), [
    (1.25, Outcome.NOT_RESOLVED), (1.4, Outcome.SLOWER), (0.8, Outcome.NOT_RESOLVED), (0.7, Outcome.FASTER),
])
def test_modelled_times_within_the_larger_band_are_not_resolved(other, outcome):
    turns = Turns({"own": [[1.0]], "rival": [[other]]})
    found = race(turns, "own", [Entrant("rival")], {}, None, bands={"own": 0.2, "rival": 0.3}).rivals[0]
    assert found.outcome is outcome
