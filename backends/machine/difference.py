# SPDX-License-Identifier: MIT
"""Two images side by side: which functions changed, and how their text differs once registers are left out. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from backends.machine.document import function_document
from backends.machine.model import Function, Image

_CONTEXT = 2
_NORMAL = (
    (re.compile(r"\b(UR|UP|R|P|B|SB)\d+\b"), r"\1"),                    # SASS registers, predicates, barriers
    (re.compile(r"\b([vsa])(?:\d+|\[\d+:\d+\])(?!\w)"), r"\1"),         # AMD's
    (re.compile(r"\b((?:BRA|BSSY|CALL|JMP|s_c?branch)\S* .*?)0x[0-9a-f]+"), r"\1label"),
)


def normalised(text: str) -> str:
    """An instruction without register numbers and branch targets, which change with every build."""
    for pattern, replacement in _NORMAL:
        text = pattern.sub(replacement, text)
    return text


def document(old: Image, new: Image) -> dict[str, Any]:
    """Pairs of functions with both descriptions and a unified diff of normalised text; those without a partner."""
    pairs = list(_pairs(old.functions, new.functions))
    return {
        "schema": 1, "old": old.origin, "new": new.origin,
        "functions": [
            {"old": function_document(a), "new": function_document(b), "diff": diff(a, b)} for a, b in pairs],
        "only_old": [each.name for each in old.functions if each not in [a for a, _ in pairs]],
        "only_new": [each.name for each in new.functions if each not in [b for _, b in pairs]],
    }


def diff(old: Function, new: Function) -> list[str]:
    """The lines of a unified diff without its header; empty where nothing but registers changed."""
    before, after = ([normalised(each.text) for each in function.code] for function in (old, new))
    return list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))[2:]


def _pairs(old: Sequence[Function], new: Sequence[Function]) -> Iterator[tuple[Function, Function]]:
    """By symbol, then by name, then in order among those of one name without template arguments."""
    left, right = list(old), list(new)
    keys: tuple[Callable[[Function], str], ...] = (
        lambda f: f.mangled, lambda f: f.name, lambda f: f.name.partition("<")[0])
    for key in keys:
        for function in list(left):
            partner = next((other for other in right if key(other) == key(function)), None)
            if partner is not None:
                left.remove(function)
                right.remove(partner)
                yield function, partner
    if len(left) == len(right) == 1:
        yield left[0], right[0]
