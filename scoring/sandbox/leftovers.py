# SPDX-License-Identifier: MIT
"""What judges that were killed left behind: processes, control groups and temporary folders, told by their names."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from scoring.sandbox import cgroup, owner, rubbish, strays


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
        with contextlib.suppress(OSError):       # another judge may be cleaning as well
            mine = os.geteuid() in (0, folder.stat(follow_symlinks=False).st_uid)
            if mine and rubbish.remove(folder):
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
