# SPDX-License-Identifier: MIT
"""Text that others wrote (kernel names, compiler logs, what a worker printed), made safe to keep and to show.

``harmless`` removes what would steer a terminal from what is kept; ``printable`` spells it out where it is shown.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from typing import Any

_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))   # Unicode categories no reader can see
# Escape sequences of terminals: CSI, OSC and other strings up to their end, and the rest with one final character.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Cc: controls, Cf: invisible ones that turn the direction of writing, Cs: halves of characters, Zl/Zp: line breaks
# that only some programs know.
_REFUSED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def harmless(given: str) -> str:
    """``given`` with line feeds and tabs as its only control characters; a carriage return ends a line."""
    if given.isprintable():
        return given
    cleaned = _ESCAPES.sub("", given.replace("\r\n", "\n").replace("\r", "\n"))
    return cleaned.translate(_replaced())


@functools.cache
def _replaced() -> dict[int, str]:
    """What takes the place of every refused character. A table: a worker's text may be nothing but such characters."""
    return {code: "�" for code in range(sys.maxunicode + 1)
            if chr(code) not in "\n\t" and unicodedata.category(chr(code)) in _REFUSED}


def harmless_json(given: Any) -> Any:
    """A JSON value with every text in it, keys included, made harmless."""
    if isinstance(given, str):
        return harmless(given)
    if isinstance(given, list):
        return [harmless_json(item) for item in given]
    if isinstance(given, dict):
        return {harmless(key): harmless_json(item) for key, item in given.items()}
    return given


def printable(text: str, keep: str = "\n\t") -> str:
    r"""``text`` with what is invisible spelled out (``\x1b``, ``\u202e``), but for the characters in ``keep``.

    Control characters would steer a terminal and are not allowed in XML; bidirectional overrides make a log read as
    something else than it is.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(char, keep) for char in text.replace("\r\n", "\n"))


def _visible(char: str, keep: str) -> str:
    if char in keep or unicodedata.category(char) not in _UNSAFE:
        return char
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 127 else f"\\x{ord(char):02x}"


def one_line(text: str) -> str:
    """``printable`` text on one line: for names and table cells."""
    return printable(" ".join(text.split()), keep="")


def first_line(message: str) -> str:
    """What a message says in one line; the rest of it is detail."""
    return one_line(message.strip().partition("\n")[0])
