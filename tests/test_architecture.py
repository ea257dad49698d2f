# SPDX-License-Identifier: MIT
"""What ``docs/architecture.md`` promises about the tree itself: who imports whom, what is data, what starts fast."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("backends", "scoring", "submissions", "tests")
STANDARD = sys.stdlib_module_names
# What a package of ours may import from the others. Data folders (problems, kernels) are imported by nobody by name.
MAY = {
    "backends": {"backends"},
    "scoring": {"backends", "scoring"},
    "submissions": {"backends", "scoring", "submissions"},
    "tests": set(PACKAGES),
}
# Modules of scoring that import less than their package may. None of ours, or only these; third parties likewise.
NARROW = {
    "scoring/model.py": (set(), set()),
    "scoring/wire.py": (set(), set()),
    "scoring/worker.py": ({"scoring.arena", "scoring.chain.library", "scoring.contestants", "scoring.emulation",
                           "scoring.chain.links", "scoring.wire"}, {"torch"}),
    "scoring/contestants.py": ({"scoring.arena", "scoring.chain.library", "scoring.emulation"}, {"torch"}),
    "scoring/chain/library.py": (set(), {"torch"}),
    "scoring/chain/links.py": ({"scoring.chain.library", "scoring.contestants"}, {"torch"}),
    "scoring/chain/calibration.py": ({"scoring.chain.library"}, set()),
    "scoring/emulation.py": (set(), set()),
    "scoring/arena.py": ({"scoring.device_memory"}, {"torch"}),
    "scoring/device_memory.py": (set(), {"torch"}),
    "scoring/sandbox/inside.py": ({"scoring.sandbox", "scoring.sandbox.landlock"}, set()),
    "scoring/sandbox/landlock.py": (set(), set()),
    "scoring/timing.py": ({"scoring.model"}, {"numpy"}),
    "scoring/popcorn.py": ({"scoring.model", "scoring.popcorn_cases", "scoring.popcorn_task"}, set()),
    "scoring/popcorn_cases.py": (set(), set()),
    "scoring/popcorn_task.py": ({"scoring.popcorn_cases", "scoring.yamltext"}, set()),
    "scoring/yamltext.py": (set(), {"yaml"}),
    "scoring/units.py": (set(), set()),
    "scoring/diagnosis/patterns.py": (set(), {"torch"}),
    "scoring/diagnosis/likeness.py": (set(), {"torch"}),
}
# Everything that shows results reads records and nothing that makes them.
SHOWS = ("render", "junit", "report", "charts", "store", "tables", "tuning", "units", "progress")
MAKES = {"scoring.judge", "scoring.referee", "scoring.caserun", "scoring.session", "scoring.worker", "scoring.arena",
         "scoring.layout", "scoring.chain.calibration", "scoring.chain.library", "scoring.chain.gate",
         "scoring.chain.links", "scoring.chain.rounds", "scoring.contestants", "scoring.emulation", "scoring.check",
         "scoring.diagnosis.explanation", "scoring.jobs", "scoring.builds", "scoring.plans", "backends"}
TORCH_AT_IMPORT = {  # the judge's and the worker's side of memory and numbers
    "scoring/arena.py", "scoring/caserun.py", "scoring/chain/library.py", "scoring/chain/gate.py",
    "scoring/chain/links.py", "scoring/layout.py", "scoring/referee.py", "scoring/worker.py", "scoring/audit.py",
    "scoring/contestants.py", "scoring/diagnosis/explanation.py", "scoring/diagnosis/likeness.py",
    "scoring/diagnosis/patterns.py", "scoring/diagnosis/suspects.py",
}


def sources(*folders: str) -> Iterator[Path]:
    """Python files of ours; test data are other people's files, or play them, as the red team's folders do, and what
    lies in folders of submissions/ was packed."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            others = (parts[:2] == ("tests", "redteam") and parts[3:]) or (parts[0] == "submissions" and parts[2:])
            if not {"data", "__pycache__"} & set(parts) and not others:
                yield path


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path, top_only: bool = False) -> set[str]:
    """Dotted names of all modules a file imports; ``top_only`` leaves out those inside functions and TYPE_CHECKING."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if typing_only or (top_only and inside):
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def modules(names: set[str]) -> set[str]:
    """The modules of ours behind dotted names: ``scoring.model.Case`` is ``scoring.model``."""
    found = set()
    for name in names:
        parts = name.split(".")
        while parts:
            path = ROOT.joinpath(*parts)
            if path.is_dir() or path.with_suffix(".py").is_file():
                break
            parts.pop()
        if parts:
            found.add(".".join(parts))
    return found


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] in (*PACKAGES, "problems", "kernels", "tools", "benchmarks")}


def third_party(names: set[str]) -> set[str]:
    heads = {name.split(".")[0] for name in names}
    return heads - STANDARD - set(PACKAGES) - {"__future__"}


# Who may import whom -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package):
    wrong = [
        f"{name_of(path)} imports {name}" for path in sources(package)
        for name in ours(imports(path)) if name.split(".")[0] not in MAY[package]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_checks_see_what_they_should():
    """They pass by finding nothing, so show that there is something to find."""
    assert "scoring.model" in modules(imports(ROOT / "scoring/judge.py"))
    assert "scoring.referee" not in modules(imports(ROOT / "scoring/judge.py", top_only=True))
    assert "scoring.referee" in modules(imports(ROOT / "scoring/judge.py"))
    assert "pydantic" in third_party(imports(ROOT / "scoring/settings.py"))
    assert len(list(sources(*PACKAGES))) > 50


@pytest.mark.parametrize("name", NARROW)
def test_modules_that_run_elsewhere_need_little(name):
    """``model`` and the dialect are read by anything; the worker runs in whatever container has torch."""
    allowed, packages = NARROW[name]
    found = imports(ROOT / name)
    assert modules(ours(found)) <= allowed | {"scoring"}
    assert {module for module in modules(ours(found)) if module != "scoring"} <= allowed
    assert third_party(found) <= packages


@pytest.mark.parametrize("name", SHOWS)
def test_what_shows_results_only_reads_records(name):
    path = ROOT / "scoring" / f"{name}.py"
    found = modules(ours(imports(path)))
    assert not {module for module in found if module in MAKES or module.split(".")[0] in MAKES}, name


def test_backends_import_the_standard_library_alone():
    wrong = [f"{name_of(path)}: {sorted(extra)}" for path in sources("backends")
             if (extra := third_party(imports(path, top_only=True)))]
    assert not wrong


def test_torch_is_imported_where_it_is_needed_and_else_in_functions():
    at_import = {name_of(path) for path in sources("backends", "scoring", "submissions")
                 if "torch" in third_party(imports(path, top_only=True))}
    assert at_import <= TORCH_AT_IMPORT


def test_nobody_imports_tests():
    assert not [name_of(path) for path in sources("backends", "scoring", "submissions", "tools", "benchmarks")
                if any(name.split(".")[0] == "tests" for name in imports(path))]


# Files ---------------------------------------------------------------------------------------------------------------

SOURCES = (".py", ".yml", ".yaml", ".cu", ".hip", ".cpp", ".h", ".c", ".sh", ".sql", ".j2")
FOLDERS = ("backends", "scoring", "submissions", "kernels", "problems", "tests", "tools", "benchmarks", "examples")
ROOT_FILES = ("Makefile", "config.yaml", ".ci/run")


def tracked() -> list[Path]:
    """Files git knows, or all of them where this is no checkout."""
    listed = subprocess.run(["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [path for path in paths if path.is_file() and "__pycache__" not in path.parts]


def test_every_source_file_names_its_licence_first():
    """``# SPDX-License-Identifier: MIT`` or its like, after a directive line that must come first itself."""
    wrong = []
    for path in [*tracked(), *(ROOT / name for name in ROOT_FILES)]:
        if path.suffix not in SOURCES and name_of(path) not in ROOT_FILES:
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
        first = [line for line in lines if not line.startswith(("#!", "//!"))][:1]
        line = first[0].strip() if first else ""
        if not re.fullmatch(r"(#|//|/\*|--|\{#) SPDX-License-Identifier: MIT( \*/| #\})?", line):
            wrong.append(name_of(path))
    assert not wrong, "\n".join(wrong)


