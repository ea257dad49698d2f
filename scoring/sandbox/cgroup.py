# SPDX-License-Identifier: MIT
"""A control group around one worker: memory and number of processes, who went over them, and a sure end for all.

Version 2 and version 1 of control groups; where none can be made, the other limits have to do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "warpwave-"


@dataclass(frozen=True)
class Hierarchy:
    """Where one or more controllers are mounted, and the folder of this process there."""

    controllers: tuple[str, ...]
    mount: Path
    here: Path
    unified: bool


class Group:
    """Folders of one group: one per hierarchy of version 1, a single one in version 2."""

    def __init__(self, folders: Mapping[str, Path]):
        self.folders = dict(folders)         # controller -> folder

    @property
    def entrances(self) -> list[Path]:
        """Files that take the id of a process that is to be in the group."""
        return [folder / "cgroup.procs" for folder in dict.fromkeys(self.folders.values())]

    @property
    def limits_memory(self) -> bool:
        return "memory" in self.folders

    def events(self) -> dict[str, int]:
        """How often the limits struck: ``oom_kill`` processes ended for memory, ``pids`` refused."""
        found = {"oom_kill": 0, "pids": 0}
        if (memory := self.folders.get("memory")) is not None:
            for name in ("memory.events", "memory.oom_control"):
                found["oom_kill"] += _count(memory / name, "oom_kill")
        if (pids := self.folders.get("pids")) is not None:
            found["pids"] = _count(pids / "pids.events", "max")
        return found

    def kill(self, seconds: float = 10.0) -> bool:
        """End every process of the group, whatever it does; whether none is left."""
        deadline = time.monotonic() + seconds
        if (pids := self.folders.get("pids")) is not None:
            _write(pids / "pids.max", "0")           # nobody has children from now on
        while time.monotonic() < deadline:
            members = self.members()
            if not members:
                return True
            for folder in set(self.folders.values()):
                _write(folder / "cgroup.kill", "1")
            for process in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.005)
        return False

    def members(self) -> set[int]:
        found: set[int] = set()
        for entrance in self.entrances:
            with contextlib.suppress(OSError, ValueError):
                found.update(int(line) for line in entrance.read_text().split())
        return found

    def remove(self) -> None:
        """Remove the empty folders; the kernel may need a moment after the last process went."""
        for folder in dict.fromkeys(self.folders.values()):
            for _attempt in range(50):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break


def create(name: str, memory: int, processes: int) -> Group | None:
    """A group called ``name`` with both limits, or as many of them as can be had; None if there is no way."""
    folders: dict[str, Path] = {}
    for hierarchy in hierarchies():
        made = _create_unified(hierarchy, name) if hierarchy.unified else _create_first(hierarchy, name)
        for controller in hierarchy.controllers if made is not None else ():
            if made is not None and (not hierarchy.unified or _has(made, controller)):
                folders.setdefault(controller, made)
    if not folders:
        return None
    if (folder := folders.get("memory")) is not None:
        if (folder / "memory.max").exists():
            limits = [memory, *_own_limits()]
            done = _write(folder / "memory.max", str(min(limits)))
            _write(folder / "memory.swap.max", "0")
            _write(folder / "memory.oom.group", "1")
        else:
            done = _write(folder / "memory.limit_in_bytes", str(memory))
            _write(folder / "memory.memsw.limit_in_bytes", str(memory))
        if not done:
            del folders["memory"]
            folder.rmdir() if folder not in folders.values() else None
    if (folder := folders.get("pids")) is not None:
        _write(folder / "pids.max", str(processes))
    return Group(folders) if folders else None


def hierarchies(process: Path = Path("/proc/self")) -> list[Hierarchy]:
    """The hierarchies with a controller of ours that are mounted and writable here."""
    try:
        memberships = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in memberships:
        _number, controllers, path = line.split(":", 2)
        names = tuple(name for name in ("memory", "pids") if name in controllers.split(","))
        unified = controllers == ""
        if not names and not unified:
            continue
        for mount in mounts:
            left, _dash, right = mount.partition(" - ")
            fields, kind = left.split(), right.split()
            matches = kind[0] == "cgroup2" if unified else kind[0] == "cgroup" and names[0] in kind[-1].split(",")
            if matches and (here := _below(Path(fields[4]), fields[3], path)) is not None:
                found.append(Hierarchy(names or ("memory", "pids"), Path(fields[4]), here, unified))
                break
    return found


def _below(mount: Path, root: str, path: str) -> Path | None:
    """The folder of group ``path`` in a mount whose top is group ``root``."""
    if root == "/":
        return mount / path.lstrip("/")
    return mount / Path(path).relative_to(root) if Path(path).is_relative_to(root) else None


def _create_first(hierarchy: Hierarchy, name: str) -> Path | None:
    folder = hierarchy.here / name
    try:
        folder.mkdir()
    except OSError:
        return None
    return folder


def _create_unified(hierarchy: Hierarchy, name: str) -> Path | None:
    """Below our own group, or, as a group with members may not hand on controllers, beside it."""
    parents = [hierarchy.here]
    if hierarchy.here != hierarchy.mount:
        parents.append(hierarchy.here.parent)
    for parent in parents:
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            continue
        if not _has(folder, "memory"):
            _write(parent / "cgroup.subtree_control", "+memory +pids")
        if _has(folder, "memory") or _has(folder, "pids"):
            return folder
        with contextlib.suppress(OSError):
            folder.rmdir()
    return None


def _own_limits() -> Iterable[int]:
    """What limits this process's own groups: a group beside them must not have more."""
    for hierarchy in hierarchies():
        if hierarchy.unified:
            with contextlib.suppress(OSError, ValueError):       # "max" is no number
                yield int((hierarchy.here / "memory.max").read_text())


def _has(folder: Path, controller: str) -> bool:
    with contextlib.suppress(OSError):
        return controller in (folder / "cgroup.controllers").read_text().split()
    return False


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


def _count(path: Path, key: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _space, number = line.partition(" ")
            if name == key:
                return int(number)
    return 0
