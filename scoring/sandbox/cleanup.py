# SPDX-License-Identifier: MIT
"""Clean-up after workers and killed judges: their processes, control groups and temporary folders, told by name.

Every name carries which process made it, so that what a killed judge left behind is told from what is in use. Processes
are found by a mark in their environment, wherever they went: daemons, compile servers, fork bombs. Folders may be
hostile: deeper than names can reach, unreadable, full of links.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from scoring.sandbox import cgroup
from scoring.sandbox.environment import MARK

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")


def clean() -> list[str]:
    """End and remove everything whose owner no longer runs; what that was, in words. Never raises."""
    done = []
    found = orphans()
    if found:
        kill(orphans)
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
            if mine and remove_folder(folder):
                done.append(f"folder {folder}")
    return done


def orphans() -> list[int]:
    """Processes of workers whose judge no longer runs."""
    return [process for process, mark in marks()
            if is_gone(mark.decode(errors="replace").partition("=")[2])]


def _abandoned(parent: Path) -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found = [path for path in parent.glob(f"{cgroup.PREFIX}*")
                 if stat.S_ISDIR(path.lstat().st_mode) and is_gone(path.name.removeprefix(cgroup.PREFIX))]
    return found


def folder_prefix() -> str:
    """What the name of a temporary folder of this process has to begin with, to be found when it is gone."""
    return f"{cgroup.PREFIX}{own_name()}-"


def own_name() -> str:
    """This process: its id, when it started (ticks since boot, so that a reused id differs) and whose ids they are."""
    pid = os.getpid()
    return f"{pid}-{_started(pid)}-{_namespace()}"


def is_gone(name: str) -> bool:
    """Whether ``name`` begins as ``own_name`` names a process, and that process no longer runs.

    False for a process of another process-id namespace (another container): nothing is known about it here.
    """
    match = _NAME.match(name)
    return match is not None and int(match[3]) == _namespace() and _started(int(match[1])) != int(match[2])


def _started(pid: int) -> int:
    """When a process started, -1 if there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[19]) if fields[0] != "Z" else -1


def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def marked(mark: str) -> list[int]:
    """Processes whose environment carries a worker's mark. (One that wiped its environment is not found.)"""
    wanted = f"{MARK}={mark}".encode()
    return [process for process, found in marks() if found == wanted]


def marks() -> Iterable[tuple[int, bytes]]:
    """(process, its entry ``MARK=…``) of all processes that have one and that we may look at."""
    start = f"{MARK}=".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            for entry in path.read_bytes().split(b"\0"):
                if entry.startswith(start):
                    yield int(path.parent.name), entry
                    break


def kill(find: Callable[[], list[int]], attempts: int = 100) -> bool:
    """End all processes that ``find`` finds, until it finds none twice; whether that came to be.

    First they are stopped and may have no more children, or a fork bomb would be faster than we are.
    """
    quiet = 0
    for _attempt in range(attempts):
        found = [process for process in find() if process != os.getpid()]
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGSTOP)
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(process, resource.RLIMIT_NPROC, (0, 0))
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        if quiet == 2:               # once is not enough: a process that is just being started shows no environment
            return True
        time.sleep(0.02)
    return False


def remove_folder(folder: Path) -> bool:
    """Remove a folder with all it holds; whether nothing is left. Never raises, never follows a link.

    What lies deep is moved up first, so that neither the depth of the tree nor the length of its names matters.
    """
    try:
        top = _enter(folder)
    except OSError:
        return not os.path.lexists(folder)
    count = 0
    try:
        while folders := _clear(top):
            progress = False
            for name in folders:
                with contextlib.suppress(OSError):
                    inner = _enter(name, top)
                    try:
                        for below in _clear(inner):
                            count += 1
                            os.rename(below, f".{os.getpid()}-{count}", src_dir_fd=inner, dst_dir_fd=top)
                    finally:
                        os.close(inner)
                    os.rmdir(name, dir_fd=top)
                    progress = True
            if not progress:
                break
    except OSError:
        pass
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not os.path.lexists(folder)


def _enter(folder: Path | str, above: int | None = None) -> int:
    """A descriptor of a folder that is no link, made accessible; ``above`` is what a relative name begins at.

    The mode is changed of what the descriptor stands for: the name may be another thing's by then.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    found = os.open(folder, os.O_PATH | flags, dir_fd=above)
    try:
        Path(f"/proc/self/fd/{found}").chmod(0o700)
        return os.open(".", os.O_RDONLY | flags, dir_fd=found)
    finally:
        os.close(found)


def _clear(folder: int) -> list[str]:
    """Unlink all files of a folder; the names of its folders."""
    folders = []
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if is_folder:
            folders.append(name)
        else:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return folders


def folder_bytes(folder: Path) -> int | None:
    """Bytes that the files below ``folder`` take up, while somebody works there; None if not all of it can be seen."""
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        facts = entry.stat(follow_symlinks=False)
                        total += facts.st_blocks * 512
                        if stat.S_ISDIR(facts.st_mode):
                            waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return total
