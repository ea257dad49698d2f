# SPDX-License-Identifier: MIT
"""What the documents promise a reader: links lead somewhere, files and kernels named exist, commands parse."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, geometric_mean

import pytest

import backends
import submissions.__main__
from backends.source import KernelSource, kernels
from scoring import cli
from scoring.output import coverage
from scoring.problem import discover

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(path for folder in (".", "docs", "benchmarks", "examples/gpumode_task", "workbench")
                   for path in (ROOT / folder).glob("*.md"))
PROSE = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "workbench/README.md")),
         *sorted((ROOT / "docs").glob("*.md"))]
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
    roots = (ROOT, ROOT / "workbench")
    problems = set(discover(*(root / "problems" for root in roots)))
    known = {f"{path.parent.name}/{path.stem}" for root in roots for path in kernels(root)}
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


SCRIPT = re.compile(r"(?:benchmarks|workbench|tests|tools|examples)/[\w/]+\.(?:py|cu|hip)")


def test_scripts_that_are_called_exist() -> None:
    """Logs are evidence and name the scripts of their day: benchmarks/README.md says what does their work now."""
    table = (ROOT / "benchmarks" / "README.md").read_text().split("| earlier script | now |")[1]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    earlier = {f"benchmarks/dev/{name}" for row in rows for name in re.findall(r"`([\w.]+)`", row[0])}
    now = [path for row in rows for path in re.findall(r"`([\w/]+\.(?:py|cu|h))", row[1])]
    assert not [path for path in now if not ((ROOT / path).is_file() or (ROOT / "benchmarks" / path).is_file())]
    assert not [name for name in earlier if (ROOT / name).exists()]
    called = {(document, name) for document in DOCUMENTS for name in SCRIPT.findall(document.read_text())}
    assert len(called) > 5
    kept = {path.name for path in (ROOT / "benchmarks" / "tools").iterdir()}
    for document, name in called:
        is_log = document.parent.name == "benchmarks" and document.name != "README.md"
        moved = name in earlier or (name.startswith("benchmarks/dev/") and Path(name).name in kept)
        there = "/mine." in name or (ROOT / name).is_file() or (document.parent / name).is_file()
        assert there or (is_log and moved), f"{document.name}: {name}"


# Paths ----------------------------------------------------------------------------------------------------------------

NAMED = re.compile(
    r"`((?:backends|benchmarks|docs|examples|kernels|problems|scoring|submissions|tests|tools)/[\w./-]+)`")


@pytest.mark.parametrize("document", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_in_the_text_exist(document: Path) -> None:
    named = NAMED.findall(FENCED.sub("", document.read_text()))
    assert not [path for path in named if not (ROOT / path).exists() and "mine" not in path]


def test_where_to_look_leads_to_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().split("\n## Where to look\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    entries = [row for row in rows[1:] if not row[0].startswith("**")]
    places = {row[0]: re.findall(r"`([^`]+)`", row[-1]) for row in entries if len(row) == 2}
    assert len(places) == len(entries) >= 45
    assert not [concept for concept, paths in places.items() if not paths]
    assert not [path for paths in places.values() for path in paths if not (ROOT / path).exists()]


# Sentences ------------------------------------------------------------------------------------------------------------

MEAN_WORDS, MOST_WORDS, MOST_ENTRY_WORDS = 18, 40, 25
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
LIST_ITEM = re.compile(r"^\s*(?:[*-]|\d+\.) ")


def words(text: str) -> int:
    return sum(any(character.isalnum() for character in word) for word in text.split())


def sentences(text: str) -> list[str]:
    """A Markdown text's sentences, without code blocks, tables, headings and link targets. Inline code is one word."""
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]+`", "code", LINK.sub(r"\1", text))
    blocks: list[str] = [""]
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("|", "#")):
            blocks.append("")
        elif LIST_ITEM.match(line):
            blocks.append(LIST_ITEM.sub("", line))
        else:
            blocks[-1] += " " + line.strip()
    return [sentence for block in blocks for sentence in re.split(r"(?<=[.!?])[\"”)*]*\s+", block) if words(sentence)]


@pytest.mark.parametrize("document", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short(document: Path) -> None:
    found = sentences(document.read_text())
    long = [sentence.strip() for sentence in found if words(sentence) > MOST_WORDS]
    mean = sum(words(sentence) for sentence in found) / len(found)
    assert not long
    assert mean < MEAN_WORDS, f"{mean:.1f} words a sentence"


def test_changelog_entries_are_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) > 20
    assert not [line for line in lines if line.startswith(" ")], "an entry goes on in a second line"
    assert not [entry for entry in entries if sum(words(each) for each in sentences(entry)) > MOST_ENTRY_WORDS]


def test_sentences_are_counted_as_a_reader_does() -> None:
    text = ("# No\n\nOne two. Three\nfour ([five](six.md)).\n\n| A table. |\n* `a b c` seven!\n"
            "\n```\nNo.\n```\nAre 1.5 nine?")
    assert [words(sentence) for sentence in sentences(text)] == [2, 3, 2, 3]


def test_the_readme_has_the_table_of_list() -> None:
    """Which target has which kernel: README shows what ``python -m scoring list`` shows."""
    found = [(name, KernelSource.read(path, ROOT)) for name in backends.names()
             for path in kernels(ROOT, backends.get(name).language)]
    table = coverage.table(
        sorted(discover(ROOT / "problems")), [(name, s.problem, s.variant, s.arches) for name, s in found], "github")
    assert table in (ROOT / "README.md").read_text(), f"README.md should have:\n{table}"


# README's figures of races, from the logs -----------------------------------------------------------------------------

def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells below the last table of a log whose heading begins so."""
    lines = (ROOT / "benchmarks" / f"{page}.md").read_text().splitlines()
    start = max(number for number, line in enumerate(lines) if line.startswith(heading))
    body = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in body]


def times(cell: str) -> list[float]:
    """The numbers of a cell, without those in brackets; the middle of a range."""
    plain = re.sub(r"\([^)]*\)", "", cell).replace("*", "")
    found = re.findall(r"\d+(?:\.\d+)?(?:–\d+(?:\.\d+)?)?", plain)
    return [fmean(map(float, each.split("–"))) for each in found]


def ratios(page: str, heading: str, ours: int, *peers: int) -> list[tuple[str, float]]:
    """The row's name and the fastest peer's time over ours, of every time in every row."""
    found = []
    for row in rows_of(page, heading):
        others = [times(row[peer]) for peer in peers]
        for number, own in enumerate(times(row[ours])):
            known = [other[number] for other in others if number < len(other)]
            if known:
                found.append((row[0], min(known) / own))
    return found


def raced(page: str, heading: str) -> list[tuple[str, float]]:
    """The same of a table whose columns after the second are ratios already."""
    found = [(row[0], [float(cell) for cell in row[2:] if cell]) for row in rows_of(page, heading)]
    return [(name, min(cells)) for name, cells in found if cells]


FP8_DECODE = ratios("mla_decode_fp8", "| batch, heads, tokens | bf16 | bf16 before | version 5", 4, 1)
RACES = {
    "fp8_gemm](benchmarks/fp8_gemm.md), up to 128 tokens": raced("fp8_gemm", "| benchmark, 64 and 128 | µs |"),
    "fp8_gemm, 1024 tokens and more": raced("fp8_gemm", "| benchmark, 1024 to 6144 | µs |"),
    "[flash_attention]": raced("flash_attention", "| benchmark forward | µs |"),
    "[flash_attention_varlen]": raced("flash_attention_varlen", "| benchmark: sequences,"),
    "[flash_attention_fp8]": raced("flash_attention_fp8", "| case | µs | FA3 |"),
    "[flash_attention_bwd]": raced("flash_attention_bwd", "| benchmark backward | µs | FA3 |"),
    "[mla_decode]": raced("mla_decode", "| benchmark | µs | FlashMLA"),
    "[mla_decode_fp8]": FP8_DECODE,
    "[amd_fp8_mm]": raced("fp8_gemm", "| benchmark M×N×K | µs |"),
    "[amd_mla_decode]": raced("amd_mla_decode", "| benchmark tokens | µs |"),
}


@pytest.mark.parametrize("family", RACES)
def test_a_race_in_the_readme_is_that_of_its_log(family: str) -> None:
    """Rows, geometric mean and worst row, losses included."""
    lines = (ROOT / "README.md").read_text().splitlines()
    (row,) = [line for line in lines if line.startswith("| ") and family in line]
    told = row.split("|")[3].strip()
    values = [value for _name, value in RACES[family]]
    figures = f"{len(values)}: {geometric_mean(values):.2f}, {min(values):.2f}"
    if family == "[mla_decode_fp8]":
        few = [value for name, value in FP8_DECODE if ", 16, " in name]
        figures += f" ({len(few)} with 16 heads: {geometric_mean(few):.2f}, {min(few):.2f})"
    assert told == figures


def test_other_shapes_in_the_readme_are_those_of_the_page() -> None:
    kept = [f"{row[1]}: {row[2]}, {row[3]}" for row in rows_of("h200", "| family | rows | mean | worst | behind |")]
    told = [line.split("|")[4].strip() for line in (ROOT / "README.md").read_text().splitlines()
            if line.startswith("| ") and line.count("|") == 5 and re.search(r"\d: \d", line)]
    assert [re.sub(r" \(.*?\)", "", each) for each in told if each != "not raced"] == kept


DRAWN = {
    "fp8_gemm, drawn, up to 512 tokens": raced("fp8_gemm", "| drawn, up to 512 tokens | µs |"),
    "fp8_gemm, drawn, 513 to 16384 tokens": [
        r for table in ("drawn, more", "drawn for version 9") for r in raced("fp8_gemm", f"| {table} | µs |")],
    "flash_attention, drawn": raced("flash_attention", "| draw for version 7 | µs |"),
    "flash_attention_varlen, drawn": raced("flash_attention_varlen", "| drawn: sequences,"),
    "flash_attention_fp8, drawn": raced("flash_attention_fp8", "| drawn | µs |"),
    "flash_attention_bwd, drawn": raced("flash_attention_bwd", "| drawn backward | µs | FA3 |"),
    "mla_decode, drawn": raced("mla_decode", "| drawn | µs | FlashMLA"),
}


@pytest.mark.parametrize("family", DRAWN)
def test_drawn_rows_of_the_page_are_those_of_the_log(family: str) -> None:
    values = [value for _name, value in DRAWN[family]]
    (row,) = [row for row in rows_of("h200", "| family | rows | mean | worst | behind |") if row[0] == family]
    assert row[1:4] == [str(len(values)), f"{geometric_mean(values):.2f}", f"{min(values):.2f}"]
