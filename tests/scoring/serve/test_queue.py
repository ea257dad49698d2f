# SPDX-License-Identifier: MIT
"""The queue on both databases: leases, lost workers, cancelling, limits, seasons. Nothing is judged twice or lost."""

from __future__ import annotations

import gzip
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from scoring.run.select import SelectionError
from scoring.serve import accounts, intake, queue, season, standings
from scoring.serve.errors import Refused
from scoring.serve.outcome import outcome_of
from scoring.serve.queue import Outcome
from scoring.serve.storage.database import Database, DatabaseError, url_of
from scoring.serve.storage.models import Account, Base, Board, Lease, Result, Source, Submission, Token
from scoring.serve.worker import Loop, is_gone, worker_name
from tests.scoring.serve.conftest import add_account, add_board, settings
from tests.scoring.serve.fakes import Fake, judge_all, loop, record


def submit(database: Database, who: int, text: str = "# 1e-6", gpu: str = "CPU", mode: str = "leaderboard",
           **limits: object) -> int:
    with database.write() as session:
        board = session.scalars(select(Board)).first()
        assert board is not None
        account = session.get_one(Account, who)
        return intake.accept(session, settings(**limits), account, board, gpu, mode, "s.py", text.encode()).id


def state(database: Database, number: int) -> tuple[str, str]:
    with database.read() as session:
        result = session.get(Result, number)
        return session.get_one(Submission, number).status, result.error if result else ""


def test_the_migrations_make_what_the_models_say(database):
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.migrate()          # again: nothing happens


def test_a_submission_is_leased_judged_and_finished_once(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    numbers = [submit(database, who, f"# {n}e-6") for n in (3, 2, 4)]
    assert judge_all(database) == numbers, "the oldest first"
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Result)) == 3
        assert session.scalar(select(func.count()).select_from(Lease)) == 0
        board = session.scalars(select(Board)).one()
        ((best,),) = standings.leading(session, board, "CPU")
    assert (best.rank, best.submission, best.score) == (1, numbers[1], 2e-6)
    assert best.low is not None
    assert best.high is not None
    assert best.low < best.score < best.high


def test_the_same_bytes_are_kept_once(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    for text in ("# 1", "# 1", "# 2"):
        submit(database, who, text)
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Source)) == 2


def test_many_workers_at_once_never_take_the_same(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    numbers = [submit(database, who, f"# {n}e-6", queued_per_person=99) for n in range(1, 25)]
    found: list[list[int]] = [[] for _ in range(4)]

    def work(at: int) -> None:
        found[at] = judge_all(database, number=at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for several in found for number in several) == numbers
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Result)) == len(numbers)


