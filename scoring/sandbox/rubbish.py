# SPDX-License-Identifier: MIT
"""Measure and remove folders that hostile code has filled: deeper than names can reach, unreadable, full of links."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def remove(folder: Path) -> bool:
    """Remove a folder with all it holds; whether nothing is left. Never raises.

    What lies deep is moved up first, so that neither the depth of the tree nor the length of its names matters.
    """
    try:
        folder.chmod(0o700)
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return not folder.exists()
    count = 0
    try:
        while folders := _clear(top):
            progress = False
            for name in folders:
                with contextlib.suppress(OSError):
                    os.chmod(name, 0o700, dir_fd=top)
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
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
    return not folder.exists()


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


def usage(folder: Path) -> int | None:
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
