# SPDX-License-Identifier: MIT
"""A contest's database on SQLite and, where Debian's PostgreSQL is installed, on PostgreSQL; and a server around it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from scoring.config.schema import Serve
from scoring.serve import accounts
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import Account, Base, Board

ADMIN = "organisers-token-of-the-tests"


def postgres_bin() -> Path | None:
    """The folder of initdb and pg_ctl; None without PostgreSQL's server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    on_path = shutil.which("pg_ctl")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL that these tests alone use, on a socket in a temporary folder."""
    programs = postgres_bin()
    if programs is None:
        pytest.skip("no PostgreSQL server here (apt-get install postgresql)")
    as_user: list[str] = []
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    folder = Path(tempfile.mkdtemp(prefix="warpwave-postgres-"))      # pytest's own folders are for root alone
    if as_user:
        os.chown(folder, user.pw_uid, user.pw_gid)
    data = folder / "data"
    quick = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]

    def run(program: str, *arguments: str) -> None:
        log = folder / f"{program}.txt"
        with log.open("w") as out:
            done = subprocess.run([*as_user, str(programs / program), *arguments], check=False, cwd=folder, stdout=out,
                                  stderr=subprocess.STDOUT)
        assert done.returncode == 0, log.read_text()

    run("initdb", "-D", str(data), "-A", "trust", "-U", "contest", "-N")
    run("pg_ctl", "-D", str(data), "-w", "-o", " ".join(quick), "-l", str(folder / "log"), "start")
    try:
        yield f"postgresql://contest@/postgres?host={folder}"
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty contest, on both kinds of database."""
    if request.param == "sqlite":
        found = Database(str(tmp_path / "contest.db"))
    else:
        found = Database(request.getfixturevalue("postgres"))
        with found.write() as session:
            session.execute(text("DROP SCHEMA public CASCADE"))
            session.execute(text("CREATE SCHEMA public"))
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Database]:
    """An empty contest on SQLite alone."""
    found = Database(str(tmp_path / "contest.db"))
    found.migrate()
    yield found
    found.close()


def settings(**changes: object) -> Serve:
    return Serve(**{"requests_per_second": 1000.0, "lease_seconds": 5.0, **changes})  # type: ignore[arg-type]


def add_board(database: Database, name: str = "board", gpus: tuple[str, ...] = ("CPU",), **values: object) -> int:
    """A board whose problem nobody will look for."""
    with database.write() as session:
        board = Board(**{
            "name": name, "problem": {"folder": "/nowhere", "tests": [], "benchmarks": []}, "description": "a board",
            "gpus": list(gpus), "secret": "5ecre7" * 8, "created": 1.0, "deadline": None,
            "task": {"native": True, "tests": [], "benchmarks": []}, **values})
        session.add(board)
        session.flush()
        return board.id


def add_account(database: Database, name: str, active: bool = True) -> tuple[int, str]:
    """An account's number and token."""
    with database.write() as session:
        account, token = accounts.register(session, active)
        account.name = name
        return account.id, token


def tables() -> list[str]:
    return [table.name for table in Base.metadata.sorted_tables]


def names(database: Database) -> list[str]:
    with database.read() as session:
        return [account.name for account in session.query(Account).order_by(Account.id)]
