# SPDX-License-Identifier: MIT
"""What a signal leaves behind: nothing. And where the cache is, which outlives every process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scoring.cli import Terminated, ending
from tests.scoring.harness import DATA, SETTINGS, scoring, start, touched, wait_until, workers


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"WARPWAVE_DB": str(tmp_path / "records.db"), "WARPWAVE_CACHE_DIR": str(tmp_path / "cache"),
            "TMPDIR": str(tmp_path)}


@pytest.fixture(autouse=True)
def nothing_handled() -> Iterator[None]:
    """As in a new process: a library that an earlier test used here may handle signals (Ray does, and leaves it so)."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_that_is_told_to_end_cleans_up(environment: dict[str, str], tmp_path: Path, number: int, code: int):
    process = start(["--config", str(SETTINGS), "run", "--case", "n=64", "--problem", "toy", "--submission",
                     str(DATA / "submissions" / "hangs.py")], environment)
    try:
        assert wait_until(lambda: touched(process.pid, "called"), 60)
        assert list(tmp_path.glob("warpwave-*")), "it stages files meanwhile"
        process.send_signal(number)
        _, err = process.communicate(timeout=15)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code
    assert err.rstrip().endswith(f"ended by {signal.Signals(number).name}")
    assert "Traceback" not in err
    assert workers(process.pid) == []
    assert not list(tmp_path.glob("warpwave-*"))


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with ending():
        assert signal.getsignal(signal.SIGTERM) is not before
        with pytest.raises(Terminated) as caught:
            signal.raise_signal(signal.SIGTERM)
        assert caught.value.code == 143
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "whoever asks twice does not wait"
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_ignored_stays_so():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_in_another_thread_it_does_nothing():
    seen = []

    def body() -> None:
        with ending():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(10)
    assert seen == [signal.SIG_DFL]


# Where the cache is --------------------------------------------------------------------------------------------------

def doctor(folder: Path, settings: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "config.yaml").write_text(settings)
    for name in ("WARPWAVE_CACHE_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        environment.setdefault(name, "")
    return scoring(["--config", str(folder / "config.yaml"), "doctor"], environment)


def test_a_cache_of_the_settings_holds_all_there_is_to_keep(tmp_path: Path):
    (tmp_path / "home").mkdir()
    done = doctor(tmp_path, "paths: {cache: kept}\n", HOME=str(tmp_path / "home"))
    assert done.returncode == 0
    assert list((tmp_path / "kept" / "tools").glob("*.json"))
    assert not (tmp_path / "home" / ".cache").exists()


def test_a_home_that_cannot_be_written_is_said_and_no_obstacle(tmp_path: Path):
    database = str(tmp_path / "records.db")
    done = doctor(tmp_path, "{}\n", HOME="/proc", TMPDIR=str(tmp_path), WARPWAVE_DB=database)
    assert done.returncode == 0
    folder = tmp_path / f"warpwave-{os.getuid()}" / "cache"
    assert done.stderr.count(f"its cache is in {folder}") == 1
    assert str(folder) in done.stdout
    assert list((folder / "tools").glob("*.json"))
