# SPDX-License-Identifier: MIT
"""Text that came from a worker, made harmless to show: no escape sequences, no control characters, no hidden ones."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

# Escape sequences of terminals: CSI, OSC and other strings up to their end, and the rest with one final character.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Cc: controls, Cf: invisible ones that turn the direction of writing, Cs: halves of characters, Zl/Zp: line breaks
# that only some programs know.
_REFUSED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def text(given: str) -> str:
    """``given`` with line feeds and tabs as its only control characters; a carriage return ends a line."""
    if given.isprintable():
        return given
    cleaned = _ESCAPES.sub("", given.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in _REFUSED else "�" for letter in cleaned
    )


def value(given: Any) -> Any:
    """A JSON value with every text in it, keys included, made plain."""
    if isinstance(given, str):
        return text(given)
    if isinstance(given, list):
        return [value(item) for item in given]
    if isinstance(given, dict):
        return {text(key): value(item) for key, item in given.items()}
    return given
