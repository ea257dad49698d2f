# SPDX-License-Identifier: MIT
"""Who is told about the isolation: the record, ``doctor``, and the user who asks for what this machine has not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scoring import cli
from scoring.record import ExitCode
from scoring.sandbox.isolation import choose
from scoring.sandbox.policy import TIERS, Policy
from tests.scoring.harness import SETTINGS, scoring
from tests.scoring.sandbox import cell

RUN = ["--config", str(SETTINGS), "run", "--problem", "toy", "--kernel", "honest", "--case", "n=64", "--mode", "test"]


@pytest.fixture
def environment(tmp_path: Path, cache: Path) -> dict[str, str]:
    return {"WARPWAVE_DB": str(tmp_path / "records.db"), "WARPWAVE_CACHE_DIR": str(cache)}


@pytest.mark.parametrize("isolation", sorted({tier.name for tier in cell.available()}))
def test_a_record_names_the_isolation_that_was_in_force(environment, isolation):
    done = scoring([*RUN, "--json", "--isolation", isolation], environment)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["isolation"] == isolation


def test_the_strongest_is_taken_unless_told_otherwise(environment):
    done = scoring([*RUN, "--json"], environment)
    available = {tier.name for tier in cell.available()}
    assert json.loads(done.stdout)["isolation"] == next(name for name in TIERS if name in available)


def test_what_is_not_here_is_4_and_says_what_to_do(environment, monkeypatch, capsys):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("scoring.sandbox.isolation._known", {})
    monkeypatch.setattr("scoring.sandbox.isolation.trial", lambda tier, policy, nodes: "Operation not permitted")
    assert cli.main([*RUN, "--isolation", "landlock"]) == ExitCode.UNAVAILABLE
    error = capsys.readouterr().err
    assert "isolation landlock cannot be had here" in error
    assert "Operation not permitted" in error
    assert "isolation: auto" in error


def test_another_word_is_a_usage_error(tmp_path):
    settings = tmp_path / "config.yaml"
    settings.write_text("sandbox: {isolation: docker, processes: 1}\n")
    done = scoring(["--config", str(settings), "run"], {})
    assert done.returncode == ExitCode.USAGE
    assert "sandbox.isolation: Input should be 'auto', 'bubblewrap', 'landlock' or 'process'" in done.stderr
    assert "sandbox.processes" in done.stderr


def test_doctor_tells_what_is_used_and_why_not_more(environment):
    facts = json.loads(scoring(["doctor", "--json"], environment).stdout)["sandbox"]
    choice = choose(Policy())
    assert facts == {"isolation": choice.words, "reasons": list(choice.reasons)}
    text = scoring(["doctor"], environment).stdout
    assert f"isolation  {choice.words}" in text
