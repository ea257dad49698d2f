# SPDX-License-Identifier: MIT
"""What a sandbox is asked for: how strong, how much memory, disk and how many processes. Pure data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TIERS = ("bubblewrap", "landlock", "process")      # strongest first
Isolation = Literal["auto", "bubblewrap", "landlock", "process"]
ROOT = Path(__file__).resolve().parents[2]


class SandboxError(Exception):
    """The isolation that was asked for cannot be had here; the message says why and what to do."""


@dataclass(frozen=True)
class Policy:
    """``isolation``: the strongest there is (``auto``), or one of ``TIERS`` and no other.

    ``memory_bytes`` (None: three quarters of the machine's) and ``processes`` hold for all processes of one worker
    together; ``scratch_bytes`` for all it writes to its temporary folder, and for any one file. ``hidden`` are folders
    it must not see even where they lie below one that it needs.
    """

    isolation: Isolation = "auto"
    memory_bytes: int | None = None
    scratch_bytes: int = 8 << 30
    processes: int = 4096
    hidden: tuple[Path, ...] = ()

    @property
    def memory(self) -> int:
        """Bytes of memory a worker may have."""
        return self.memory_bytes if self.memory_bytes is not None else physical_memory() * 3 // 4

    @property
    def scratch(self) -> int:
        """Bytes a worker may write: they lie in memory, so that no more than half of what it has makes sense."""
        return min(self.scratch_bytes, self.memory // 2)

    @property
    def private(self) -> tuple[Path, ...]:
        """Folders that are the judge's: this checkout and ``hidden``."""
        paths = [path for given in (ROOT, *self.hidden) for path in (given.absolute(), given.resolve())]
        return tuple(path for path in dict.fromkeys(paths) if path != Path("/"))

    @property
    def concealed(self) -> tuple[Path, ...]:
        """Folders no contestant may look into: ``private`` ones and the user's home."""
        home = Path(os.path.expanduser("~"))      # noqa: PTH111 - pathlib raises without a home
        homes = [path for path in (home, home.resolve()) if home.is_absolute() and path != Path("/")]
        return tuple(dict.fromkeys((*self.private, *homes)))


def physical_memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
