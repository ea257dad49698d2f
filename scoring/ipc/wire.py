# SPDX-License-Identifier: MIT
"""Messages between judge and worker: length-prefixed JSON. Questions cross a Unix socket, with file descriptors beside
them; answers cross a pipe, which carries bytes and nothing else.

Nothing is ever unpickled. The judge treats what it receives as untrusted: ``receive_answer`` refuses anything that is
not one JSON object of bounded size and depth, and ``field`` reads a value only if it has the expected type. A socket
would not do for answers: whoever reads from it, or closes it, also closes the descriptors that came along, and closing
a descriptor of somebody else's can take for ever.
"""

from __future__ import annotations

import array
import json
import math
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeVar

MAX_MESSAGE = 8 << 20          # bytes of JSON; the largest honest message is a slot description of a few KB
MAX_ANSWER = 64 << 10          # … of an answer
MAX_COUNTED = 4 << 20          # … of an answer with an emulated device's findings and counters
MAX_VALUES = 200_000           # of an answer; each costs the reader about a hundred bytes
MAX_DEPTH = 16                 # of an answer; honest ones have 5
MAX_FDS = 4
_HEADER = struct.Struct("!I")

T = TypeVar("T")


class WireError(Exception):
    """The other side closed, broke the framing, or sent something that is not a message."""


class WireClosed(WireError):
    """The other side is gone."""


class WireTimeout(WireError):
    """No complete message within the deadline."""


def send(
    sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = (), timeout: float | None = None
) -> None:
    """Send one message; ``fds`` travel with its first byte.

    ``timeout`` in seconds limits how long a peer that does not read can hold us. Raises ``WireTimeout`` then,
    ``WireError`` if the peer is gone or the message is too large, ``ValueError`` for NaN or unserialisable values.
    """
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_MESSAGE:
        raise WireError(f"a message of {len(body)} bytes exceeds the limit of {MAX_MESSAGE}")
    payload = _HEADER.pack(len(body)) + body
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.settimeout(timeout)
        sent = sock.sendmsg([payload], ancillary)
        if sent < len(payload):      # an empty rest would ask a peer that has read all and gone
            sock.sendall(payload[sent:])
    except TimeoutError as error:
        raise WireTimeout("the other side does not read") from error
    except OSError as error:
        raise WireClosed(f"the other side is gone: {error}") from error


class AnswerPipe:
    """A worker's end of the pipe for answers."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor

    def sendall(self, data: bytes) -> None:
        """Write all of ``data``. Raises ``OSError`` if nobody reads any more."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]


def answer(pipe: AnswerPipe, message: dict[str, Any]) -> None:
    """Send one answer. Raises ``WireError`` if the judge is gone or the message is too large, ``ValueError`` for NaN or
    unserialisable values."""
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_COUNTED:
        raise WireError(f"an answer of {len(body)} bytes exceeds the limit of {MAX_COUNTED}")
    try:
        pipe.sendall(_HEADER.pack(len(body)) + body)
    except OSError as error:
        raise WireClosed(f"the other side is gone: {error}") from error


def receive_answer(pipe: int, timeout: float, limit: int = MAX_ANSWER) -> dict[str, Any]:
    """The next answer from the judge's end of a pipe, which does not block (``os.set_blocking``).

    ``timeout`` in seconds covers the whole message, ``limit`` in bytes its body. Raises ``WireTimeout``, ``WireClosed``
    or, for anything that is no answer, ``WireError``.
    """
    deadline = time.monotonic() + timeout
    (size,) = _HEADER.unpack(_read_pipe(pipe, _HEADER.size, deadline))
    if size > limit:
        raise WireError(f"announced an answer of {size} bytes, the limit is {limit}")
    body = _read_pipe(pipe, size, deadline)
    if sum(map(body.count, (b",", b":", b"[", b"{"))) > MAX_VALUES:
        raise WireError(f"an answer of more than {MAX_VALUES} values")
    message = decode(body)
    inner: list[Any] = [message]
    for _level in range(MAX_DEPTH):
        inner = [item for value in inner for item in (value.values() if isinstance(value, dict) else value)
                 if isinstance(item, dict | list)]
    if inner:
        raise WireError(f"an answer nested more than {MAX_DEPTH} deep")
    return message


def _read_pipe(pipe: int, count: int, deadline: float) -> bytes:
    chunks, waiting = bytearray(), select.poll()
    waiting.register(pipe, select.POLLIN)
    while len(chunks) < count:
        left = deadline - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1e3):
            raise WireTimeout("no answer within the deadline")
        try:
            data = os.read(pipe, min(count - len(chunks), 1 << 20))
        except BlockingIOError:
            continue
        except OSError as error:
            raise WireClosed(f"the other side is gone: {error}") from error
        if not data:
            raise WireClosed("the other side closed the connection")
        chunks += data
    return bytes(chunks)


def receive(sock: socket.socket, timeout: float | None = None) -> tuple[dict[str, Any], list[int]]:
    """The next message and the descriptors that came with it (the caller closes them).

    ``timeout`` in seconds covers the whole message; None waits for ever. Raises ``WireTimeout`` or ``WireError``; what
    came with a message that is none is closed.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    fds: list[int] = []
    try:
        header = _read(sock, _HEADER.size, deadline, fds)
        (size,) = _HEADER.unpack(header)
        if size > MAX_MESSAGE:
            raise WireError(f"announced a message of {size} bytes, the limit is {MAX_MESSAGE}")
        return decode(_read(sock, size, deadline, fds)), fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def decode(body: bytes) -> dict[str, Any]:
    """Parse one message body.

    Raises ``WireError`` unless it is a JSON object without NaN or infinities.
    """
    try:
        message = json.loads(body, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError, MemoryError) as error:   # UnicodeDecodeError is a ValueError
        raise WireError(f"not a JSON message: {error}") from error
    if not isinstance(message, dict):
        raise WireError(f"a message is a JSON object, not {type(message).__name__}")
    return message


def field(message: dict[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """``message[name]`` if it is exactly of ``kind`` (an int also serves as a float); ``default`` if absent.

    Raises ``WireError`` for a missing field without default, another type, or a number that is not finite.
    """
    value = message.get(name, default)
    if kind is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError as error:
            raise WireError(f"field {name!r} is out of range") from error
    if type(value) is not kind:
        raise WireError(f"field {name!r} should be {kind.__name__}, got {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise WireError(f"field {name!r} is not finite")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):     # 1e999 is a number to JSON
        raise ValueError(f"{text[:40]} is out of range")
    return value


def _read(sock: socket.socket, count: int, deadline: float | None, fds: list[int]) -> bytes:
    chunks = bytearray()
    while len(chunks) < count:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WireTimeout("no answer within the deadline")
        try:
            sock.settimeout(left)
            data, ancillary, _flags, _address = sock.recvmsg(
                min(count - len(chunks), 1 << 20), socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
            )
        except TimeoutError as error:
            raise WireTimeout("no answer within the deadline") from error
        except OSError as error:
            raise WireClosed(f"the other side is gone: {error}") from error
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(raw[: len(raw) - len(raw) % received.itemsize])
                fds.extend(received)
        if len(fds) > MAX_FDS:      # every byte could bring some more
            raise WireError(f"more than {MAX_FDS} descriptors came with one message")
        if not data:
            raise WireClosed("the other side closed the connection")
        chunks += data
    return bytes(chunks)
