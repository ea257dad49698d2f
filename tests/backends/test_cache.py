# SPDX-License-Identifier: MIT
"""The compile cache: whole entries or none, whatever is killed, damaged or raced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import backends
from backends import _cache, _emulated, _process
from backends._cache import Cache, default_folder, user_folder, write_json
from backends.errors import BackendError
from scoring.sandbox.compiler import Compilers
from scoring.sandbox.policy import Policy
from tests import choices

KEY = "ab" * 32


def fill(cache: Cache, content: str = "code", key: str = KEY) -> None:
    with cache.building() as build:
        (build.folder / "kernel.so").write_text(content)
        cache.put(key, build.folder, {"content": content})


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def leftovers(cache: Cache) -> list[str]:
    return sorted(path.name for path in (cache.folder / "building").iterdir())


def test_what_is_put_is_what_is_got(cache: Cache) -> None:
    assert cache.get(KEY) is None
    fill(cache)
    assert cache.get(KEY) == {"content": "code"}
    assert (cache.place(KEY) / "kernel.so").read_text() == "code"
    assert leftovers(cache) == []


def test_a_build_that_fails_leaves_nothing(cache: Cache) -> None:
    def fail() -> None:
        with cache.building() as build:
            (build.folder / "kernel.so").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert leftovers(cache) == []
    assert cache.get(KEY) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "kernel.so").write_text("cod"),              # truncated
        lambda place: (place / "kernel.so").write_text("edoc"),             # same size, other bytes
        lambda place: (place / "kernel.so").unlink(),
        lambda place: (place / "entry.json").unlink(),
        lambda place: (place / "entry.json").write_text("{"),
        lambda place: (place / "entry.json").write_text("[]"),
        lambda place: (place / "entry.json").write_text('{"schema": 1, "key": "other", "files": {}, "facts": {}}'),
        lambda place: (place / "entry.json").write_text('{"schema": 0}'),
    ],
)
def test_a_damaged_entry_is_a_miss_and_gets_replaced(cache: Cache, damage: object) -> None:
    fill(cache)
    assert callable(damage)
    damage(cache.place(KEY))
    assert cache.get(KEY) is None
    fill(cache, "new code")
    assert cache.get(KEY) == {"content": "new code"}
    fill(cache, "other", "cd" * 32)       # the next build sweeps what was moved aside
    assert leftovers(cache) == []


def test_the_first_of_two_twins_wins_and_the_second_does_not_mind(cache: Cache) -> None:
    with cache.building() as mine, cache.building() as other:
        assert mine.folder != other.folder
        (mine.folder / "kernel.so").write_text("mine")
        (other.folder / "kernel.so").write_text("other")
        cache.put(KEY, other.folder, {"content": "other"})
        cache.put(KEY, mine.folder, {"content": "mine"})
    assert cache.get(KEY) == {"content": "other"}
    assert (cache.place(KEY) / "kernel.so").read_text() == "other"
    assert leftovers(cache) == []


VICTIM = """
import sys, time
from pathlib import Path
from backends._cache import Cache
with Cache(Path(sys.argv[1])).building() as build:
    (build.folder / "kernel.so").write_text("half")
    print(build.folder, flush=True)
    time.sleep(60)
"""


def test_kill_minus_nine_leaves_no_entry_and_its_folder_is_swept(cache: Cache) -> None:
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(cache.folder)], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    with victim:
        folder = Path(victim.stdout.readline().strip())
        fill(cache, "mine", "cd" * 32)
        assert (folder / "kernel.so").exists()       # somebody works there: not to be swept
        victim.send_signal(signal.SIGKILL)
    assert folder.exists()
    fill(cache)
    assert not folder.exists()
    assert leftovers(cache) == []
    assert cache.get(KEY) == {"content": "code"}


RACER = """
import contextlib, sys
from pathlib import Path
from backends._cache import Cache
cache = Cache(Path(sys.argv[1]))
for turn in range(20):
    key = f"{turn:064x}"
    facts = cache.get(key)
    if facts is None:
        with cache.building() as build:
            (build.folder / "kernel.so").write_text(str(turn) * 1000)
            cache.put(key, build.folder, {"turn": turn})
        facts = cache.get(key)
    if turn % 5:
        assert facts == {"turn": turn}, facts
        assert (cache.place(key) / "kernel.so").read_text() == str(turn) * 1000
    else:   # these ones everybody damages again and again
        assert facts in (None, {"turn": turn}), facts
        with contextlib.suppress(FileNotFoundError):
            (cache.place(key) / "entry.json").write_text("{}")
