# SPDX-License-Identifier: MIT
"""Extracts functions of a Python file as text, with everything in that file that they need. Pure.

So a packed file builds its arguments with the same lines of ``problems/<p>/binding.py`` as the scorer.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ALLOWED = {"torch"}     # besides the standard library: what every leaderboard has


class EmbedError(ValueError):
    """A function that cannot be used outside its file."""


@dataclass(frozen=True)
class Embedded:
    """Import lines and the text of the other definitions, in the order of the file, and all names they define."""

    imports: tuple[str, ...]
    text: str
    names: frozenset[str]


def embed(text: str, path: Path, wanted: Sequence[str]) -> Embedded:
    """The top-level definitions ``wanted`` of the Python ``text`` and, transitively, what they refer to.

    Raises ``EmbedError`` with file:line for a missing name, a syntax error, and an import of anything but torch and
    the standard library.
    """
    try:
        tree = ast.parse(text, str(path))
    except (SyntaxError, ValueError) as error:
        raise EmbedError(f"{path}:{getattr(error, 'lineno', 0) or 0}: {error}") from error
    definitions = {name: node for node in tree.body for name in _names(node)}
    missing = [name for name in wanted if name not in definitions]
    if missing:
        raise EmbedError(f"{path}:1: defines no {', '.join(missing)}")
    needed: set[str] = set()
    queue = list(wanted)
    while queue:
        name = queue.pop()
        if name in needed or name not in definitions:
            continue
        needed.add(name)
        queue += _references(definitions[name])
    nodes = [node for node in tree.body if needed.intersection(_names(node))]
    lines = text.splitlines()
    imports: list[tuple[ast.stmt, str]] = []
    blocks: list[tuple[ast.stmt, str]] = []
    for node in nodes:
        _check_import(node, path)
        (imports if isinstance(node, ast.Import | ast.ImportFrom) else blocks).append((node, _source(node, lines)))
    pairs = zip([(None, ""), *blocks], blocks, strict=False)
    body = "".join(_gap(before, node) + source for (before, _), (node, source) in pairs)
    names = frozenset(name for node in nodes for name in _names(node))
    return Embedded(tuple(source for _, source in imports), body, names)


def _gap(before: ast.stmt | None, node: ast.stmt) -> str:
    """Blank lines as PEP 8 asks for."""
    if before is None:
        return ""
    functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return "\n\n\n" if isinstance(node, functions) or isinstance(before, functions) else "\n"


def _names(node: ast.stmt) -> list[str]:
    """The names that a top-level statement defines."""
    match node:
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                return []
            return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        case ast.Assign():
            return [name for target in node.targets for name in _targets(target)]
        case ast.AnnAssign():
            return _targets(node.target)
    return []


def _targets(node: ast.expr) -> list[str]:
    match node:
        case ast.Name():
            return [node.id]
        case ast.Tuple() | ast.List():
            return [name for element in node.elts for name in _targets(element)]
    return []


def _references(node: ast.AST) -> Iterator[str]:
    return (child.id for child in ast.walk(node) if isinstance(child, ast.Name))


def _source(node: ast.stmt, lines: Sequence[str]) -> str:
    """The lines of a statement with its decorators and the comment right above it."""
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))]) - 1
    while first > 0 and lines[first - 1].startswith("#") and not lines[first - 1].startswith("#!"):
        first -= 1
    if any("SPDX-License-Identifier" in line for line in lines[first : node.lineno]):
        first = node.lineno - 1
    return "\n".join(line.rstrip() for line in lines[first : node.end_lineno])


def _check_import(node: ast.stmt, path: Path) -> None:
    modules: Iterable[str] = ()
    if isinstance(node, ast.Import):
        modules = (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        modules = (f"{'.' * node.level}{node.module or ''}",)
    for module in modules:
        root = module.partition(".")[0]
        if root not in _ALLOWED and root not in sys.stdlib_module_names:
            raise EmbedError(f"{path}:{node.lineno}: {module} is not there on a leaderboard; the functions that a "
                             "packed file needs may use torch and the standard library")
