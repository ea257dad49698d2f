# SPDX-License-Identifier: MIT
"""The content-addressed cache of compiled kernels: complete entries or none, under any number of processes.

Layout of a cache folder::

    binaries/<key[:2]>/<key>/   entry.json and the files it lists with size and SHA-256; never changed once it is there
    building/<random>/          private to one build, with <random>.lock held by everyone who works in it
    tools/<hash>.json           what a compiler said about itself (see toolchain)
    wanted/<key>                headers that were wanted once (see _precompiled)
    publish.lock                held while an entry appears or a broken one goes

A build happens in ``building/``, is written through to disk and appears by one rename of the folder. An entry whose
files do not match its ``entry.json`` is a miss and gets replaced. A process that is killed leaves a folder in
``building/`` whose lock nobody holds; the next build removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backends.errors import BackendError

SCHEMA = 1
_ENTRY = "entry.json"
_USER = {"cache": ("XDG_CACHE_HOME", ".cache"), "state": ("XDG_STATE_HOME", ".local/state")}
HINTS = {"cache": "set WARPWAVE_CACHE_DIR to a folder with space that you may write to",
          "state": "set WARPWAVE_DB to a file in a folder that you may write to"}
_chosen: list[Path] = []       # by ``use``
_told: set[Path] = set()       # substitutes that stderr has heard of
_STALE_SECONDS = 24 * 3600.0   # where the file system has no locks, age alone tells


class Build(NamedTuple):
    """A private folder to compile in, and the descriptor of its lock for the compiler to inherit."""

    folder: Path
    lock: int


def default_folder() -> Path:
    """``$WARPWAVE_CACHE_DIR``, else the folder of ``use``, else the user's (``user_folder("cache")``).

    Raises ``BackendError`` where even a temporary folder cannot be used.
    """
    if folder := os.environ.get("WARPWAVE_CACHE_DIR"):
        with contextlib.suppress(RuntimeError):      # ~ without a home is a folder of that name
            return Path(folder).expanduser().absolute()
        return Path(folder).absolute()
    return _chosen[0] if _chosen else user_folder("cache")


def use(folder: Path) -> None:
    """Make ``folder`` this process's cache, unless $WARPWAVE_CACHE_DIR names one: binaries and what tools said."""
    _chosen[:] = [folder.absolute()]


def user_folder(kind: str) -> Path:
    """Where this user's ``cache`` or ``state`` of warpwave lies; it exists and can be written.

    ``$XDG_CACHE_HOME/warpwave`` or ``~/.cache/warpwave``; ``$XDG_STATE_HOME/warpwave`` or ``~/.local/state/warpwave``.
    A user without a home, or with one that cannot be written (a container's, often), gets a folder of their own below
    the system's temporary one; stderr says so once. Raises ``BackendError`` if that cannot be used either.
    """
    try:
        folder = usual_folder(kind)
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
        why = f"{folder} cannot be written"
    except RuntimeError:
        why = "this user has no home folder"
    except OSError as error:
        why = str(error)
    substitute = _temporary(kind, why)
    if substitute not in _told:
        _told.add(substitute)
        sys.stderr.write(f"warpwave: {why}; its {kind} is in {substitute}, which may not outlive a restart: "
                         f"{HINTS[kind]}\n")
    return substitute


def usual_folder(kind: str) -> Path:
    """The user's own folder for ``kind``, there or not. Raises ``RuntimeError`` for a user without a home."""
    variable, below = _USER[kind]
    base = os.environ.get(variable) or ""
    return (Path(base) if base.startswith("/") else Path.home() / below) / "warpwave"


def _temporary(kind: str, why: str) -> Path:
    """A folder below the temporary one that belongs to this user alone: what lies in it gets executed."""
    try:
        mine = Path(tempfile.gettempdir()) / f"warpwave-{os.getuid()}"
        mine.mkdir(mode=0o700, exist_ok=True)
        facts = mine.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
            raise BackendError(f"{why}, and {mine} is not a folder that you alone may write to; {HINTS[kind]}")
        (mine / kind).mkdir(exist_ok=True)
    except OSError as error:
        raise BackendError(f"{why}, and neither can a temporary folder be used ({error}); {HINTS[kind]}") from error
    return mine / kind


class Cache:
    """One cache folder; it is created on the first write."""

    def __init__(self, folder: Path | None = None):
        self.folder = (folder or default_folder()).absolute()

    def place(self, key: str) -> Path:
        """Where the entry of ``key`` lies or would lie."""
        return self.folder / "binaries" / key[:2] / key

    def get(self, key: str) -> dict[str, Any] | None:
        """The facts stored with ``key``, or None unless the entry is there, complete and undamaged."""
        place = self.place(key)
        try:
            entry = json.loads((place / _ENTRY).read_bytes())
            if entry["schema"] != SCHEMA or entry["key"] != key:
                return None
            for name, expected in entry["files"].items():
                if _fingerprint(place / name) != expected:
                    return None
            facts: dict[str, Any] = entry["facts"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):   # missing, truncated or not ours
            return None
        return facts

    @contextlib.contextmanager
    def building(self) -> Iterator[Build]:
        """A private folder on the cache's own file system; removed at the end unless it was published."""
        home = self.folder / "building"
        home.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(home)
        lock_path, lock = _own_lock(home)
        folder = lock_path.with_suffix("")
        try:
            folder.mkdir()
            yield Build(folder, lock)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock_path.unlink(missing_ok=True)
            os.close(lock)

    def put(self, key: str, build: Path, facts: Mapping[str, Any]) -> None:
        """Publish the files of the folder ``build`` under ``key`` in one step; losing the race to a twin is fine.

        ``build`` is gone or empty of meaning afterwards. Raises ``OSError`` if the disk refuses.
        """
        files = sorted(path for path in build.rglob("*") if path.is_file())
        entry = {
            "schema": SCHEMA, "key": key, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "files": {path.relative_to(build).as_posix(): _fingerprint(path) for path in files},
            "facts": dict(facts),
        }
        (build / _ENTRY).write_text(json.dumps(entry, indent=1, sort_keys=True) + "\n")
        for path in [*files, build / _ENTRY, build]:
            _sync(path)
        place = self.place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        with self._publishing():
            if self.get(key) is not None:
                return   # a twin was faster; its bytes are as good as ours
            if place.exists():
                place.rename(self.folder / "building" / f"{os.getpid()}-{secrets.token_hex(8)}")   # broken: swept later
            build.rename(place)
        _sync(place.parent)

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        lock = os.open(self.folder / "publish.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def write_json(path: Path, value: Any) -> None:
    """Write a small JSON file so that readers see the old content or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _own_lock(home: Path) -> tuple[Path, int]:
    """A new lock file below ``home``, held by this process before the folder it guards exists."""
    while True:
        path = home / f"{os.getpid()}-{secrets.token_hex(8)}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        held = _flock(lock, fcntl.LOCK_EX)
        # Between the two calls a sweeper may have taken the file for abandoned and removed it; then try another name.
        if not held or os.fstat(lock).st_nlink > 0:
            return path, lock
        os.close(lock)


def _remove_abandoned(home: Path) -> None:
    """Remove the folders and locks of builds whose processes have all ended."""
    for folder in sorted({path.with_suffix("") for path in home.iterdir()}):
        lock_path = folder.with_suffix(".lock")
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:   # another user's: theirs to sweep
            continue
        try:
            if _flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB) or _age(folder) > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
                lock_path.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _flock(descriptor: int, operation: int) -> bool:
    """Take the lock; False if somebody else holds it or the file system has none."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        return False
    return True


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
