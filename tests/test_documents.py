# SPDX-License-Identifier: MIT
"""What the documents promise a reader: links lead somewhere, files and kernels named exist, commands parse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import submissions.__main__
from backends.source import kernels
from scoring import cli
from scoring.problem import discover

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(path for folder in (".", "docs", "benchmarks", "examples/gpumode_task")
                   for path in (ROOT / folder).glob("*.md"))
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PLACEHOLDERS = ("<", "…", "FOLDER", "NAME", "/mine", "submission.py")       # what a reader puts something else for


def anchors(document: Path) -> set[str]:
    """The names that GitHub gives a document's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", FENCED.sub("", document.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        found.add(next(each for n in range(99) if (each := f"{name}-{n}" if n else name) not in found))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", document.read_text())):
        place, _, anchor = link.partition("#")
        if link.startswith("https://"):
            continue
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert not lost


def commands(module: str) -> Iterator[tuple[str, list[str]]]:
    """Every line of a fenced block that calls ``python -m <module>``: the line, and its words behind that."""
    for document in DOCUMENTS:
        for block in FENCED.findall(document.read_text()):
            for line in block.splitlines():
                if found := re.match(rf"(?:\$ )?python -m {re.escape(module)} (.+)", line.split(" #")[0].rstrip(" \\")):
                    yield f"{document.name}: {line}", shlex.split(found[1])


@pytest.mark.parametrize(("module", "least"), [("scoring", 20), ("submissions", 6)])
def test_commands_parse_and_name_what_there_is(module: str, least: int, capsys: pytest.CaptureFixture[str]) -> None:
    parser = cli.parser() if module == "scoring" else submissions.__main__._parser()
    problems = {path.name for path in discover(ROOT / "problems").values()}
    known = {f"{path.parent.name}/{path.stem}" for path in kernels(ROOT)}
    seen = 0
    for line, words in commands(module):
        seen += 1
        if any("…" in word for word in words):
            continue
        try:
            options = parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"{line}\n{capsys.readouterr().err}")
        if any(mark in line for mark in PLACEHOLDERS) or "--config" in words:
            continue
        assert set(getattr(options, "problem", None) or ()) <= problems or module != "scoring", line
        named = {name for name in getattr(options, "kernel", None) or () if "*" not in name}
        assert named <= known or module != "scoring", line
    assert seen >= least, "the pattern no longer finds what the documents have"


def test_scripts_that_are_called_exist() -> None:
    called = {name for document in DOCUMENTS
              for name in re.findall(r"python ((?:benchmarks|tests|tools|examples)/[\w/]+\.py)", document.read_text())}
    assert len(called) > 5
    assert not [name for name in called if not (ROOT / name).is_file()]
