# SPDX-License-Identifier: MIT
"""The database keeps what it accepted: round trips, rank order, concurrent writers, kill -9, and damaged files."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from scoring.record import Evidence, Mode, Status
from scoring.store.store import MIGRATIONS, Store, StoreError, migrate
from tests.scoring.records import compile_error, record, sample, unavailable

ROOT = Path(__file__).parents[3]

# A run of its own process: adds records for ever (or `count` of them) and says each id once add() has returned.
WRITER = """
import sys
from dataclasses import replace
from scoring.store.store import Store
from tests.scoring.records import record
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store, made = Store(path), record(cases=1)
for number in range(count):
    store.add(replace(made, id=f"{name}{number:06d}"))
    print(f"{name}{number:06d}", flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state" / "leaderboard.db")


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(count)], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def test_every_kind_of_record_comes_back_equal(store: Store) -> None:
    for kept in sample():
        store.add(kept)
        assert store.get(kept.id) == kept
    assert {r.id for r in store.records()} == {r.id for r in sample()}


def test_a_store_that_does_not_exist_reads_as_empty_and_is_not_created(store: Store) -> None:
    assert store.records() == []
    assert store.leaderboard() == []
    assert store.history("fp8_gemm", "H200", "cuda/wgmma") == []
    assert store.get("0" * 32) is None
    assert not store.path.parent.exists()


def test_an_empty_file_is_a_new_store(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.touch()
    assert store.records() == []
    store.add(record())
    assert len(store.records()) == 1


def test_adding_twice_keeps_one_and_an_id_cannot_change_its_record(store: Store) -> None:
    kept = record()
    store.add(kept)
    store.add(kept)
    assert store.records() == [kept]
    with pytest.raises(StoreError, match="another record"):
        store.add(replace(kept, seed=kept.seed + 1))
    assert store.records() == [kept]


def test_records_are_newest_first_and_limited(store: Store) -> None:
    days = ["2026-11-03", "2026-11-01", "2026-11-02"]
    for day in days:
        store.add(record(created=f"{day}T00:00:00Z"))
    assert [r.created[:10] for r in store.records()] == sorted(days, reverse=True)
    assert [r.created[:10] for r in store.records(limit=2)] == ["2026-11-03", "2026-11-02"]
    assert store.records(limit=0) == []


def test_of_records_of_one_instant_the_later_arrival_comes_first(store: Store) -> None:
    for identity in ("a", "b", "c"):
        store.add(replace(record(), id=identity))
    assert [r.id for r in store.records()] == ["c", "b", "a"]


@pytest.mark.parametrize(("filters", "expected"), [
    ({"problem": "mla_decode"}, {"cuda/split", "cuda/cluster"}),
    ({"backend": "cpu"}, {"cpu/naive"}),
    ({"gpu": "mi300"}, {"hip/mfma"}),
    ({"kernel": "*/naive"}, {"cuda/naive", "cpu/naive"}),
    ({"kernel": ["cuda/split", "hip/*"]}, {"cuda/split", "hip/mfma"}),
    ({"kernel": []}, set()),
    ({"mode": Mode.TEST, "gpu": "H200"}, {"cuda/twopass"}),
    ({"kernel": "cuda/wgm'ma"}, set()),
])
def test_filters(store: Store, filters: dict[str, str], expected: set[str]) -> None:
    for kept in sample():
        store.add(kept)
    assert {r.kernel for r in store.records(**filters)} == expected


def test_get_takes_the_beginning_of_an_id_if_it_is_unambiguous(store: Store) -> None:
    first, second = replace(record(), id="abc1"), replace(record(), id="abd2")
    store.add(first)
    store.add(second)
    assert store.get("abc") == first
    assert store.get("") is None
    assert store.get("%") is None
    with pytest.raises(StoreError, match="more digits"):
        store.get("ab")


def test_leaderboard_takes_the_best_passing_score_of_each_kernel(store: Store) -> None:
    slow, fast = record(efficiency=0.3, created="2026-11-01T00:00:00Z"), record(efficiency=0.6)
    other = record(kernel="cuda/naive", efficiency=0.1, mode=Mode.LEADERBOARD)
    later = record(efficiency=0.4, created="2026-11-20T00:00:00Z")
    for kept in (slow, other, fast, later):
        store.add(kept)
    rows = store.leaderboard()
    assert [(row.rank, row.kernel, row.id) for row in rows] == [(1, "cuda/wgmma", fast.id), (2, "cuda/naive", other.id)]
    assert rows[0].score == fast.score


def test_leaderboard_leaves_out_what_did_not_pass_or_was_not_ranked(store: Store) -> None:
    passed = record()
    for kept in (
        compile_error(), unavailable(), record(mode=Mode.TEST), replace(record(), id="t", mode=Mode.TEST),
        record(status=Status.INCORRECT_NUMERICAL, failing=1),
    ):
        store.add(kept)
    assert store.leaderboard() == []
    store.add(passed)
    assert [row.id for row in store.leaderboard()] == [passed.id]


def test_modelled_never_ranks_with_measured(store: Store) -> None:
    store.add(record(kernel="hip/a", gpu="MI300", efficiency=0.3))
    store.add(record(kernel="hip/b", gpu="MI300", efficiency=0.9, evidence=Evidence.MODELLED))
    assert [(row.evidence, row.rank, row.kernel) for row in store.leaderboard()] == [
        (Evidence.MEASURED, 1, "hip/a"), (Evidence.MODELLED, 1, "hip/b")]


@pytest.mark.parametrize("changes", [{"protocol": "warm-events/1"}, {"ranking_by": "mean"}, {"cases": 2}])
def test_scores_timed_otherwise_stand_on_a_board_of_their_own(store: Store, changes: dict[str, object]) -> None:
    store.add(record())
    store.add(replace(record(kernel="cuda/other", **changes)))
    rows = store.leaderboard()
    assert [row.rank for row in rows] == [1, 1]
    assert rows[0].board != rows[1].board


def test_of_equal_scores_the_older_leads(store: Store) -> None:
    for kernel, day in (("cuda/new", 9), ("cuda/old", 2)):
        store.add(replace(record(), id=kernel, kernel=kernel, created=f"2026-11-0{day}T00:00:00Z"))
    assert [row.kernel for row in store.leaderboard()] == ["cuda/old", "cuda/new"]


def test_leaderboard_filters(store: Store) -> None:
    for kept in sample():
        store.add(kept)
    assert {row.gpu for row in store.leaderboard(problem="fp8_gemm", gpu="l4")} == {"L4"}
    assert {row.problem for row in store.leaderboard(problem="*gemm")} == {"fp8_gemm"}


def test_history_is_oldest_first_and_of_one_kernel(store: Store) -> None:
    for day in (3, 1, 2):
        store.add(record(created=f"2026-11-0{day}T00:00:00Z"))
    store.add(record(kernel="cuda/wgmma2"))
    store.add(record(mode=Mode.TEST, created="2026-11-04T00:00:00Z"))
    found = store.history("fp8_gemm", "H200", "cuda/wgmma")
    assert [r.created[9] for r in found] == ["1", "2", "3"]


def test_names_that_are_not_utf8_are_kept(store: Store) -> None:
    kept = record(kernel="cuda/\udcff", message="nul \x00 and \udc80")
    store.add(kept)
    assert store.records() == [kept]
    assert store.history(kept.problem, kept.gpu, kept.kernel) == [kept]


def test_a_record_json_cannot_hold_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="JSON"):
        store.add(record(system={"power_w": float("nan")}))
    assert store.records() == []


