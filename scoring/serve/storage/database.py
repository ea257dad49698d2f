# SPDX-License-Identifier: MIT
"""Connections to the contest's database, and its migrations. SQLite by a file's path, PostgreSQL by URL.

SQLite runs with a write-ahead log, and a transaction that returned is on disk (``synchronous = FULL``). Writers take
its lock at the start, so two of them wait for one another and never deadlock. SQLite's own wait for that lock sleeps
longer and longer, up to 0.1 s, so that whoever waits longest comes last. Here writers of one process take turns, and
the one whose turn it is asks again after 1 ms.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session

MIGRATIONS = Path(__file__).with_name("migrations")
WAIT_SECONDS = 30.0          # for another writer
RETRY_SECONDS = 0.001


class DatabaseError(Exception):
    """The database cannot be used; the message says why and what to do."""


def url_of(where: str) -> str:
    """The SQLAlchemy URL of a path or of a ``postgresql://`` URL. Raises ``DatabaseError`` for another kind."""
    if "://" not in where:
        return f"sqlite:///{Path(where).absolute()}"
    try:
        url = make_url(where)
    except ArgumentError as error:
        raise DatabaseError(f"database: not a URL: {error}") from None
    kind = url.drivername.partition("+")[0]
    if kind in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    if kind == "sqlite" and url.database:
        return where
    raise DatabaseError(f"database: {kind}: give a file for SQLite, or postgresql://USER@HOST/NAME")


class Database:
    """One engine. ``write`` and ``read`` are transactions; threads may share it, forks may not."""

    def __init__(self, where: str, pool: int = 8):
        self.url = url_of(where)
        self.sqlite = self.url.startswith("sqlite")
        self._turn = threading.Lock() if self.sqlite else contextlib.nullcontext()
        if self.sqlite:
            path = Path(make_url(self.url).database or "")
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.touch(mode=0o600)       # sources and secrets of the contest
            self.engine: Engine = create_engine(
                self.url, pool_size=pool, max_overflow=32, connect_args={"timeout": WAIT_SECONDS})
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            self.engine = create_engine(self.url, pool_size=pool, max_overflow=32, pool_pre_ping=True)
        self._writing = self.engine.execution_options(writes=True)

    def migrate(self) -> None:
        """Bring the schema to the newest version. Safe if several processes do it. Raises ``DatabaseError``."""
        config = AlembicConfig()
        config.set_main_option("script_location", str(MIGRATIONS))
        try:
            with self._writing.connect() as connection, connection.begin():
                if not self.sqlite:
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7824752)")
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except OperationalError as error:
            raise DatabaseError(
                f"{make_url(self.url).render_as_string(hide_password=True)}: {error.orig}\n"
                "  check that the server runs, that the database exists, and its user and password") from None

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that may write; what it wrote is on disk when it ends without an exception."""
        with self._turn, Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        self.engine.dispose()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None        # the driver begins no transaction: _begin_sqlite does
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Any) -> None:
    """A writer takes the lock at once; a reader does not."""
    driver = connection.connection.driver_connection
    if not connection.get_execution_options().get("writes"):
        driver.execute("BEGIN")
        return
    driver.execute("PRAGMA busy_timeout = 0")
    until = time.monotonic() + WAIT_SECONDS
    try:
        while True:
            try:
                driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    break
            time.sleep(RETRY_SECONDS)
        connection.exec_driver_sql("BEGIN IMMEDIATE")      # once more, so that SQLAlchemy raises its own error
    finally:
        driver.execute(f"PRAGMA busy_timeout = {WAIT_SECONDS * 1000:.0f}")