"""


def test_many_processes_at_once_see_whole_entries_only(cache: Cache) -> None:
    racers = [subprocess.Popen([sys.executable, "-c", RACER, str(cache.folder)]) for _ in range(6)]
    assert [racer.wait(60) for racer in racers] == [0] * 6
    for turn in range(20):
        if turn % 5:
            assert cache.get(f"{turn:064x}") == {"turn": turn}
    fill(cache)
    assert leftovers(cache) == []


def test_the_folder_follows_the_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path / "own"))
    assert default_folder() == tmp_path / "own"
    monkeypatch.delenv("WARPWAVE_CACHE_DIR")
    monkeypatch.setattr(_cache, "_chosen", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "warpwave"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "warpwave"
    monkeypatch.setenv("WARPWAVE_CACHE_DIR", str(tmp_path / "own"))
    _cache.use(tmp_path / "set")
    assert default_folder() == tmp_path / "own"
    monkeypatch.delenv("WARPWAVE_CACHE_DIR")
    assert default_folder() == Cache().folder == tmp_path / "set"


def test_a_test_that_chooses_another_cache_leaves_the_next_one_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else it would build the emulators there, for minutes."""
    monkeypatch.delenv("WARPWAVE_CACHE_DIR")
    before = default_folder(), _emulated.wanted(), list(_process._confined)
    with choices.as_before():
        backends.use_cache(tmp_path)
        backends.use_emulator(not before[1])
        backends.confine(Compilers(Policy()))
        assert (default_folder(), _emulated.wanted()) != before[:2]
    assert (default_folder(), _emulated.wanted(), _process._confined) == before


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without a home; returns the temporary folder."""
    for variable in ("WARPWAVE_CACHE_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(_cache, "_told", set())
    return tmp_path


@pytest.mark.parametrize(("kind", "variable"), [("cache", "WARPWAVE_CACHE_DIR"), ("state", "WARPWAVE_DB")])
def test_without_a_home_it_is_a_temporary_folder_of_ones_own_and_said_once(
    homeless: Path, capsys: pytest.CaptureFixture[str], kind: str, variable: str
) -> None:
    folder = homeless / f"warpwave-{os.getuid()}" / kind
    assert user_folder(kind) == user_folder(kind) == folder
    assert (folder.parent.stat().st_mode & 0o777) == 0o700
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "this user has no home folder" in said
    assert str(folder) in said
    assert variable in said


def test_a_home_that_cannot_be_written_is_as_none(
    homeless: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for base, why in ((tmp_path / "file", "Not a directory"), (Path("/proc"), "/proc")):   # not even for root
        _cache._told.clear()
        monkeypatch.setattr(Path, "home", lambda base=base: base)
        assert default_folder() == homeless / f"warpwave-{os.getuid()}" / "cache"
        assert why in capsys.readouterr().err
    fill(Cache())
    assert Cache().get(KEY) == {"content": "code"}


def test_a_temporary_folder_that_others_may_write_to_is_not_used(homeless: Path) -> None:
    mine = homeless / f"warpwave-{os.getuid()}"
    mine.mkdir()
    mine.chmod(0o777)
    with pytest.raises(BackendError, match="set WARPWAVE_CACHE_DIR"):
        default_folder()
    mine.rmdir()
    mine.symlink_to(homeless)
    with pytest.raises(BackendError, match="that you alone may write to"):
        default_folder()
    mine.unlink()
    mine.write_text("")
    with pytest.raises(BackendError, match="neither can a temporary folder"):
        default_folder()


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_json(path, {"x": 1})
    write_json(path, {"x": 2})
    assert json.loads(path.read_text()) == {"x": 2}
    assert [entry.name for entry in path.parent.iterdir()] == ["b.json"]


def test_an_old_folder_without_an_owner_goes(cache: Cache) -> None:
    stray = cache.folder / "building" / "stray"
    stray.mkdir(parents=True)
    (stray / "x").write_text("")
    old = time.time() - 10 * 24 * 3600
    os.utime(stray, (old, old))
    fill(cache)
    assert leftovers(cache) == []
