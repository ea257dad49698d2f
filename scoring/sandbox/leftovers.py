# SPDX-License-Identifier: MIT
"""What judges that were killed left behind: processes, control groups and temporary folders, told by their names."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from scoring.sandbox import cgroup, owner, strays


def folder_prefix() -> str:
    """What the name of a temporary folder of this process has to begin with, to be found when it is gone."""
    return f"{cgroup.PREFIX}{owner.own()}-"


def clean() -> list[str]:
    """End and remove everything whose owner no longer runs; what that was, in words. Never raises."""
    done = []
    found = orphans()
    if found:
        strays.kill(orphans)
        done.append(f"{len(found)} processes")
    for hierarchy in cgroup.hierarchies():
        for parent in (hierarchy.here, hierarchy.here.parent):
            for folder in _abandoned(parent):
                group = cgroup.Group({"pids": folder})
                group.kill()
                group.remove()
                done.append(f"control group {folder.name}")
    for folder in _abandoned(Path(tempfile.gettempdir())):
        if folder.is_symlink() or folder.stat().st_uid not in (os.geteuid(), *_lent(folder)):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        done.append(f"folder {folder}")
    return done


def orphans() -> list[int]:
    """Processes of workers whose judge no longer runs."""
    return [process for process, mark in strays.marks()
            if owner.is_gone(mark.decode(errors="replace").partition("=")[2])]


def _abandoned(parent: Path) -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found = [path for path in parent.glob(f"{cgroup.PREFIX}*")
                 if path.is_dir() and owner.is_gone(path.name.removeprefix(cgroup.PREFIX))]
    return found


def _lent(folder: Path) -> tuple[int, ...]:
    """A judge that is root gives scratch folders to the user of a worker."""
    return (folder.stat().st_uid,) if os.geteuid() == 0 else ()
