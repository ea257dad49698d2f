# SPDX-License-Identifier: MIT
"""A worker that greets, then misbehaves: ``python -m tests.data.fake_worker BEHAVIOUR SOCKET PIPE``."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from scoring.ipc.wire import AnswerPipe


def frame(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body


def request(sock: socket.socket) -> dict[str, Any]:
    header = sock.recv(4, socket.MSG_WAITALL)
    if len(header) < 4:
        sys.exit(0)
    message: dict[str, Any] = json.loads(sock.recv(struct.unpack("!I", header)[0], socket.MSG_WAITALL))
    return message


def answer(pipe: AnswerPipe, message: dict[str, Any], **fields: Any) -> None:
    pipe.sendall(frame({"ok": True, "nonce": message["nonce"], **fields}))


def misbehave(behaviour: str, sock: socket.socket, pipe: AnswerPipe, message: dict[str, Any]) -> None:
    match behaviour:
        case "honest":
            answer(pipe, message, echo=message.get("value"), pid=os.getpid())
        case "garbage":
            pipe.sendall(b"\x00\x00\x00\x08not json" + os.urandom(100))
        case "oversized":
            pipe.sendall(b"\xff\xff\xff\xff")
        case "list":
            pipe.sendall(frame([1, 2, 3]))
        case "wrong nonce":
            answer(pipe, {"nonce": "0" * 16})
        case "no nonce":
            pipe.sendall(frame({"ok": True}))
        case "nonce of another type":
            pipe.sendall(frame({"ok": True, "nonce": [message["nonce"]]}))
        case "twice":
            answer(pipe, message)
            answer(pipe, message)
        case "silent":
            time.sleep(600)
        case "trickle":
            for byte in frame({"ok": True, "nonce": message["nonce"], "x": "x" * 10_000}):
                pipe.sendall(bytes([byte]))
                time.sleep(0.05)
        case "hang up":
            sock.close()
            os.close(pipe.descriptor)
            time.sleep(600)
        case "exit":
            os.write(1, b"last words\n")
            sys.exit(3)
        case "nameless signal":
            os.kill(os.getpid(), 40)
        case "abort":
            os.abort()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "descriptors":
            try:
                socket.send_fds(sock, [b"x"], [0, 1, 2])
            except BrokenPipeError:
                answer(pipe, message, refused=True)
        case "deep":
            deep = b"[" * 600 + b"]" * 600
            pipe.sendall(frame(b'{"ok": true, "nonce": "%s", "x": %s}' % (message["nonce"].encode(), deep)))
        case "large":
            answer(pipe, message, x="x" * (80 << 10))
        case "many values":
            answer(pipe, message, x=[[]] * 500_000)
        case "chatty":
            for _ in range(1000):
                os.write(1, b"x" * 10_000)
            os.write(1, b"the end")
            answer(pipe, message)
        case "bytes":
            os.write(2, b"\xff\xfe\x00 \x1b[31m end")
            sys.exit(1)
        case "child" | "daemon" | "nameless child":
            environment = {} if behaviour == "nameless child" else None
            child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=behaviour == "daemon", env=environment)
            answer(pipe, message, pid=child.pid)
        case "child and exit":
            subprocess.Popen(["sleep", "600"])
            os._exit(5)
        case "not ok":
            pipe.sendall(frame({"ok": message.get("value"), "nonce": message["nonce"]}))
        case "failure":
            pipe.sendall(frame({"ok": False, "nonce": message["nonce"], **message["value"]}))
        case _:
            raise SystemExit(f"unknown behaviour {behaviour}")


def main() -> None:
    behaviour, sock, pipe = sys.argv[1], socket.socket(fileno=int(sys.argv[2])), AnswerPipe(int(sys.argv[3]))
    message = request(sock)
    if behaviour == "rude":
        sys.exit("no torch here")
    answer(pipe, message, torch="0", pid=os.getpid())
    while True:
        message = request(sock)
        misbehave(behaviour, sock, pipe, message)


if __name__ == "__main__":
    main()
