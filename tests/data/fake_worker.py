# SPDX-License-Identifier: MIT
"""A worker that greets, then misbehaves: ``python -m tests.data.fake_worker BEHAVIOUR FD``."""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any


def frame(message: Any) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body


def request(sock: socket.socket) -> dict[str, Any]:
    header = sock.recv(4, socket.MSG_WAITALL)
    if len(header) < 4:
        sys.exit(0)
    message: dict[str, Any] = json.loads(sock.recv(struct.unpack("!I", header)[0], socket.MSG_WAITALL))
    return message


def answer(sock: socket.socket, message: dict[str, Any], **fields: Any) -> None:
    sock.sendall(frame({"ok": True, "nonce": message["nonce"], **fields}))


def misbehave(behaviour: str, sock: socket.socket, message: dict[str, Any]) -> None:
    match behaviour:
        case "honest":
            answer(sock, message, echo=message.get("value"), pid=os.getpid())
        case "garbage":
            sock.sendall(b"\x00\x00\x00\x08not json" + os.urandom(100))
        case "oversized":
            sock.sendall(b"\xff\xff\xff\xff")
        case "list":
            sock.sendall(frame([1, 2, 3]))
        case "wrong nonce":
            answer(sock, {"nonce": "0" * 16})
        case "no nonce":
            sock.sendall(frame({"ok": True}))
        case "nonce of another type":
            sock.sendall(frame({"ok": True, "nonce": [message["nonce"]]}))
        case "twice":
            answer(sock, message)
            answer(sock, message)
        case "silent":
            time.sleep(600)
        case "trickle":
            for byte in frame({"ok": True, "nonce": message["nonce"], "x": "x" * 10_000}):
                sock.send(bytes([byte]))
                time.sleep(0.05)
        case "hang up":
            sock.close()
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
            sock.sendmsg([frame({"ok": True, "nonce": message["nonce"]})],
                         [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
        case "chatty":
            for _ in range(1000):
                os.write(1, b"x" * 10_000)
            os.write(1, b"the end")
            answer(sock, message)
        case "bytes":
            os.write(2, b"\xff\xfe\x00 \x1b[31m end")
            sys.exit(1)
        case "child" | "daemon" | "nameless child":
            environment = {} if behaviour == "nameless child" else None
            child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=behaviour == "daemon", env=environment)
            answer(sock, message, pid=child.pid)
        case "child and exit":
            subprocess.Popen(["sleep", "600"])
            os._exit(5)
        case "not ok":
            sock.sendall(frame({"ok": message["value"], "nonce": message["nonce"]}))
        case "failure":
            sock.sendall(frame({"ok": False, "nonce": message["nonce"], **message["value"]}))
        case _:
            raise SystemExit(f"unknown behaviour {behaviour}")


def main() -> None:
    behaviour, sock = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    message = request(sock)
    if behaviour == "rude":
        sys.exit("no torch here")
    answer(sock, message, torch="0", pid=os.getpid())
    while True:
        message = request(sock)
        misbehave(behaviour, sock, message)


if __name__ == "__main__":
    main()
