# SPDX-License-Identifier: MIT
"""Which headers of the project a source file can see: the part of a binary's content address that is not its text.

The scan over-approximates on purpose. It follows every include it can read, also those in comments or in branches that
the preprocessor would skip, because a header too many costs one rebuild and a header too few a wrong binary. An include
whose name is a macro cannot be read, so then every file below the include folders counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from backends._header import without_comments

_CONTINUATION = re.compile(r"\\\r?\n")
_INCLUDE = re.compile(
    r"""^[ \t]*(?:\#|%:)[ \t]*(?:include(?:_next)?|import|embed)\b[ \t]*
        (?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>|(?P<computed>[^\s"<][^\n]*))""",
    re.MULTILINE | re.VERBOSE,
)
RESERVED = re.compile("_|HIP|CLANG", re.IGNORECASE)      # how macros begin that a system's header may ask for
_CONDITION = re.compile(r"(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b")
_DEFINED_BY_HIP = re.compile(r"defined\s*(?:\(\s*__HIP(?:CC)?__\s*\)|\s__HIP(?:CC)?__)")
_HAS_INCLUDE = re.compile(
    r"""__has_(?:include(?:_next)?|embed)\s*\(\s*(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)""")


def digest(source: Path, folders: Sequence[Path]) -> str:
    """SHA-256 (hex) over ``source`` and everything it can include through its own folder and ``folders``.

    It depends on the contents and on the names in the include lines, not on where the checkout lies.
    Raises ``OSError`` where a file cannot be read.
    """
    summary = hashlib.sha256()
    for label, content in closure(source, folders):
        content_hash = "missing" if content is None else hashlib.sha256(content).hexdigest()
        summary.update(f"{len(label)}:{label}={content_hash}\n".encode())
    return summary.hexdigest()


def headers(source: Path, folders: Sequence[Path]) -> list[Path]:
    """The files that ``source`` can include, without itself, in the order they are first seen."""
    return _walk(source, folders)[0][1:]


def leads_with(source: Path, folders: Sequence[Path], name: str) -> bool:
    """Whether ``source`` includes the system's header ``name`` before anything that could change what it means: a macro
    defined or undefined, but for a file's guard and this project's own, a pragma, an include that cannot be read. In a
    branch that is not known to be taken it does not; of all else all branches count."""
    return _leads(source, folders, name, set()) is True


def _leads(path: Path, folders: Sequence[Path], name: str, seen: set[Path]) -> bool | None:
    """None: neither that header nor anything that could change it."""
    seen.add(path.resolve())
    text = without_comments(_CONTINUATION.sub("", path.read_bytes().decode(errors="replace")))
    before, taken = "", list[bool]()        # by condition that the line stands in: is its branch known to be taken?
    for line in re.findall(r"^[ \t]*(?:#|%:)[ \t]*(.+?)[ \t]*$", text, re.MULTILINE):
        words = line.split(None, 2)
        ours = words[0] in ("define", "undef") and words[1:2] != [] and words[1].startswith("WARPWAVE_")
        guard = words[0] == "define" and before.split() == ["ifndef", *words[1:]] and not RESERVED.match(words[1])
        if guard:
            taken[-1:] = [True]
        if ours or guard:
            continue
        before = line
        if condition := _CONDITION.match(line):
            if condition[1].startswith("if"):
                taken.append(_of_hip(line))
            else:
                taken[-1:] = [] if condition[1] == "endif" else [False]
            continue
        if line.split() == ["pragma", "once"]:
            continue
        found = re.fullmatch(r'include[ \t]*(?:"([^"]+)"|<([^>]+)>)', line)
        if found is None:
            return False
        if found[2] == name:
            return all(taken)
        places = [path.parent, *folders] if found[1] else folders
        hit = next((file for place in places if (file := place / (found[1] or found[2])).is_file()), None)
        if hit is not None and hit.resolve() not in seen and (leads := _leads(hit, folders, name, seen)) is not None:
            return leads and all(taken)
    return None


def _of_hip(line: str) -> bool:
    """Whether the condition is true for every HIP source, by a macro of the compiler's."""
    words = line.split(None, 1)
    if words[0] == "ifdef":
        return words[1:] in (["__HIP__"], ["__HIPCC__"])
    if words[0] != "if" or "(" in re.sub(r"defined\s*\(\s*\w+\s*\)", "", line):     # what is in brackets is not read
        return False
    return any(_DEFINED_BY_HIP.fullmatch(each.strip()) for each in words[-1].split("||"))


def closure(source: Path, folders: Sequence[Path]) -> list[tuple[str, bytes | None]]:
    """(label, content) of ``source``, of all its headers and, with None, of the names that resolve to no file.

    A name is listed as missing since a file of that name, once it appears, would be included.
    """
    files, missing = _walk(source, folders)
    found: list[tuple[str, bytes | None]] = [(_label(path, source, folders), path.read_bytes()) for path in files]
    return found + [(name, None) for name in sorted(missing)]


def _walk(source: Path, folders: Sequence[Path]) -> tuple[list[Path], set[str]]:
    seen = {source.resolve(): source}
    queue = [source]
    missing: set[str] = set()

    def visit(path: Path) -> None:
        if path.resolve() not in seen:
            seen[path.resolve()] = path
            queue.append(path)

    while queue:
        path = queue.pop(0)
        quoted, angled, computed = _names(path.read_bytes().decode(errors="replace"))
        for name in sorted(quoted | angled):
            places = [path.parent, *folders] if name in quoted else list(folders)
            hits = [place / name for place in places if (place / name).is_file()]
            if not hits:
                missing.add(name)
            for hit in hits:   # all of them: which one wins depends on the includer and the form
                visit(hit)
        if computed:
            for folder in [path.parent, *folders]:
                for file in sorted(file for file in folder.rglob("*") if file.is_file()):
                    visit(file)
    return list(seen.values()), missing


def _names(text: str) -> tuple[set[str], set[str], bool]:
    """Names in quoted and in angled includes of ``text``, and whether any include is computed from a macro."""
    text = _CONTINUATION.sub("", text)
    matches = [match for version in (text, without_comments(text))
               for pattern in (_INCLUDE, _HAS_INCLUDE) for match in pattern.finditer(version)]
    groups = [match.groupdict() for match in matches]
    return (
        {group["quoted"] for group in groups if group["quoted"]},
        {group["angled"] for group in groups if group["angled"]},
        any(group.get("computed") for group in groups),
    )


def _label(path: Path, source: Path, folders: Sequence[Path]) -> str:
    for number, folder in enumerate([source.parent, *folders]):
        if path.is_relative_to(folder):
            return f"{number}/{path.relative_to(folder).as_posix()}"
    return path.name
