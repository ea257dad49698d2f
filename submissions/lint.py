# SPDX-License-Identifier: MIT
"""Reports what a leaderboard's server would refuse in a submission. Reads the file, never runs it.

Errors are things that the server (or popcorn-cli) refuses or that cannot work. Warnings are things that it ignores or
misreads.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import backends
from backends.errors import Diagnostic
from scoring.entry_points import USUAL
from scoring.popcorn.directives import (
    BANNED,
    EXTENSIONS,
    MAX_SUBMISSION_BYTES,
    cli_directives,
    not_text,
    server_directives,
)
from scoring.popcorn.labels import LEADERBOARDS
from scoring.record import ExitCode

# Instructions of sm_90a only: if no flag names that architecture, torch asks for sm_90 and ptxas refuses them.
_HOPPER_ONLY = re.compile(r"wgmma\.|setmaxnreg\.|\bsm_90a\b")
_NAMES_ARCH = re.compile(r"-gencode|-arch|--gpu-architecture|--generate-code|--offload-arch")
_BUILDERS = {"load_inline", "load"}
_MAX_PER_RULE = 20       # a repeated finding adds nothing


def lint(
    data: bytes, name: str, leaderboard: str | None = None, gpus: Sequence[str] = (),
    boards: Mapping[str, Sequence[str]] = LEADERBOARDS, functions: Sequence[str] = (),
) -> list[Diagnostic]:
    """All findings about the file ``data`` called ``name``, by line.

    ``leaderboard`` and ``gpus`` are the command line's; they override the header, as on the server.
    ``boards``: the GPUs of each known leaderboard; an unknown one may have any GPU. ``functions``: what the task calls;
    none if the task is not known.
    """
    def found(line: int, severity: str, message: str) -> Diagnostic:
        return Diagnostic(name, line, severity, message)

    findings = []
    if Path(name).suffix not in EXTENSIONS:
        findings.append(found(0, "error", f"the extension must be one of {' '.join(EXTENSIONS)}"))
    if len(data) > MAX_SUBMISSION_BYTES:
        findings.append(found(0, "error", f"{len(data)} bytes; the limit is {MAX_SUBMISSION_BYTES}"))
    if wrong := not_text(data):
        return [*findings, found(wrong[0], "error", wrong[1])]
    text = data.decode()
    if not text.strip():
        return [*findings, found(0, "error", "the file is empty")]
    findings += [found(*rule) for rule in _banned(text)]
    findings += [found(*rule) for rule in _header(text, leaderboard, gpus, boards)]
    if Path(name).suffix == ".py":
        findings += [found(*rule) for rule in _python(text, _backends(text, gpus))]
        board = leaderboard or server_directives(text).leaderboard
        findings += [found(*rule) for rule in _functions(text, functions, board in boards)]
    return sorted(findings, key=lambda item: (item.line, item.severity, item.message))


def exit_code(findings: Sequence[Diagnostic]) -> ExitCode:
    """OK unless there is an error; warnings do not fail."""
    return ExitCode.FAILED if any(item.severity == "error" for item in findings) else ExitCode.OK


def to_json(findings: Sequence[Diagnostic]) -> str:
    """One JSON list of objects with file, line, severity, message."""
    return json.dumps([vars(item) for item in findings], indent=1)


_Rule = tuple[int, str, str]     # line, severity, message


def _banned(text: str) -> Iterator[_Rule]:
    hits = [number for number, line in enumerate(text.split("\n"), 1) if BANNED in line.lower()]
    for number in hits[:_MAX_PER_RULE]:
        yield number, "error", f"the letters {BANNED!r}: the server refuses them anywhere, comments included"
    if len(hits) > _MAX_PER_RULE:
        yield hits[_MAX_PER_RULE], "error", f"the letters {BANNED!r} on {len(hits) - _MAX_PER_RULE} more lines"


def _header(
    text: str, leaderboard: str | None, gpus: Sequence[str], boards: Mapping[str, Sequence[str]]
) -> Iterator[_Rule]:
    server, cli = server_directives(text), cli_directives(text)
    yield from ((line, "error", message) for line, message in server.errors[:_MAX_PER_RULE])
    board_line, gpu_line = server.lines.get("leaderboard", 0), server.lines.get("gpus", 0)
    board = leaderboard or server.leaderboard
    labels = tuple(gpus) or server.gpus
    if leaderboard and server.leaderboard and leaderboard != server.leaderboard:
        yield board_line, "error", f"the header says leaderboard {server.leaderboard}, the command {leaderboard}"
    if board is None:
        yield 0, "warning", "no leaderboard: add the line `#!POPCORN leaderboard NAME`, or give --leaderboard NAME"
    if not labels and (board is None or len(boards.get(board, ())) != 1):
        yield 0, "warning", "no GPU: add the line `#!POPCORN gpus LABEL`; only boards with one GPU have a default"
    for label in labels:
        yield from _label(label, board, 0 if gpus else gpu_line, boards)
    if not gpus:
        yield from ((line, "warning", message) for line, message in cli.errors)
    for key, ours, theirs in (("leaderboard", server.leaderboard, cli.leaderboard), ("gpus", server.gpus, cli.gpus)):
        if theirs and ours != theirs and not server.errors:
            words = theirs if isinstance(theirs, str) else " ".join(theirs)
            yield cli.lines[key], "warning", (
                f"popcorn-cli reads {key} {words} here, the server does not: it stops at the first line of code")


def _label(label: str, board: str | None, line: int, boards: Mapping[str, Sequence[str]]) -> Iterator[_Rule]:
    gpus = backends.labels()
    known = boards.get(board or "", tuple(gpus))
    if label in gpus and not gpus[label].official:
        yield line, "warning", f"{label} is a label for local runs; no leaderboard has it"
        return
    if label in known:
        return
    close = [other for other in known if other.lower() == label.lower()]
    where = f"leaderboard {board}" if board in boards else "any leaderboard known here"
    hint = f"; the case matters: {close[0]}" if close else f"; there are: {' '.join(known)}"
    yield line, "error" if close or board in boards else "warning", f"{label} is no GPU of {where}{hint}"


def _backends(text: str, gpus: Sequence[str]) -> set[str]:
    """The languages that the file targets, as far as its labels say."""
    known = backends.labels()
    labels = tuple(gpus) or server_directives(text).gpus
    return {known[label].backend for label in labels if label in known}


def _functions(text: str, wanted: Sequence[str], usual: bool) -> Iterator[_Rule]:
    """What the task calls and the file lacks. ``usual``: the leaderboard is known, and all of these call
    ``custom_kernel``; a task that nobody names may call something else."""
    try:
        tree = _parsed(text)
    except _NOT_PYTHON:
        return                          # ``_python`` tells
    defined = {name for node in tree.body for name in _defines(node)}
    empty = not any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ImportFrom) for node in ast.walk(tree))
    for name in wanted or ([USUAL] if usual or empty else []):
        if name not in defined:
            yield 0, "error", f"defines no {name}({'data' if name == USUAL else '…'}) at top level"
    if not wanted and not usual and not empty and USUAL not in defined:
        yield 0, "warning", (
            f"defines no {USUAL}(data) at top level, which most tasks call; --task FOLDER checks what this task calls")


_NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)


def _parsed(text: str) -> ast.Module:
    """Raises one of ``_NOT_PYTHON``."""
    with warnings.catch_warnings(action="ignore"):     # a leaderboard ignores odd escapes
        return ast.parse(text)


def _python(text: str, backends: set[str]) -> Iterator[_Rule]:
    try:
        tree = _parsed(text)
    except _NOT_PYTHON as error:
        yield getattr(error, "lineno", 0) or 0, "error", f"not Python: {getattr(error, 'msg', None) or error}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in _BUILDERS:
            yield from _build(node, text, tree, backends)


def _defines(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name for alias in node.names)
        case ast.Assign():
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If() | ast.Try() | ast.With():
            yield from (name for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)
                        for name in _defines(child))


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _build(node: ast.Call, text: str, tree: ast.Module, backends: set[str]) -> Iterator[_Rule]:
    """The architecture flags of one load_inline. torch adds none of its own if a flag contains the letters "arch"."""
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    spread = None in keywords           # **options: look at every string of the file instead
    if "cuda_sources" not in keywords and not spread and len(node.args) < 3:
        return                          # host code only
    place: ast.AST | None = tree if spread else _resolve(keywords.get("extra_cuda_cflags"), tree)
    flags = [] if place is None else [
        item.value for item in ast.walk(place)
        if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value.startswith("-")]
    names_arch = any(_NAMES_ARCH.match(flag) for flag in flags)
    hazard = next((flag for flag in flags if "arch" in flag), None)
    if hazard and not names_arch:
        yield node.lineno, "error", (
            f"{hazard!r} contains the letters 'arch', so torch names no architecture, and no other flag does")
    elif not names_arch and backends != {"rocm"} and backends != {"cpu"}:
        severity = "error" if _HOPPER_ONLY.search(text) else "warning"
        yield node.lineno, severity, (
            "no architecture among the flags: torch then builds for the GPU it sees, never for sm_90a; "
            "pass -gencode=arch=compute_90a,code=sm_90a (H100) in extra_cuda_cflags")
    if "rocm" in backends and "PYTORCH_ROCM_ARCH" not in text:
        yield node.lineno, "warning", (
            "PYTORCH_ROCM_ARCH is not set: on ROCm torch builds for every GPU it sees, whatever the flags say")


def _resolve(value: ast.expr | None, tree: ast.Module) -> ast.AST | None:
    """The expression that a name was assigned at top level; any other expression unchanged."""
    if isinstance(value, ast.Name):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(
                    isinstance(target, ast.Name) and target.id == value.id for target in node.targets):
                return node.value
    return value
