# SPDX-License-Identifier: MIT
"""SIGTERM and SIGHUP as a Ctrl-C with another exit code, so that temporary folders go and workers end with us."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Raised where the program is when a signal tells it to end; ``code`` is the exit code shells expect."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.code = 128 + number


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Inside, the first of these signals raises ``Terminated``; the second ends the process, as it does by default.

    A signal that is ignored (SIGHUP under nohup) stays so. Does nothing outside the main thread.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        before = {number: handler for number, handler in before.items() if handler == signal.SIG_DFL}
    for number in before:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)
