# SPDX-License-Identifier: MIT
"""The suite itself: its files, its decisions, and that it finds the holes of judges that trust too much."""

from __future__ import annotations

from collections import Counter

import pytest

import backends
from tests.redteam.canary import Canary
from tests.redteam.entries import (
    HERE,
    TRIES,
    Entry,
    HeaderError,
    Outcome,
    Result,
    Trial,
    decide,
    entries,
    figures,
    parse_header,
    wants_another,
)
from tests.redteam.suite import Suite, select_entries

CLASSES = {
    "output", "replay", "phases", "timers", "deferred", "checker", "harness", "chain", "host", "channel", "commands"}
CHEAT = Entry(HERE / "cheats/output/x.py", False, "output", "matmul", "any", "none")
HONEST = Entry(HERE / "honest/x.py", True, "honest", "matmul", "any", "none")


def named(name: str) -> Entry:
    (found,) = select_entries(entries(), "cpu", name)
    return found


# The files -----------------------------------------------------------------------------------------------------------

def test_enough_files_of_every_class():
    every = entries()
    cheats, honest = [e for e in every if not e.honest], [e for e in every if e.honest]
    assert len(cheats) >= 60
    assert len(honest) >= 25
    on_cpu = Counter(entry.kind for entry in cheats if entry.runs_on("cpu"))
    assert set(on_cpu) >= CLASSES
    assert min(on_cpu[kind] for kind in CLASSES) >= 5, on_cpu
    assert sum(entry.device == "cuda" for entry in cheats) >= 10


def test_names_are_unique():
    names = Counter(entry.name for entry in entries())
    assert not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("text", [
    "# class: output\n# problem: matmul\n# device: cpu\n",
    "# class: output\n# problem: sudoku\n# device: cpu\n# idea: x\n",
    "# class: output\n# problem: matmul\n# device: tpu\n# idea: x\n",
    "# class: output\n# problem: matmul\n# device: cpu\n# idea: x\n# expect: mercy\n",
    "import torch\n# class: output\n",
])
def test_a_bad_header_is_named(text):
    with pytest.raises(HeaderError, match=r"x\.py"):
        parse_header(HERE / "cheats" / "x.py", text)


# Decisions -----------------------------------------------------------------------------------------------------------

def trial(status: str = "PASSED", ratio: float = 1.0, evidence: tuple[str, ...] = ()) -> Trial:
    return Trial(status, ratio, 1.0, 1.0, evidence=evidence)


@pytest.mark.parametrize(("trials", "outcome"), [
    ([], Outcome.NOT_RUN),
    ([trial("INCORRECT_NUMERICAL")], Outcome.REJECTED),
    ([trial(ratio=1.0)], Outcome.NEUTRALISED),
    ([trial(ratio=0.5)] * TRIES, Outcome.REWARDED),
    ([trial(ratio=0.5), trial(ratio=0.9)], Outcome.NEUTRALISED),
    ([trial(ratio=0.5), trial("TIMEOUT")], Outcome.NEUTRALISED),
    ([trial("RUNTIME_ERROR", evidence=("a secret is in the record",))], Outcome.REWARDED),
])
def test_what_trials_of_a_cheat_come_to(trials, outcome):
    assert decide(CHEAT, trials) is outcome


def test_what_must_be_rejected_may_not_pass_at_any_time():
    strict = Entry(CHEAT.path, False, "output", "matmul", "any", "none", expect="rejected")
    assert decide(strict, [trial(ratio=3.0)]) is Outcome.REWARDED
    assert decide(strict, [trial("INCORRECT_NUMERICAL")]) is Outcome.REJECTED


@pytest.mark.parametrize(("status", "outcome"), [
    ("PASSED", Outcome.ACCEPTED), ("TIMEOUT", Outcome.REJECTED), ("TAMPERED", Outcome.REJECTED),
])
def test_an_honest_file_must_pass(status, outcome):
    assert decide(HONEST, [trial(status, 2.0)]) is outcome


def test_only_a_gain_is_tried_again():
    assert wants_another(CHEAT, [trial(ratio=0.5)])
    assert not wants_another(CHEAT, [trial(ratio=0.5)] * TRIES)
    assert not wants_another(CHEAT, [trial(ratio=0.9)])
    assert not wants_another(CHEAT, [trial(ratio=0.5, evidence=("x",))])
    assert not wants_another(HONEST, [trial(ratio=0.5)])


def test_a_gain_is_over_the_faster_honest_time():
    assert Trial("PASSED", 0.7, 1.0, 0.8).ratio == pytest.approx(0.875)
    assert not Trial("PASSED", 0.7, 1.0, 0.8).gained
    assert Trial("PASSED", None, 1.0, 1.0).ratio is None


def test_the_figures():
    results = [
        Result(CHEAT, (), Outcome.REWARDED), Result(CHEAT, (), Outcome.REJECTED), Result(CHEAT, (), Outcome.NOT_RUN),
        Result(HONEST, (), Outcome.ACCEPTED),
    ]
    assert figures(results) == "cheats rewarded: 1 of 2 · honest rejected: 0 of 1 · not run: 1"


def test_a_canary_sings():
    with Canary() as canary:
        assert canary.evidence("nothing of interest") == []
        assert len(canary.evidence(f"RuntimeError: {canary.secret}")) == 1
        (canary.folder / "guarded.txt").write_text("changed")
        (canary.folder / "loot.txt").write_text(canary.environment["WARPWAVE_CANARY"])
        assert len(canary.evidence("")) == 3       # changed, left, and what was in it
        assert canary.evidence("") == []           # all in place again


# A suite that cannot fail is none ------------------------------------------------------------------------------------

@pytest.mark.sampled(1)
@pytest.mark.parametrize(("weakness", "name"), [
    ("claims", "harness/seconds_tiny"),
    ("unchecked", "output/constant_mean"),
    ("uncommitted", "chain/digest_made_up"),
])
def test_a_judge_that_trusts_too_much_rewards(weakness, name):
    with Suite("cpu", weakness) as suite:
        result = suite.run(named(name))
    assert result.outcome is Outcome.REWARDED, result


# On a GPU ------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def gpu_suite():
    if not backends.get("cuda").probe().devices:
        yield None
        return
    with Suite("cuda") as suite:
        yield suite


@pytest.mark.device("cuda")
@pytest.mark.parametrize("entry", [e for e in entries() if e.device == "cuda"], ids=lambda entry: entry.name)
def test_on_a_gpu(entry, gpu_suite, record_property):
    kind = "honest" if entry.honest else "cheat"
    if gpu_suite is None:
        record_property("redteam", [kind, "not run"])
        pytest.skip("no CUDA device here: run `python -m tests.redteam --device cuda` where there is one")
    result = gpu_suite.run(entry)
    record_property("redteam", [kind, str(result.outcome)])
    assert not result.failed, result
