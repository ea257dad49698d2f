# SPDX-License-Identifier: MIT
"""Taking functions out of a file: with all they need, nothing they do not, and no import a leaderboard lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from submissions.embed import EmbedError, embed

TEXT = '''\
# SPDX-License-Identifier: MIT
"""Module."""
from __future__ import annotations
import math
import numpy as np
from os import path, sep

# Why two.
TWO = 2
A, (B, C) = 1, (TWO, 3)
LIMIT: int = TWO


def unused():
    return np.zeros(3)


@staticmethod
def wanted(x):
    """Says: "\\n"."""
    return helper(x) + C


def helper(x):
    return math.floor(x) * LIMIT
'''


def test_what_is_needed_and_nothing_else() -> None:
    found = embed(TEXT, Path("f.py"), ["wanted"])
    assert found.imports == ("import math",)
    assert found.names == {"math", "TWO", "A", "B", "C", "LIMIT", "wanted", "helper"}
    assert "unused" not in found.text
    assert "# Why two.\nTWO = 2\n" in found.text
    assert "@staticmethod\ndef wanted" in found.text


def test_the_text_runs_on_its_own() -> None:
    found = embed(TEXT.replace("@staticmethod\n", ""), Path("f.py"), ["wanted"])
    space: dict[str, object] = {}
    exec("\n".join([*found.imports, found.text]), space)
    assert space["wanted"](5.5) == 13     # type: ignore[operator]


def test_imports_a_leaderboard_lacks_are_refused_only_if_needed() -> None:
    with pytest.raises(EmbedError, match=r"f\.py:5: numpy is not there on a leaderboard"):
        embed(TEXT, Path("f.py"), ["unused"])
    with pytest.raises(EmbedError, match=r"f\.py:1: \.near"):
        embed("from .near import x\ny = x\n", Path("f.py"), ["y"])


def test_errors_have_a_place() -> None:
    with pytest.raises(EmbedError, match=r"f\.py:1: defines no gone, lost"):
        embed(TEXT, Path("f.py"), ["gone", "wanted", "lost"])
    with pytest.raises(EmbedError, match=r"f\.py:2: "):
        embed("x = 1\ndef (", Path("f.py"), ["x"])


@given(st.text(st.sampled_from("defabimport =:()\n#\"'\\ \x00,@."), max_size=60))
def test_any_text_is_embedded_or_refused(text: str) -> None:
    try:
        found = embed(text, Path("f.py"), ["a"])
    except EmbedError:
        return
    assert "a" in found.names


