# SPDX-License-Identifier: MIT
"""Where things lie: folders and files, each with where it was set. Imports little: ``list`` answers at once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends._home import HOME, INSTALLED

# Where things lie by default, below the checkout or what a wheel has of it. (The cache and the database lie in the
# user's own folders.)
PATHS = {"problems": "problems", "kernels": "kernels", "peers": "benchmarks/peers", "report": "report.html"}
USERS = ("cache", "database")
_DATABASE = "leaderboard.db"


@dataclass(frozen=True)
class Locations:
    """Folders and files, each with where it was set. ``paths`` holds those that are set, defaults included."""

    paths: Mapping[str, str | list[str]]
    file: Path | None
    origins: Mapping[str, str]

    def path(self, name: str) -> Path:
        """A folder or file, resolved: against the file that sets it, a default against the checkout, else here."""
        value = self.paths[name]
        return self._resolved(name, value if isinstance(value, str) else value[0])

    @property
    def problems(self) -> tuple[Path, ...]:
        """The folders of problems; the first one that has a name wins."""
        value = self.paths["problems"]
        return tuple(self._resolved("problems", each) for each in ([value] if isinstance(value, str) else value))

    def _resolved(self, name: str, text: str) -> Path:
        value = expand_home(Path(text))
        if value.is_absolute():
            return value
        origin = self.origins.get(f"paths.{name}", "default")
        if origin == "default":
            return (Path.cwd() if INSTALLED and name == "report" else HOME) / value
        return (self.file.parent if self.file and origin == str(self.file) else Path.cwd()) / value

    @property
    def database(self) -> Path:
        """Where records go: the setting, else the user's state directory."""
        if "database" in self.paths:
            return self.path("database")
        from backends._cache import user_folder

        return user_folder("state") / _DATABASE

    @property
    def kept(self) -> Path:
        """Where records are read from: ``database``, but the user's own also where its folder cannot be written.

        Unless records have been kept in the folder that stands in for it since.
        """
        from backends._cache import usual_folder

        database = self.database
        if "database" not in self.paths and not database.is_file():
            with contextlib.suppress(RuntimeError, OSError):
                if (usual := usual_folder("state") / _DATABASE).is_file():
                    return usual
        return database

    @property
    def cache(self) -> Path:
        """Where binaries go: the setting, else the user's cache directory."""
        if "cache" in self.paths:
            return self.path("cache")
        from backends._cache import user_folder

        return user_folder("cache")


def expand_home(path: Path) -> Path:
    """``~`` expanded where there is a home (a container's user may have none)."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
