# SPDX-License-Identifier: MIT
"""A worker that greets, then takes more than its share: ``python -m tests.data.bomb_worker BEHAVIOUR SOCKET PIPE``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from scoring.ipc.wire import AnswerPipe
from tests.data.fake_worker import answer, frame, request


def misbehave(behaviour: str) -> None:
    match behaviour:
        case "forks":
            while True:
                os.fork()
        case "forks and reports":
            for _ in range(100_000):
                if os.fork() == 0:
                    time.sleep(600)
        case "threads":
            for _ in range(100_000):
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        case "memory":
            held = []
            while True:
                held.append(bytearray(b"x" * (16 << 20)))
        case "memory in files without names":
            while True:
                os.write(os.memfd_create("x"), b"x" * (16 << 20))
        case "one large file":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            with Path(tempfile.gettempdir(), "x").open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * (1 << 20))
        case "many files":
            for index in range(1_000_000):
                Path(tempfile.gettempdir(), str(index)).write_bytes(b"x" * (1 << 20))
        case "ignores signals":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            while True:
                pass
        case "output":
            while True:
                os.write(1, b"\x1b[31mnoise " * 1000)
        case "daemons":
            for _ in range(3):
                subprocess.Popen(["sleep", "600"], start_new_session=True, env={}, stdin=subprocess.DEVNULL)
        case "greets only":
            pass


def main() -> None:
    behaviour, sock, pipe = sys.argv[1], socket.socket(fileno=int(sys.argv[2])), AnswerPipe(int(sys.argv[3]))
    answer(pipe, request(sock), torch="0")
    while True:
        message = request(sock)
        try:
            misbehave(behaviour)
        except (OSError, MemoryError, RuntimeError):
            error = traceback.format_exc(limit=1)
            pipe.sendall(frame({"ok": False, "status": "RUNTIME_ERROR", "error": error, "nonce": message["nonce"]}))
        else:
            answer(pipe, message)


if __name__ == "__main__":
    main()
