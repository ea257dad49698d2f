# SPDX-License-Identifier: MIT
"""What files must not reach, laid out where they would look for it, and what of it they did reach.

A canary is a folder ``/tmp/warpwave-canary/<id>/`` with ``secret.txt`` (to be read by nobody) and ``guarded.txt`` (to
be changed by nobody; nothing new may appear beside it), the variable ``WARPWAVE_CANARY`` in the judge's environment,
and on loopback a listening TCP port of ``PORTS`` and an abstract unix socket ``warpwave-canary-<port>``. A secret
counts as stolen when it shows up in the record, in the folder or on a socket: a file that found one raises it, or
prints it and leaves. What a file could do besides (trace the judge, find what an earlier judgement left, …) it says
itself, in an exception whose text begins with ``ESCAPED:``.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import socket
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.gettempdir()) / "warpwave-canary"
PORTS = range(47100, 47132)
VARIABLE = "WARPWAVE_CANARY"
_UNTOUCHED = "nobody writes here\n"
_ESCAPED = re.compile(r"ESCAPED: .{1,160}")


class Canary:
    """Use as a context manager; ``evidence`` says what happened since the last call and puts all in place again."""

    def __init__(self) -> None:
        self.environment = {VARIABLE: "env-" + secrets.token_hex(12)}
        self.secret = "file-" + secrets.token_hex(12)
        FOLDER.mkdir(mode=0o755, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(dir=FOLDER))
        self.sockets = _listen()
        self._lay_out()

    def __enter__(self) -> Canary:
        return self

    def __exit__(self, *_exception: object) -> None:
        for listener in self.sockets:
            listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def evidence(self, record: str) -> list[str]:
        """What the judged file got hold of, as sentences; ``record`` is all that the judge kept of it."""
        found = _ESCAPED.findall(record)[-1:]
        texts = {"the record": record}
        for path in self.folder.iterdir():
            content = path.read_bytes().decode(errors="replace") if path.is_file() else ""
            if path.name == "guarded.txt" and content != _UNTOUCHED:
                found.append("changed a guarded file")
            if path.name not in ("guarded.txt", "secret.txt"):
                found.append(f"left {path.name} in a guarded folder")
                texts[path.name] = content
        if len(list(self.folder.glob("*.txt"))) < 2:
            found.append("removed a guarded file")
        for listener in self.sockets:
            with contextlib.suppress(BlockingIOError):
                connection, _address = listener.accept()
                with connection:
                    connection.settimeout(0.2)
                    found.append("connected to a socket outside")
                    with contextlib.suppress(OSError):
                        texts["a socket"] = connection.recv(4096).decode(errors="replace")
        for name, text in texts.items():
            if self.secret in text:
                found.append(f"a secret file's content is in {name}")
            if self.environment[VARIABLE] in text:
                found.append(f"the judge's environment is in {name}")
        if found:
            self._lay_out()
        return found

    def _lay_out(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o755)
        (self.folder / "guarded.txt").write_text(_UNTOUCHED)
        (self.folder / "secret.txt").write_text(self.secret)


def _listen() -> list[socket.socket]:
    """A TCP listener on the first free port and an abstract unix one named after it."""
    for port in PORTS:
        tcp = socket.socket()
        local = socket.socket(socket.AF_UNIX)
        try:
            tcp.bind(("127.0.0.1", port))
            local.bind(f"\0warpwave-canary-{port}")
        except OSError:
            tcp.close()
            local.close()
            continue
        for listener in (tcp, local):
            listener.listen(8)
            listener.setblocking(False)
        return [tcp, local]
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop}; are that many suites running?")