def test_nothing_speaks_of_one_machine_or_of_a_package_index():
    words = re.compile("|".join((
        r"(?<![\w./-])/home/\w", "/" + r"root/\w", "py" + r"pi\.org", "python" + r"hosted\.", "index" + "-url")))
    files = [*tracked(), *(ROOT / name for name in ROOT_FILES), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"),
             *ROOT.glob("*.toml"), *ROOT.glob("*.txt")]
    wrong = [
        f"{name_of(path)}:{number}: {line.strip()}" for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if words.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_kernels_never_spell_the_word_that_leaderboards_refuse():
    letters = "st" + "ream"
    home = ROOT / "kernels" / "common" / "launch_queue.h"
    assert letters in home.read_text().lower(), "the one file that may spell it, and is never packed"
    files = [path for path in (ROOT / "kernels").rglob("*") if path.is_file() and path != home]
    files += (ROOT / "problems").rglob("kernel.h")
    wrong = [
        f"{name_of(path)}:{number}" for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if letters in line.lower()
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["kernels", "problems"])
def test_data_are_no_packages(folder):
    assert (ROOT / folder).is_dir()
    assert not list((ROOT / folder).rglob("__init__.py"))


def test_every_problem_has_all_its_files():
    problems = [path.parent for path in (ROOT / "problems").glob("*/task.yml")]
    assert len(problems) >= 4
    for problem in problems:
        for name in ("task.py", "reference.py", "kernel.h", "binding.py", "mutants.py"):
            assert (problem / name).is_file(), f"{problem.name}/{name}"


def test_every_module_says_what_it_is_for():
    wrong = [name_of(path) for path in sources("backends", "scoring", "submissions", "tools")
             if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not wrong


def test_nothing_is_left_for_later():
    words = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error", "X" + "XX")))
    wrong = [f"{name_of(path)}:{number}" for path in sources("backends", "scoring", "submissions", "tools", "problems")
             for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if words.search(line)]
    assert not wrong


# Starting ------------------------------------------------------------------------------------------------------------

LIGHT = [["--help"], ["run", "--help"], ["list"], ["list", "--json"], ["leaderboard"]]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_what_needs_no_torch_imports_none(arguments, tmp_path):
    code = ("import sys; from scoring.cli import main\n"
            "try: main(sys.argv[1:])\n"
            "except SystemExit: pass\n"
            "heavy = {'torch', 'numpy', 'triton', 'pandas'} & set(sys.modules)\n"
            "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)")
    environment = {**os.environ, "WARPWAVE_DB": str(tmp_path / "x.db")}
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, env=environment, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("arguments", "limit"), [(["--help"], 0.3), (["list"], 0.25)], ids=["help", "list"])
def test_what_needs_no_torch_answers_at_once(arguments, limit):
    """The best of several runs, in seconds of this process's own children: others may use the machine as well."""
    best = float("inf")
    for _ in range(12):
        before = os.times()
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "scoring", *arguments], cwd=ROOT, capture_output=True, check=True)
        wall = time.perf_counter() - started
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best, wall, max(cpu, 0.01))
        if best < limit:
            break
    assert best < limit
