# SPDX-License-Identifier: MIT
"""The leaderboard database: records in one SQLite file, safe under concurrent runs and a kill at any moment.

Each record is stored whole as JSON, beside the columns that select and order. Every operation opens its own
connection, so a ``Store`` may be shared by threads and survives a fork. Writers take the lock at the start of their
transaction and wait for one another; a write that returned is on disk. The schema's version is ``PRAGMA
user_version``, moved forward by the numbered scripts of ``scoring/store/migrations``.

Raises only ``StoreError`` (and what a broken invariant of ``Record`` raises): its message says what to do next.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scoring.record import Evidence, Record, dumps

MIGRATIONS = Path(__file__).with_name("migrations")
APPLICATION_ID = 0x77617270            # "warp": tells our file from any other SQLite file
_SQLITE_WITH_STRICT = (3, 37)

Filter = str | Sequence[str] | None    # a glob, several globs (any may match), or no restriction

# The one statement of rank order. A kernel stands with its best passing score; only what was timed the same way, over
# the same cases and with the same kind of evidence is compared; of equal scores the older one leads.
_LEADERBOARD = """
WITH standing AS (
    SELECT *, row_number() OVER (
        PARTITION BY problem, gpu, evidence, protocol, workload, kernel ORDER BY score, created, seq) AS place
    FROM records
    WHERE status = 'PASSED' AND score IS NOT NULL AND mode IN ('benchmark', 'leaderboard') AND {where}
)
SELECT row_number() OVER (
           PARTITION BY problem, gpu, evidence, protocol, workload ORDER BY score, created, seq) AS rank,
       problem, gpu, evidence, protocol, workload, kernel, score, backend, target, created, id,
       coalesce(json_extract(json, '$.facts.host'), '') AS host
