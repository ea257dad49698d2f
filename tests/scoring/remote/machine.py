# SPDX-License-Identifier: MIT
"""Another machine on this one: an sshd on a loopback port, and a Python that has torch and what torch needs alone."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
NO_SSHD = "no sshd here (apt-get install openssh-server)"


def bare_python(folder: Path) -> Path:
    """A Python with torch alone and an empty PATH, so without any compiler: a script below ``folder``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    for name in requirements("torch"):
        for file in importlib.metadata.files(name) or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                place = site / file
                place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(source.resolve(), place)
                except OSError:          # another file system
                    shutil.copyfile(source, place)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPATH=/nonexistent exec {folder}/venv/bin/python "$@"\n')
    script.chmod(0o755)
    return script


def requirements(name: str) -> list[str]:
    """``name`` and all that it needs, as far as it is installed, by the names of the distributions."""
    found, waiting = [], [name]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        try:
            needed = importlib.metadata.requires(each) or []
        except importlib.metadata.PackageNotFoundError:      # for another platform
            continue
        found.append(each)
        waiting += [re.split(r"[\s;<>=!~\[(]", text, maxsplit=1)[0] for text in needed if "extra ==" not in text]
    return found


class Machine:
    """An sshd with keys of its own. ``ssh`` is the command that logs in there."""

    def __init__(self, folder: Path):
        assert SSHD is not None, NO_SSHD
        self.folder, self.jobs = folder, folder / "cache" / "warpwave" / "jobs"
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (folder / "sshd.conf").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/key.pub\n"
            f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
            f"SetEnv XDG_CACHE_HOME={folder}/cache\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)           # where it separates its privileges
        self.process = subprocess.Popen(
            [SSHD, "-D", "-f", str(folder / "sshd.conf"), "-E", str(folder / "log")], stdin=subprocess.DEVNULL)
        self.ssh = (f"ssh -F none -i {folder}/key -p {port} -o StrictHostKeyChecking=no -o LogLevel=ERROR "
                    f"-o UserKnownHostsFile={folder}/known")
        deadline = time.monotonic() + 20.0
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        self.close()
        raise AssertionError(f"sshd does not answer: {(folder / 'log').read_text()}")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