def test_concurrent_runs_lose_nothing(store: Store) -> None:
    """Four processes race to create the file and then to write, while this one reads."""
    count, names = 100, "wxyz"
    writers = [writer(store.path, name, count) for name in names]
    while any(process.poll() is None for process in writers):
        seen = store.records(limit=5)
        assert len(seen) <= 5
    for process in writers:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    assert {r.id for r in store.records()} == {f"{name}{n:06d}" for name in names for n in range(count)}
    assert integrity(store.path) == "ok"


def test_one_store_serves_many_threads(store: Store) -> None:
    made = record(cases=1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.add(replace(made, id=f"t{n}")), range(64)))
    assert len(store.records()) == 64


@pytest.mark.parametrize("after", [1, 17, 40])
def test_kill_9_loses_nothing_that_was_acknowledged(store: Store, after: int) -> None:
    process = writer(store.path, "k", 1_000_000)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip() for _ in range(after)]
    process.send_signal(signal.SIGKILL)
    rest, errors = process.communicate()
    acknowledged += rest.split("\n")[:-1]              # an unfinished last line was not acknowledged
    assert errors == ""
    found = {r.id for r in store.records()}
    assert set(acknowledged) <= found
    assert len(found - set(acknowledged)) <= 1         # at most the one killed between commit and print
    assert integrity(store.path) == "ok"
    store.add(record())
    assert len(store.records()) == len(found) + 1


def test_a_newer_schema_is_refused_by_name(store: Store) -> None:
    store.add(record())
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for attempt in (store.records, store.leaderboard, lambda: store.add(record(kernel="cuda/x"))):
        with pytest.raises(StoreError, match=r"schema 99.*update the program"):
            attempt()


