# SPDX-License-Identifier: MIT
"""The documented table of instructions is that of the library."""

from __future__ import annotations

from pathlib import Path

from backends.emulator import build, instructions

ROOT = Path(__file__).parents[2]


def test_the_documentation_lists_what_the_library_executes() -> None:
    written = (ROOT / "docs" / "emulator_instructions.md").read_text()
    assert written == instructions.markdown(instructions.known(build.library())), (
        "python -m backends.emulator --instructions > docs/emulator_instructions.md")


def test_every_format_has_a_title() -> None:
    rows = instructions.known(build.library())
    assert {row["formats"][0] for row in rows} == set(instructions.FORMATS)
