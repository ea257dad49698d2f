# SPDX-License-Identifier: MIT
"""Libraries that another machine has compiled: found by what they were made of, on a machine without the compiler.

A folder of them is a cache (``_cache``) with an ``index.json``: from ``name_of`` a build to its key in the cache.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from backends._cache import Cache
from backends.base import Binary
from backends.errors import CompileError, Diagnostic

INDEX = "index.json"
_chosen: list[Path] = []       # by ``use``


def use(folder: Path) -> None:
    """Let this process take libraries from ``folder`` before it compiles anything."""
    _chosen[:] = [folder.absolute()] if (folder / INDEX).is_file() else []


def backends() -> set[str]:
    """The backends that have libraries in the folder of ``use``."""
    return {entry["backend"] for folder in _chosen for entry in _index(folder).values()}


def name_of(backend: str, arch: str, source_digest: str, defines: Mapping[str, str]) -> str:
    """What tells builds apart, whatever compiled them: hex digits. ``source_digest`` is of the file and its headers."""
    parts = [backend, arch, source_digest, sorted(defines.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Found(NamedTuple):
    """An entry of the cache: the folder of its files, its key, and the facts beside them."""

    place: Path
    key: str
    facts: dict[str, Any]


def find(name: str) -> Found | None:
    """The build called ``name``; None unless it is there and undamaged.

    Raises ``CompileError`` for what the compiler on the other machine refused.
    """
    for folder in _chosen:
        entry, cache = _index(folder).get(name), Cache(folder)
        if entry is not None and (refused := entry.get("refused")) is not None:
            diagnostics = tuple(Diagnostic(**each) for each in refused["diagnostics"])
            raise CompileError(refused["message"], diagnostics, refused["log"], refused["command"])
        if entry is not None and (facts := cache.get(entry["key"])) is not None:
            return Found(cache.place(entry["key"]), entry["key"], facts)
    return None


class Writer:
    """Fills a folder with libraries; ``close`` writes its index."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._index: dict[str, dict[str, Any]] = {}

    def add(self, name: str, backend: str, binary: Binary) -> None:
        """Copy the cache entry of a binary."""
        self._index[name] = {"backend": backend, "key": binary.digest}
        place = Cache(self.folder).place(binary.digest)
        if not place.is_dir():
            shutil.copytree(binary.path.parent, place)

    def refuse(self, name: str, backend: str, error: CompileError) -> None:
        """Keep what the compiler said against a kernel."""
        self._index[name] = {"backend": backend, "refused": {
            "message": str(error), "diagnostics": [asdict(each) for each in error.diagnostics],
            "log": error.log[-20_000:], "command": list(error.command)}}

    def close(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / INDEX).write_text(json.dumps(self._index, indent=1, sort_keys=True) + "\n")


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    index: dict[str, dict[str, Any]] = json.loads((folder / INDEX).read_text())
    return index
