# SPDX-License-Identifier: MIT
"""What every request must keep to: its size, how long it takes to arrive, and how many come from one address."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scoring.popcorn.directives import MAX_SUBMISSION_BYTES

BODY_BYTES = MAX_SUBMISSION_BYTES + 65_536       # a submission, and what a form puts around it
BODY_SECONDS = 30.0
# Nothing is loaded from elsewhere, nothing inline runs, and no other site may frame a page or be sent a form.
HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                               "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Buckets:
    """Token buckets by key, the least used ones forgotten. Safe in threads."""

    def __init__(self, per_second: float, burst: float, most: int = 10_000):
        self._rate, self._burst, self._most = per_second, burst, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> bool:
        """Whether ``key`` may do it once more now."""
        now = time.monotonic()
        with self._lock:
            left, since = self._left.pop(key, (self._burst, now))
            left = min(self._burst, left + (now - since) * self._rate)
            allowed = left >= 1
            self._left[key] = (left - 1 if allowed else left, now)
            while len(self._left) > self._most:
                self._left.popitem(last=False)
        return allowed


class Guard:
    """ASGI middleware: refuses what is too much, reads bodies whole, adds the headers above to every answer."""

    def __init__(self, app: ASGIApp, per_second: float):
        self.app = app
        self._requests = Buckets(per_second, max(20.0, 4 * per_second))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in present)]
            await send(message)

        client = scope.get("client") or ("", 0)
        if not self._requests.take(client[0]):
            await _refuse(answer, 429, "too many requests from this address; slow down")
            return
        body = b""
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    found = await _read(scope, receive)
            except TimeoutError:
                await _refuse(answer, 408, f"the request did not arrive within {BODY_SECONDS:g} s")
                return
            if found is None:
                await _refuse(answer, 413, f"a request has at most {BODY_BYTES} bytes")
                return
            body = found
        given = False

        async def replay() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self.app(scope, replay, answer)


async def _read(scope: Scope, receive: Receive) -> bytes | None:
    """The whole body; None as soon as it is known to be too large."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if not length.isdigit() or int(length[:18]) > BODY_BYTES:
        return None
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    await send({"type": "http.response.start", "status": status, "headers": [
        (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close"),
        *([(b"retry-after", b"5")] if status == 429 else [])]})
    await send({"type": "http.response.body", "body": body})
