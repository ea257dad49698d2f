# SPDX-License-Identifier: MIT
"""Drawing tables as text: columns, the space they may take, colours, Markdown. The only user of tabulate.

Cells come in printable (``output.units``); here they are aligned, coloured or escaped for the format, never wrapped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from scoring.record import Status

WIDTH = 160                            # columns a table may take before it gives up detail
_NARROWEST = 72                        # a terminal narrower than that gets tables as for this one
NOT_RUN = (Status.UNAVAILABLE,)
UNDECIDED = (*NOT_RUN, Status.INCOMPLETE)      # neither passed nor failed
_COLORS = {"good": "32", "bad": "31", "strong": "1", "warn": "33"}


@dataclass(frozen=True)
class Column:
    """One table column: header, cells and side. Of ``optional`` ones the highest goes first when space is short."""

    header: str
    cells: Sequence[str]
    right: bool = True
    optional: int = 0

    @property
    def width(self) -> int:
        return max(map(len, (self.header, *self.cells)))


@dataclass(frozen=True)
class Style:
    """How to write: the table format (``simple``, ``github`` or any other of tabulate's), colours, the width, and
    whether to say more than usual."""

    fmt: str = "simple"
    color: bool = False
    width: int = WIDTH
    verbose: bool = False

    @property
    def is_markdown(self) -> bool:
        return self.fmt in ("github", "pipe")

    def paint(self, kind: str, text: str) -> str:
        return f"\x1b[{_COLORS[kind]}m{text}\x1b[0m" if self.color and text and kind in _COLORS else text

    def heading(self, text: str) -> str:
        return f"#### {markdown(text)}\n" if self.is_markdown else self.paint("strong", text)

    def block(self, lines: Iterable[str]) -> str:
        """Preformatted lines; in Markdown inside a fence longer than any in the text."""
        text = "\n".join(lines)
        if not self.is_markdown:
            return text
        fence = "```"
        while fence in text:
            fence += "`"
        return f"{fence}\n{text}\n{fence}"


def use_color(file: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``file`` should get colours: NO_COLOR wins, then FORCE_COLOR, then a terminal that is not dumb."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return environ.get("TERM") != "dumb" and file.isatty()


def width_of(file: TextIO) -> int:
    """Columns that a table written to ``file`` may take: COLUMNS, else a terminal's own, which would wrap the rest."""
    asked = os.environ.get("COLUMNS", "")
    if not file.isatty() and not asked.isdecimal():
        return WIDTH
    return min(WIDTH, max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns))


def draw(columns: Sequence[Column], style: Style) -> str:
    """The table, without columns that are empty throughout or that do not fit."""
    kept = [column for column in columns if any(column.cells)]
    dropped = []
    while total_width(kept) > style.width and (optional := [column for column in kept if column.optional]):
        victim = max(optional, key=lambda column: column.optional)
        kept.remove(victim)
        dropped.append(victim.header)
    if style.is_markdown:
        kept = [Column(markdown(c.header), [markdown(cell) for cell in c.cells], c.right) for c in kept]
    else:
        kept = [Column(c.header, [_colored(cell, style) for cell in c.cells], c.right) for c in kept]
    gap = "\n\n" if style.is_markdown else "\n"                   # else the note would be one more row
    note = f"{gap}({', '.join(dropped)} left out: see --json or the report)" if dropped else ""
    return grid(kept, style.fmt) + note


def total_width(columns: Sequence[Column]) -> int:
    """Characters a line of the table takes, columns that are empty throughout left out."""
    shown = [column.width for column in columns if any(column.cells)]
    return sum(shown) + 2 * max(0, len(shown) - 1)


def _colored(cell: str, style: Style) -> str:
    first = cell.split(":")[0].split(" ")[0]
    if first not in Status.__members__:
        return cell
    return style.paint("good" if first == Status.PASSED else "warn" if first in UNDECIDED else "bad", cell)


def grid(columns: Sequence[Column], fmt: str = "simple") -> str:
    """The project's one call of tabulate. Raises ``ValueError`` for a format it does not know."""
    import tabulate

    if fmt not in tabulate.tabulate_formats:
        raise ValueError(f"unknown table format {fmt!r}; there are: {', '.join(tabulate.tabulate_formats)}")
    tabulate.MIN_PADDING = 0          # else headers are two wider than their column needs
    return tabulate.tabulate(
        list(zip(*(column.cells for column in columns), strict=True)), [column.header for column in columns],
        tablefmt=fmt, disable_numparse=True, colalign=["right" if column.right else "left" for column in columns])


def shorten(text: str, width: int) -> str:
    """``text`` cut in its middle to ``width`` characters: mangled names differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head):]}"


def markdown(text: str) -> str:
    """``text`` with what Markdown would interpret escaped, on one line: for cells and headings."""
    for char in "\\`*[]|":
        text = text.replace(char, f"\\{char}")
    return text.replace("<", "&lt;").replace("\n", " ")
