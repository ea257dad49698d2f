# SPDX-License-Identifier: MIT
"""What ``inspect`` found, as one self-contained page: source beside machine code, linked line by line.

Names and texts come from files of others: the template engine escapes them, and the page allows itself no request and
no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scoring.output import html, inspection, units
from scoring.output.text import one_line, printable

MOST = 40_000          # instructions of a page: about 10 MB
_AROUND = 3            # lines of the source shown around one that has code
_SCRIPT = "inspection.js"

Read = Callable[[str], str | None]          # a source file's text by the name in the binary; None: not shown


def excess(document: Mapping[str, Any]) -> str:
    """Why a page of so many instructions is not made, with what to do; "" for a number that is."""
    count = sum(function["instructions"] for function in document["functions"])
    if count <= MOST:
        return ""
    functions = units.plural(len(document["functions"]), "function")
    return (f"{functions} with {count} instructions are more than the {MOST} that a page shows; --function REGEX "
            "chooses some of them")


def page(
    document: Mapping[str, Any], title: str, read: Read, texts: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    difference: Mapping[str, Any] | None = None,
) -> str:
    """The page of a document with code. ``texts`` holds lines of PTX or LLVM IR by title, ``difference`` two builds."""
    files = _Files(read)
    functions = [_function(each, files) for each in document["functions"]]
    stages = [{"title": name, "lines": [
        {"text": printable(line["text"], keep="\t"), "places": files.tokens(line["places"])} for line in lines]}
        for name, lines in (texts or {}).items()]
    environment = html.environment()
    script = environment.get_template(_SCRIPT).render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("inspection.html.j2").render(
        title=one_line(title), compiler=one_line(document["compiler"].partition(";")[0]), functions=functions,
        stages=stages, warnings=document["warnings"], units=_used(document), script=script, digest=digest,
        pairs=[_pair(pair) for pair in difference["functions"]] if difference else [],
        old=one_line(difference["old"]) if difference else "", new=one_line(difference["new"]) if difference else "")


def _used(document: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(unit for function in document["functions"] for unit in function["mix"]))


class _Files:
    """Source files by number, in the order they are met; those that cannot be read have no pane."""

    def __init__(self, read: Read):
        self._read = read
        self._numbers: dict[str, int] = {}
        self.texts: list[list[str] | None] = []

    def number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.texts)
            text = self._read(name)
            self.texts.append(None if text is None else text.splitlines())
        return self._numbers[name]

    def tokens(self, places: Sequence[Sequence[Any]]) -> str:
        """``2:120 0:35`` for the places of an instruction, innermost first."""
        return " ".join(f"{self.number(file)}:{line}" for file, line in places)

    def panes(self, code: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The lines of each readable file that ``code`` came from, with a few around them; gaps are None."""
        hit: dict[str, dict[int, int]] = {}
        for each in code:
            for file, line in each["places"]:
                lines = hit.setdefault(file, {})
                lines[line] = lines.get(line, 0) + 1
        found = []
        for file, lines in sorted(hit.items(), key=lambda item: -sum(item[1].values())):
            text = self.texts[self.number(file)]
            if text is not None:
                found.append({"name": one_line(file), "lines": list(_excerpt(text, lines, self.number(file)))})
        return found


def _excerpt(text: Sequence[str], hit: Mapping[int, int], number: int) -> Iterator[dict[str, Any] | None]:
    near = {other for line in hit for other in range(line - _AROUND, line + _AROUND + 1)}
    shown = sorted(line for line in near if 1 <= line <= len(text))
    before = shown[0] - 1 if shown else 0
    for line in shown:
        if line != before + 1:
            yield None
        before = line
        yield {"number": line, "text": printable(text[line - 1], keep="\t"), "count": hit.get(line, 0),
               "place": f"{number}:{line}" if line in hit else ""}


def _function(function: Mapping[str, Any], files: _Files) -> dict[str, Any]:
    code = function["code"]
    return {
        "name": one_line(function["name"]), "facts": ", ".join(inspection.facts(function)),
        "mix": bars(function["mix"]),
        "panes": files.panes(code), "blocks": _blocks(code, function["loops"], files),
        "loops": len(function["loops"]),
    }


def bars(mix: Mapping[str, int]) -> list[dict[str, Any]]:
    """One piece for each unit, its width in per cent of all."""
    total = sum(mix.values()) or 1
    return [{"unit": unit, "count": count, "width": f"{100 * count / total:.2f}"} for unit, count in mix.items()]


def _blocks(
    code: Sequence[Mapping[str, Any]], loops: Sequence[Mapping[str, Any]], files: _Files
) -> list[dict[str, Any]]:
    """The code as a flat list of instructions and of marks that open and close loops, which nest."""
    blocks: list[dict[str, Any]] = []
    open_ends: list[int] = []
    starts: dict[int, list[Mapping[str, Any]]] = {}
    for loop in sorted(loops, key=lambda loop: -loop["end"]):
        starts.setdefault(loop["start"], []).append(loop)
    before: Any = None
    for each in code:
        while open_ends and open_ends[-1] <= each["address"]:
            open_ends.pop()
            blocks.append({"kind": "close"})
        for loop in starts.get(each["address"], ()):
            if not open_ends or loop["end"] <= open_ends[-1]:
                open_ends.append(loop["end"])
                blocks.append({"kind": "open", "loop": loop, "mix": bars(loop["mix"])})
        place = each["places"][0] if each["places"] else None
        shown = f"{one_line(place[0]).rpartition('/')[2]}:{place[1]}" if place and place != before else ""
        before = place
        blocks.append({"kind": "code", "address": f"{each['address']:05x}", "text": one_line(each["text"]),
                       "unit": each["unit"], "places": files.tokens(each["places"]), "where": shown})
    return blocks + [{"kind": "close"}] * len(open_ends)


def _pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    old, new = inspection.numbers(pair["old"]), inspection.numbers(pair["new"])
    keys = list(dict.fromkeys([*old, *new]))
    return {
        "old": one_line(pair["old"]["name"]), "new": one_line(pair["new"]["name"]),
        "rows": [{"key": key, "old": old.get(key, "–"), "new": new.get(key, "–"), "same": old.get(key) == new.get(key)}
                 for key in keys],
        "old_mix": bars(pair["old"]["mix"]), "new_mix": bars(pair["new"]["mix"]),
        "lines": [{"kind": {"+": "plus", "-": "minus", "@": "at"}.get(line[:1], ""), "text": one_line(line[1:]),
                   "sign": line[:1]} for line in pair["diff"]],
    }
