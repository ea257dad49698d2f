# SPDX-License-Identifier: MIT
"""Makes one translation unit from a kernel file and the project headers that it includes.

Quoted includes are replaced by the file, each once; system includes stay. ``#if`` lines that depend on the language or
on ``WARPWAVE_PACKED`` are decided here, so branches that are not taken do not appear. Comments stay, in ASCII.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from submissions.conditionals import Conditionals, Known

# The parts of C++ text in which '#' and quotes have no meaning. A quote after a digit or letter separates digits.
_SEGMENT = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<raw>(?<![A-Za-z0-9_])(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      | (?P<text>"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+')""",
    re.DOTALL | re.VERBOSE)
_DIRECTIVE = re.compile(r"\s*#\s*([a-z]+)\b\s*(.*)", re.DOTALL)
_QUOTED = re.compile(r'"([^"\n]+)"\s*')
_ANGLED = re.compile(r"<[^>\n]+>\s*")
_CONDITIONS = {"if", "ifdef", "ifndef", "elif", "else", "endif"}


class InlineError(ValueError):
    """A file that cannot be inlined; the message starts with file:line."""

    def __init__(self, path: Path, line: int, message: str):
        super().__init__(f"{path}:{line}: {message}")


@dataclass(frozen=True)
class Line:
    """A line of the result and where it comes from (1-based)."""

    text: str
    path: Path
    number: int


def inline(path: Path, folders: Sequence[Path], known: Known, root: Path) -> list[Line]:
    """All lines of ``path`` with its quoted includes inlined, looked up beside the including file and in ``folders``.

    Raises ``InlineError`` for an include that does not exist, is computed, or depends on a condition only the compiler
    knows (inlining each file once would then be wrong), and for non-ASCII text outside comments.
    """
    lines: list[Line] = []
    _Inliner(folders, known, root, lines).file(path)
    return lines


class _Inliner:
    def __init__(self, folders: Sequence[Path], known: Known, root: Path, lines: list[Line]):
        self.folders = folders
        self.known = known
        self.root = root
        self.lines = lines
        self.seen: set[Path] = set()

    def file(self, path: Path) -> None:
        self.seen.add(path.resolve())
        shown = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        text = _ascii(path.read_bytes().decode().replace("\r\n", "\n").rstrip(), shown)
        masked = _mask(text)
        conditions = Conditionals({**self.known, **_guard(masked)})
        plain, mask = text.split("\n"), masked.split("\n")
        end = 0
        while end < len(mask):
            first, end = end, end + 1
            is_directive = mask[first].lstrip().startswith("#")
            while is_directive and mask[end - 1].endswith("\\") and end < len(mask):
                end += 1
            lines = plain[first:end]
            if is_directive:
                logical = " ".join(line.removesuffix("\\").strip() for line in mask[first:end])
                lines = self.directive(logical, lines, conditions, path, Line("", shown, first + 1))
            elif not conditions.active:
                lines = []
            self.lines += [Line(line, shown, first + 1 + offset) for offset, line in enumerate(lines)]
        if conditions.groups:
            raise InlineError(shown, len(plain), "#if without #endif")

    def directive(
        self, logical: str, plain: list[str], conditions: Conditionals, path: Path, here: Line
    ) -> list[str]:
        """The lines to write for a directive: none, a rewritten one, or ``plain``, the lines as they are."""
        match = _DIRECTIVE.fullmatch(logical)
        word, rest = match.groups() if match else ("", "")
        if word in _CONDITIONS:
            try:
                written = conditions.directive(word, rest.strip())
            except ValueError as error:
                raise InlineError(here.path, here.number, str(error)) from None
            return [written] if written else []
        if not conditions.active or (word, rest.strip()) == ("pragma", "once"):
            return []
        if word == "include" and not _ANGLED.fullmatch(rest):
            quoted = _QUOTED.fullmatch(rest)
            if quoted is None:
                raise InlineError(here.path, here.number, f"a computed include cannot be packed: {rest.strip()}")
            self.include(quoted[1], conditions, path, here)
            return []
        return plain

    def include(self, name: str, conditions: Conditionals, path: Path, here: Line) -> None:
        places = [folder / name for folder in (path.parent, *self.folders)]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            tried = ", ".join(str(folder) for folder in (path.parent, *self.folders))
            raise InlineError(here.path, here.number, f'"{name}" is in none of: {tried}; a system header goes in <>')
        if conditions.undecided:
            raise InlineError(here.path, here.number, f'whether "{name}" is included, only the compiler can decide; '
                              "include it always, or let WARPWAVE_PACKED, __HIP__ or __CUDACC__ alone decide")
        if found.resolve() not in self.seen:
            shown = found.relative_to(self.root) if found.is_relative_to(self.root) else found
            self.lines += [Line(text, here.path, here.number) for text in ("", f"// ==== {shown.as_posix()}")]
            self.file(found)


def _ascii(text: str, shown: Path) -> str:
    """``text`` with the comments in ASCII, character by character so that nothing moves."""
    parts, end = [], 0
    for match in _SEGMENT.finditer(text):
        parts.append(text[end : match.start()])
        segment = match[0]
        parts.append("".join(map(_plain, segment)) if match["comment"] else segment)
        end = match.end()
    result = "".join(parts) + text[end:]
    for number, line in enumerate(result.split("\n"), 1):
        if not line.isascii():
            raise InlineError(shown, number, "a character that is not ASCII, outside a comment")
    return result


def _plain(char: str) -> str:
    if char.isascii():
        return char
    known = {"×": "x", "µ": "u", "μ": "u", "·": "*", "–": "-", "—": "-", "−": "-", "≤": "<", "≥": ">", "→": ">"}
    base = unicodedata.normalize("NFKD", known.get(char, char))[:1]
    return base if base.isascii() else "?"


def _mask(text: str) -> str:
    """``text`` with comments and raw strings blanked; every line keeps its length."""
    def blank(match: re.Match[str]) -> str:
        if match["text"]:
            return match[0]
        return re.sub(r"[^\n]", " " if match["comment"] else "x", match[0])

    return _SEGMENT.sub(blank, text)


def _guard(masked: str) -> dict[str, bool]:
    """The macro of a classic include guard, as undefined: every file is inlined once, so the guard always opens."""
    directives = [line.split() for line in re.sub(r"#\s+", "#", masked).split("\n") if line.strip()]
    if len(directives) > 1 and directives[0][:1] == ["#ifndef"] and directives[1][:2] == ["#define", directives[0][-1]]:
        return {directives[0][-1]: False}
    return {}