def test_a_lost_job_runs_once_more_and_then_fails_with_the_reason(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    number = submit(database, who, "# die")
    assert loop(database).step()
    assert state(database, number) == ("queued", "")
    assert loop(database).step()
    status, error = state(database, number)
    assert status == "failed"
    assert "2 times" in error
    assert "signal 9" in error


def test_a_lease_that_ran_out_is_taken_back_and_its_late_worker_writes_nothing(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    number = submit(database, who)
    with database.write() as session:
        late = queue.take(session, ["CPU"], "elsewhere|1-2-3|0", lease_seconds=-1.0)
    assert late is not None
    with database.write() as session:
        assert queue.release(session) == 1
    assert judge_all(database) == [number]
    with database.write() as session:
        assert not queue.renew(session, late, 5.0, "still here")
        assert not queue.finish(session, late, Outcome("succeeded", score=1e-9))
    with database.read() as session:
        assert session.get_one(Result, number).score == 1e-6


def test_the_lease_of_a_process_that_is_gone_is_taken_back_at_once(database):
    assert not is_gone(worker_name())
    gone = worker_name().replace(f"|{__import__('os').getpid()}-", "|999999-")
    assert is_gone(gone)
    assert not is_gone(gone.replace(gone.partition("|")[0], "another-host")), "nothing is known of other hosts"
    add_board(database)
    who, _ = add_account(database, "ann")
    submit(database, who)
    with database.write() as session:
        assert queue.take(session, ["CPU"], gone, 1000.0)
        assert queue.release(session, is_gone) == 1


def test_a_stopped_server_does_not_use_up_an_attempt(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    number = submit(database, who, "# wait 60")
    for _ in range(3):
        worker = loop(database)
        threading.Timer(0.2, worker.stop.set).start()
        worker.step()
    assert state(database, number) == ("queued", "")
    with database.read() as session:
        assert session.get_one(Submission, number).attempts == 0


def test_a_worker_whose_server_was_killed_gives_its_job_back(database):
    """The next server starts workers of its own; two would time side by side."""
    add_board(database)
    who, _ = add_account(database, "ann")
    number = submit(database, who, "# wait 60")
    worker = loop(database)
    threading.Timer(0.2, lambda: setattr(worker, "_parent", -1)).start()
    worker.run()
    assert state(database, number) == ("queued", "")
    late = Loop(database, {"CPU": "a device"}, Fake(), 5.0, parent=-1)      # it was killed while the worker started
    late.run()
    assert isinstance(late.executor, Fake)
    assert late.executor.judged == []
    with database.read() as session:
        assert session.get_one(Submission, number).attempts == 0


def test_a_writer_waits_for_another_process_and_then_says_so(local, tmp_path, monkeypatch):
    add_board(local)
    with closing(sqlite3.connect(tmp_path / "contest.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with local.read() as session:                # readers do not wait
            assert session.scalar(select(Board.name)) == "board"
        monkeypatch.setattr("scoring.serve.storage.database.WAIT_SECONDS", 0.2)
        with pytest.raises(OperationalError, match="locked"), local.write() as session:
            session.scalar(select(Board.name))
        other.execute("COMMIT")
    with local.write() as session:
        assert session.scalar(select(func.count()).select_from(Board)) == 1


def test_cancelling_ends_what_waits_and_what_runs(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    running, waiting = submit(database, who, "# wait 60"), submit(database, who, "# 1e-6")
    worker = loop(database, lease_seconds=1.0)
    thread = threading.Thread(target=worker.step)
    thread.start()
    until = time.monotonic() + 10
    while state(database, running)[0] != "running" and time.monotonic() < until:
        time.sleep(0.02)
    for number in (running, waiting):
        with database.write() as session:
            assert queue.cancel(session, session.get_one(Submission, number), "by its owner")
    thread.join(10.0)
    assert not thread.is_alive(), "the worker noticed"
    assert state(database, running) == state(database, waiting) == ("cancelled", "by its owner")
    with database.write() as session:
        assert not queue.cancel(session, session.get_one(Submission, running), "again")


def test_limits_of_one_person_hold_for_requests_at_once(database):
    add_board(database)
    who, _ = add_account(database, "ann")
    refused: list[Refused] = []

    def go() -> None:
        try:
            submit(database, who, queued_per_person=3)
        except Refused as error:
            refused.append(error)

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [error.status for error in refused] == [429] * 5
    judge_all(database)
    with pytest.raises(Refused, match="in an hour"):
        submit(database, who, submissions_per_hour=3)
    submit(database, who, submissions_per_hour=3, mode="test")


def test_a_season_travels_between_databases_in_one_file(database, tmp_path, postgres):
    add_board(database)
    who, token = add_account(database, "ann")
    numbers = [submit(database, who, "# 2e-6"), submit(database, who, "# fail it is wrong")]
    judge_all(database)
    with database.write() as session:
        session_secret = accounts.open_session(session, session.get_one(Account, who))
    file = tmp_path / "season.gz"
    counts = season.export(database, file)
    assert counts["submission"] == counts["result"] == 2
    assert file.stat().st_mode & 0o077 == 0
    assert session_secret.encode() not in gzip.decompress(file.read_bytes())
    assert token.encode() not in gzip.decompress(file.read_bytes())
    other = Database(str(tmp_path / "other.db"))
    other.migrate()
    assert season.load(other, file) == counts
    with other.read() as session:
        assert accounts.identify(session, token) is not None, "people keep their tokens"
        assert session.scalar(select(func.count()).select_from(Token)) == 1
        assert session.get_one(Result, numbers[0]).record
    assert submit(other, who) == numbers[-1] + 1
    with pytest.raises(SelectionError, match="into a new one"):
        season.load(other, file)
    (tmp_path / "no.gz").write_bytes(gzip.compress(b'{"format": "another"}\n'))
    with pytest.raises(SelectionError, match="no season"):
        season.load(other, tmp_path / "no.gz")
    other.close()


def test_ranks_keep_apart_what_does_not_compare(database):
    add_board(database)
    ann, bob, eve = (add_account(database, name)[0] for name in ("ann", "bob", "eve"))
    for who, seconds in ((ann, 3e-6), (bob, 2e-6), (bob, 1e-6), (eve, 0.5e-6)):
        submit(database, who, f"# {seconds}")
    judge_all(database)
    modelled = submit(database, ann)
    with database.write() as session:
        taken = queue.take(session, ["CPU"], "w", 5.0)
        assert taken is not None
        outcome = outcome_of({"event": "done", "record": record(9e-6, protocol="modelled/1").to_json()})
        queue.finish(session, taken, outcome)
        session.get_one(Account, eve).banned = True
    with database.read() as session:
        newest, older = standings.leading(session, session.scalars(select(Board)).one(), "CPU")
    assert [(row.rank, row.submission) for row in newest] == [(1, modelled)]
    assert [(row.rank, row.name, row.score) for row in older] == [(1, "bob", 1e-6), (2, "ann", 3e-6)]


def test_addresses_of_databases(tmp_path: Path):
    assert url_of("x.db").startswith("sqlite:////")
    assert url_of("postgresql://a:b@h/n") == "postgresql+psycopg://a:b@h/n"
    with pytest.raises(DatabaseError, match="postgresql://USER"):
        url_of("mysql://h/n")
    with pytest.raises(DatabaseError, match="check that the server runs") as caught:
        Database("postgresql://someone:pa55word@127.0.0.1:1/none").migrate()
    assert "pa55word" not in str(caught.value)