def test_another_programs_database_is_refused_and_left_alone(store: Store) -> None:
    store.path.parent.mkdir()
    connection = sqlite3.connect(store.path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match="not of this program"):
        store.add(record())
    assert store.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database, but long enough to look at" * 100, b"SQLite format 3\0" * 99])
def test_a_damaged_file_says_what_to_do(store: Store, content: bytes) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    for attempt in (store.records, lambda: store.add(record())):
        with pytest.raises(StoreError, match="move it away"):
            attempt()
    assert store.path.read_bytes() == content


def test_a_torn_page_is_reported(store: Store) -> None:
    for number in range(40):
        store.add(record(kernel=f"cuda/k{number}"))
    content = bytearray(store.path.read_bytes())
    content[4096:-4096] = b"\xa5" * (len(content) - 8192)
    store.path.write_bytes(content)
    with pytest.raises(StoreError, match=r"leaderboard\.db.*damaged"):
        store.records()


def test_a_record_changed_by_hand_is_named(store: Store) -> None:
    store.add(record())
    connection = sqlite3.connect(store.path)
    connection.execute("UPDATE records SET json = replace(json, '\"schema\": 3', '\"schema\": 7')")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=f"{record().id}.*schema 7"):
        store.records()


def test_a_folder_or_a_file_in_the_way_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="WARPWAVE_DB"):
        Store(tmp_path / "folder").add(record())
    with pytest.raises(StoreError, match="WARPWAVE_DB"):
        Store(tmp_path / "file" / "leaderboard.db").add(record())


def test_a_busy_database_is_waited_for_and_then_reported(store: Store) -> None:
    store.add(record())
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match="another process"):
            Store(store.path, timeout=0.05).add(record(kernel="cuda/x"))
        assert len(store.records()) == 1               # readers do not wait for writers
    finally:
        holder.close()


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A folder that another user can reach, and that is writable again when it goes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def as_another_user(path: Path, code: str) -> list[str]:
    """The lines ``code`` prints about the ``store`` at ``path`` where root, who may do anything, has become nobody."""
    program = ("import os, sys\n"
               "from scoring.store.store import Store, StoreError\n"
               "from tests.scoring.records import record\n"
               "made, store = record(), Store(sys.argv[1])\n"
               "try: store.records()\n"                 # imports what a connection needs while it can be read
               "except StoreError: pass\n"
               "if os.getuid() == 0: os.setgroups([]), os.setgid(65534), os.setuid(65534)\n")
    done = subprocess.run([sys.executable, "-c", program + code, str(path)], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_read_only_folder_can_be_listed_but_not_written(foreign_folder: Path) -> None:
    store = Store(foreign_folder / "leaderboard.db")
    store.add(record(kernel="cuda/other"))
    store.path.chmod(0o444)
    foreign_folder.chmod(0o555)
    listed, refused = as_another_user(
        store.path,
        "print(len(store.records()))\n"
        "try: store.add(made)\n"
        "except StoreError as error: print(error)\n")
    assert listed == "1"
    assert "readonly" in refused
    assert "WARPWAVE_DB" in refused


def test_a_folder_that_may_not_be_entered_is_an_error_not_an_empty_board(foreign_folder: Path) -> None:
    store = Store(foreign_folder / "leaderboard.db")
    store.add(record())
    foreign_folder.chmod(0o000)
    (said,) = as_another_user(
        store.path,
        "try: print(store.records())\n"
        "except StoreError as error: print(error)\n")
    assert "Permission denied" in said


def test_migrations_run_once_in_order_and_all_or_nothing(tmp_path: Path) -> None:
    first = tmp_path / "0001.sql"
    first.write_text("CREATE TABLE a (x INTEGER) STRICT;\nINSERT INTO a VALUES (1);  -- with; semicolons\n")
    broken = tmp_path / "0002.sql"
    broken.write_text("CREATE TABLE b (x INTEGER) STRICT;\nINSERT INTO nowhere VALUES (1);\n")
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    try:
        migrate(connection, [first])
        migrate(connection, [first])
        assert connection.execute("SELECT count(*) FROM a").fetchone() == (1,)
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            migrate(connection, [first, broken])
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("a",)]
        broken.write_text("CREATE TABLE b (x INTEGER) STRICT;\n")
        migrate(connection, [first, broken])
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    finally:
        connection.close()


def test_migration_numbers_have_no_gap() -> None:
    numbers = [int(path.name[:4]) for path in sorted(MIGRATIONS.glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_database_uses_a_write_ahead_log_and_strict_tables(store: Store) -> None:
    store.add(record())
    connection = sqlite3.connect(store.path)
    try:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value in REAL"):
            connection.execute("UPDATE records SET score = 'fast'")
    finally:
        connection.close()