FROM standing WHERE place = 1
ORDER BY problem, gpu, evidence, protocol, workload, rank
"""


class StoreError(Exception):
    """The database cannot be used; the message names the file, the cause and the next step."""


@dataclass(frozen=True)
class LeaderboardRow:
    """One line of a board. Boards are told apart by ``board``; ``score`` is in seconds."""

    rank: int
    problem: str
    gpu: str
    evidence: Evidence
    protocol: str
    workload: str
    kernel: str
    score: float
    backend: str
    target: str
    created: str
    id: str
    host: str = ""             # the machine that it was brought from; "": judged here

    @property
    def board(self) -> tuple[str, str, str, str, str]:
        """What must be equal for two rows to compare."""
        return self.problem, self.gpu, self.evidence, self.protocol, self.workload


def workload(record: Record) -> str:
    """Eight hex digits over the ranking rule and the timed cases: equal exactly where two scores are comparable.

    After ``small-`` where the score is over the small cases of a slow device.
    """
    timed = [result.case for result in record.ranked]
    text = json.dumps([record.ranking_by, [[case.group, dict(case.params)] for case in timed]], sort_keys=True)
    kind = "small-" if any(case.group == "small" for case in timed) else ""
    return kind + hashlib.sha256(text.encode()).hexdigest()[:8]


class Store:
    """The records kept in one file. The file, and folders above it, appear with the first
    ``prepare`` or ``add``.

    ``timeout``: seconds to wait for other writers.
    """

    def __init__(self, path: Path | str, timeout: float = 60.0):
        self.path = Path(path)
        self.timeout = timeout

    def prepare(self) -> None:
        """Make sure that records can be kept, before anything is spent on making them.

        Raises ``StoreError``.
        """
        with self._connect(write=True) as connection, _transaction(connection):
            pass                     # the write lock is more than a file that cannot be written gives

    def add(self, record: Record) -> None:
        """Keep ``record``; when this returns it survives a crash. Adding the same record again changes nothing.

        One that says which cases were still to be judged gives way to what became of it: a record of the same id.
        Raises ``StoreError``, too, for an id that already belongs to another record.
        """
        try:
            text = dumps(record)
        except (ValueError, TypeError) as error:
            raise StoreError(f"record {record.id} cannot be kept as JSON: {error}") from error
        row = [_sql_text(value) for value in (
            record.id, record.created, record.problem, record.kernel, record.backend, record.target, record.gpu,
            record.mode, record.status, record.evidence, record.protocol, workload(record))]
        with self._connect(write=True) as connection, _transaction(connection):
            kept = connection.execute("SELECT id, json FROM records WHERE id = ?", row[:1]).fetchone()
            if kept is not None:
                if kept["json"] == text:
                    return
                if not self._record(kept).unjudged:
                    raise StoreError(f"{self.path}: id {record.id} already belongs to another record")
                connection.execute("DELETE FROM records WHERE id = ?", row[:1])
            connection.execute(
                "INSERT INTO records (id, created, problem, kernel, backend, target, gpu, mode, status, evidence,"
                " protocol, workload, score, json) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", [*row, record.score, text])

    def get(self, record_id: str) -> Record | None:
        """The record with this id, or whose id alone begins so; None if there is none.

        Raises ``StoreError`` if several ids begin so.
        """
        if not record_id:
            return None
        found = self._rows("SELECT id, json FROM records WHERE substr(id, 1, length(?1)) = ?1 LIMIT 3", [record_id])
        exact = [row for row in found if row["id"] == record_id] or found
        if len(exact) > 1:
            raise StoreError(f"several records begin with {record_id!r}: give more digits of the id")
        return self._record(exact[0]) if exact else None

    def records(
        self, problem: Filter = None, backend: Filter = None, gpu: Filter = None, kernel: Filter = None,
        mode: Filter = None, limit: int | None = None,
    ) -> list[Record]:
        """Records that match every filter, newest first. Filters are globs; ``gpu`` ignores case."""
        where, values = _where(problem=problem, backend=backend, gpu=gpu, kernel=kernel, mode=mode)
        rows = self._rows(
            f"SELECT id, json FROM records WHERE {where} ORDER BY created DESC, seq DESC LIMIT ?",
            [*values, -1 if limit is None else limit])
        return [self._record(row) for row in rows]

    def leaderboard(self, problem: Filter = None, gpu: Filter = None) -> list[LeaderboardRow]:
        """Every board, best kernel first: one row per kernel, from modes benchmark and leaderboard."""
        where, values = _where(problem=problem, gpu=gpu)
        rows = self._rows(_LEADERBOARD.format(where=where), values)
        return [LeaderboardRow(**{**row, "evidence": Evidence(row["evidence"])}) for row in map(dict, rows)]

    def history(self, problem: str, gpu: str, kernel: str) -> list[Record]:
        """The scored records of one kernel on one GPU, oldest first. The names are exact."""
        rows = self._rows(
            "SELECT id, json FROM records WHERE problem = ? AND gpu = ? AND kernel = ? AND score IS NOT NULL"
            " ORDER BY created, seq", [_sql_text(name) for name in (problem, gpu, kernel)])
        return [self._record(row) for row in rows]

    def _record(self, row: sqlite3.Row) -> Record:
        try:
            return Record.from_json(json.loads(row["json"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.path}: record {row['id']} cannot be read ({error!r}); it was written by another version of "
                "this program, or changed by hand") from error

    def _rows(self, query: str, values: Sequence[object]) -> list[sqlite3.Row]:
        if not self._exists():
            return []
        with self._connect(write=False) as connection:
            return connection.execute(query, values).fetchall()

    def _exists(self) -> bool:
        """False only where nothing is there: a file that may not be looked at is an error, not an empty board."""
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def _unusable(self, error: OSError) -> StoreError:
        return StoreError(f"{self.path}: {error.strerror or error}; choose another file with WARPWAVE_DB")

    @contextlib.contextmanager
    def _connect(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """A connection to a database at the current schema. Turns what SQLite and the file system raise into advice."""
        if sqlite3.sqlite_version_info < _SQLITE_WITH_STRICT:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed; use a newer Python")
        try:
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._uri(create=write), uri=True, timeout=self.timeout, isolation_level=None)
            with contextlib.closing(connection):
                connection.row_factory = sqlite3.Row
                _prepare(connection, self.path, self.timeout)
                yield connection
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}; {_advice(error)}") from error
        except OSError as error:
            raise self._unusable(error) from error

    def _uri(self, *, create: bool) -> str:
        """Where nothing may be written and nothing is left to recover, SQLite must be told not to try."""
        uri = self.path.absolute().as_uri()
        if create:
            return f"{uri}?mode=rwc"
        untouched = not self.path.with_name(f"{self.path.name}-wal").exists()
        return f"{uri}?immutable=1" if untouched and not os.access(self.path.parent, os.W_OK) else f"{uri}?mode=rw"


def migrate(connection: sqlite3.Connection, scripts: Sequence[Path]) -> None:
    """Bring the database to version ``len(scripts)``: script *n* leads to version *n*, each in one transaction."""
    for number, script in enumerate(scripts, start=1):
        with _transaction(connection):
            if _pragma(connection, "user_version") >= number:     # here already, or another process came first
                continue
            for statement in _statements(script.read_text(encoding="utf-8")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")


def _prepare(connection: sqlite3.Connection, path: Path, timeout: float) -> None:
    scripts = sorted(MIGRATIONS.glob("[0-9]*.sql"))
    version = _pragma(connection, "user_version")
    # In this order: another process may be creating the file between the two reads.
    if _pragma(connection, "schema_version") and _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite database, but not of this program; choose another file with WARPWAVE_DB")
    if version > len(scripts):
        raise StoreError(
            f"{path} has schema {version}, this program knows up to {len(scripts)}; update the program, or choose "
            "another file with WARPWAVE_DB")
    if version < len(scripts):
        _write_ahead(connection, timeout)
        migrate(connection, scripts)
    connection.execute("PRAGMA synchronous = FULL")       # an add that returned survives a power cut, too


def _write_ahead(connection: sqlite3.Connection, timeout: float) -> None:
    """Turn on the write-ahead log, which stays on. SQLite does not wait for this lock by itself.

    A file system without shared memory keeps the rollback journal: slower under concurrency, as safe.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, holding the write lock from the start: two writers never deadlock on an upgrade."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: ``executescript`` would commit our transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError(f"unfinished SQL statement: {statement.strip()[:60]}")


def _where(**filters: Filter) -> tuple[str, list[str]]:
    clauses, values = ["1"], []
    for column, wanted in filters.items():
        if wanted is None:
            continue
        globs = [wanted] if isinstance(wanted, str) else list(wanted)
        match = "lower(gpu) GLOB lower(?)" if column == "gpu" else f"{column} GLOB ?"
        clauses.append(f"({' OR '.join([match] * len(globs)) or '0'})")
        values += [_sql_text(glob) for glob in globs]
    return " AND ".join(clauses), values


def _sql_text(value: str) -> str:
    """SQLite wants valid UTF-8; a file name need not be. The JSON keeps the original."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _advice(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return "the file is damaged: move it away, and the next run starts a new one"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process holds the database: try again when it has ended"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full"
    return "check that the file and its folder can be written, or choose another file with WARPWAVE_DB"
