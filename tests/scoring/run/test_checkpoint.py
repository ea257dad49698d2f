# SPDX-License-Identifier: MIT
"""A database that fails is told before anything runs, or costs its own records alone."""

from __future__ import annotations

import json

import pytest

from scoring import cli
from scoring.run import plan
from scoring.store.store import Store, StoreError
from tests.scoring.harness import SETTINGS

ARGUMENTS = ["--config", str(SETTINGS), "run", "--case", "n=64", "--kernel", "honest", "--kernel", "nan",
             "--kernel", "error7"]


@pytest.fixture(autouse=True)
def places(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("WARPWAVE_DB", str(tmp_path / "records.db"))
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(cache))


def test_a_database_that_cannot_be_opened_is_told_before_anything_runs(monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(plan, "score", ran.append)
    monkeypatch.setenv("WARPWAVE_DB", "/proc/none.db")
    assert cli.main(ARGUMENTS) == 2
    out, err = capsys.readouterr()
    assert (out, ran) == ("", [])
    assert "error: /proc/none.db: " in err


def test_a_file_that_is_no_database_is_told_before_anything_runs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(plan, "score", lambda job: pytest.fail("it ran"))
    (tmp_path / "records.db").write_text("these are no records\n" * 100)
    assert cli.main(ARGUMENTS) == 2
    assert "the file is damaged" in capsys.readouterr().err


def test_a_database_that_is_not_wanted_is_not_opened(monkeypatch, capsys):
    monkeypatch.setenv("WARPWAVE_DB", "/proc/none.db")
    assert cli.main([*ARGUMENTS, "--no-save"]) == 1
    assert "2 failed" in capsys.readouterr().out


@pytest.fixture
def failing(monkeypatch):
    """A store that cannot keep the record of one kernel."""
    add = Store.add

    def refuse(self: Store, record) -> None:
        if record.kernel == "cpu/honest":
            raise StoreError(f"{self.path}: database or disk is full; the disk is full")
        add(self, record)

    monkeypatch.setattr(Store, "add", refuse)


def test_a_record_that_cannot_be_kept_costs_nothing_else(failing, capsys, tmp_path):
    assert cli.main(ARGUMENTS) == 2
    out, err = capsys.readouterr()
    assert "1 passed, 2 failed" in out
    assert err.count("error: not kept: ") == 1
    assert "toy cpu/honest on CPU: PASSED): " in err
    assert "the disk is full" in err
    assert {record.kernel for record in Store(tmp_path / "records.db").records()} == {"cpu/error7", "cpu/nan"}


def test_every_record_is_printed_as_json_even_if_it_is_not_kept(failing, capsys):
    assert cli.main([*ARGUMENTS, "--json"]) == 2
    out, err = capsys.readouterr()
    assert {json.loads(line)["kernel"] for line in out.splitlines()} == {"cpu/error7", "cpu/honest", "cpu/nan"}
    assert "not kept" in err


def test_what_was_not_kept_is_told_when_the_run_is_interrupted(failing, monkeypatch, capsys):
    real = plan.score

    def interrupted(job, listener):
        if job.kernel == "cpu/nan":
            raise KeyboardInterrupt
        return real(job, listener)

    monkeypatch.setattr(plan, "score", interrupted)
    assert cli.main(ARGUMENTS) == 130
    assert "not kept: record " in capsys.readouterr().err


def test_prepare_makes_a_database_that_reads_as_empty(tmp_path):
    store = Store(tmp_path / "new" / "records.db")
    store.prepare()
    store.prepare()
    assert store.path.is_file()
    assert store.records() == []
