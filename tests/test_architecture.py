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
# Folders and files of scoring that import less than their package may: which of ours, and which third parties. The
# worker's side runs in whatever container has torch; what shows and keeps results reads records and nothing that makes
# them; records and the dialect are read by anything.
NARROW = {
    "scoring/worker": ({"scoring.ipc", "scoring.worker"}, {"torch"}),
    "scoring/ipc": ({"scoring.ipc"}, {"torch"}),
    "scoring/sandbox/bootstrap.py": ({"scoring.sandbox.landlock"}, set()),
    "scoring/sandbox/landlock.py": (set(), set()),
    "scoring/output": ({"scoring.output", "scoring.record", "scoring.store"}, {"jinja2", "tabulate"}),
    "scoring/store": ({"scoring.record", "scoring.store"}, set()),
    "scoring/record.py": (set(), set()),
    "scoring/popcorn": ({"scoring.popcorn", "scoring.record"}, {"yaml"}),
}
# The folders of scoring from bottom to top: a module imports from its own folder and from those before it, also in
# functions and for type checkers.
LAYERS = ("record", "ipc", "sandbox", "popcorn", "store", "worker", "output", "entry_points",
          "problem", "diagnosis", "judge", "config",
          "run", "remote", "serve", "cli", "verbs", "api", "far", "__main__")
# Folders of the emulators, and those whose headers each may include.
EMULATOR = {
    "core": {"core"},
    "ptx": {"core", "ptx"},
    "cuda": {"core", "ptx", "cuda"},
    "loader": {"core", "loader"},
    "gfx942": {"core", "loader", "gfx942"},
    "hip": {"core", "loader", "gfx942", "hip", "include"},
}
# Packages of the contest server: nobody else may need them.
OF_THE_SERVER = {"alembic", "fastapi", "psycopg", "sqlalchemy", "starlette", "uvicorn"}
# Where torch is imported with the module: memory and numbers. Elsewhere it is imported in functions, or not at all.
TORCH_AT_IMPORT = ("scoring/diagnosis/", "scoring/ipc/", "scoring/judge/", "scoring/worker/")


# What runs only where everything is installed, and packages that are asked for and not needed.
HERE_ALONE = ("scoring/config/", "scoring/verbs/schema.py", "scoring/output/html.py", "scoring/run/progress.py",
              "scoring/verbs/completion.py", "scoring/serve/")
ELSEWHERE = {"cuda", "hip", "optuna", "pynvml", "ray", "zstandard"}


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


def imports(path: Path, top_only: bool = False, typing: bool = False) -> set[str]:
    """Dotted names of all modules a file imports while it runs; ``top_only`` leaves out those inside functions,
    ``typing`` adds those for type checkers."""
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
        if (typing_only and not typing) or (top_only and inside):
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def modules(names: set[str]) -> set[str]:
    """The modules of ours behind dotted names: ``scoring.record.Case`` is ``scoring.record``."""
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
    assert "scoring.record" in modules(imports(ROOT / "scoring/judge/score.py"))
    assert "scoring.judge.cases" not in modules(imports(ROOT / "scoring/judge/score.py", top_only=True))
    assert "scoring.judge.cases" in modules(imports(ROOT / "scoring/judge/score.py"))
    assert "scoring.judge.job" in modules(imports(ROOT / "scoring/judge/cases.py", typing=True))
    assert "pydantic" in third_party(imports(ROOT / "scoring/config/schema.py"))
    assert len(list(sources(*PACKAGES))) > 50


@pytest.mark.parametrize("name", NARROW)
def test_folders_that_run_elsewhere_need_little(name):
    allowed, packages = NARROW[name]
    found = {path: imports(path) for path in sources("scoring") if name_of(path).startswith(name)}
    assert found
    wrong = [f"{name_of(path)} imports {module}" for path, names in found.items() for module in modules(ours(names))
             if module not in ("scoring", "scoring.sandbox") and not any(
                 module == each or module.startswith(f"{each}.") for each in allowed)]
    wrong += [f"{name_of(path)} imports {extra}" for path, names in found.items()
              for extra in third_party(names) - packages]
    assert not wrong, "\n".join(wrong)


def folder_of(module: str) -> str:
    """``judge`` of ``scoring.judge.score``, ``record`` of ``scoring.record``."""
    return module.split(".")[1]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_module_of_scoring_imports_a_folder_above_its_own():
    edges = [(name, module) for path in sources("scoring") if (name := dotted(path)) != "scoring"
             for module in modules(ours(imports(path, typing=True))) if module.startswith("scoring.")]
    assert {folder_of(name) for name, _module in edges} <= set(LAYERS), "a folder that the list lacks"
    wrong = [f"{name} imports {module}" for name, module in edges
             if LAYERS.index(folder_of(module)) > LAYERS.index(folder_of(name))]
    assert not wrong, "\n".join(wrong)
    assert len(edges) > 200


@pytest.mark.parametrize("folder", EMULATOR)
def test_emulators_share_what_is_in_core_alone(folder):
    root = ROOT / "backends" / "emulator"
    files = [path for path in (root / folder).rglob("*") if path.suffix in (".h", ".cpp")]
    included = {(path, header) for path in files
                for header in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)}
    wrong = []
    for path, header in included:
        place = next(each for each in (path.parent / header, root / header) if each.is_file())
        if place.resolve().relative_to(root).parts[0] not in EMULATOR[folder]:
            wrong.append(f"{name_of(path)} includes {header}")
    assert included
    assert not wrong, "\n".join(wrong)
    assert not [each.name for each in root.iterdir() if each.suffix in (".h", ".cpp")], "none stands beside the folders"


@pytest.mark.parametrize("package", ["backends", "scoring", "submissions"])
def test_no_modules_import_one_another_in_a_circle(package):
    graph = {dotted(path): {module for module in modules(ours(imports(path, typing=True)))
                            if module.startswith(f"{package}.") and module != dotted(path)}
             for path in sources(package) if path.name != "__init__.py"}
    assert circle(graph) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def circle(graph: dict[str, set[str]]) -> list[str]:
    """What is left once everything that imports nothing else, or that nothing else imports, is taken away."""
    left = {name: found & set(graph) for name, found in graph.items()}
    while bare := [name for name, found in left.items()
                   if not found or not any(name in others for others in left.values())]:
        left = {name: found - set(bare) for name, found in left.items() if name not in bare}
    return sorted(left)


def test_backends_import_the_standard_library_alone():
    wrong = [f"{name_of(path)}: {sorted(extra)}" for path in sources("backends")
             if (extra := third_party(imports(path, top_only=True)))]
    assert not wrong


def test_torch_is_imported_where_it_is_needed_and_else_in_functions():
    at_import = {name_of(path) for path in sources("backends", "scoring", "submissions")
                 if "torch" in third_party(imports(path, top_only=True))}
    assert not [name for name in at_import if not name.startswith(TORCH_AT_IMPORT)]
    assert at_import


def test_a_run_needs_no_package_but_those_that_a_bundle_carries():
    """A machine that runs a bundle has Python and torch."""
    from scoring.remote.bundle import CARRIED

    may = {"torch", *CARRIED, *ELSEWHERE}
    wrong = [f"{name_of(path)} imports {extra}" for path in sources("backends", "scoring")
             for extra in third_party(imports(path)) - may if not name_of(path).startswith(HERE_ALONE)]
    assert not wrong, "\n".join(wrong)


def test_the_core_runs_without_the_server():
    """Its folder is imported by its verb alone, in functions, and its packages by nobody else."""
    others = [path for path in sources("backends", "scoring", "submissions")
              if not name_of(path).startswith("scoring/serve/")]
    wrong = [name_of(path) for path in others if third_party(imports(path)) & OF_THE_SERVER]
    wrong += [name_of(path) for path in others if name_of(path) != "scoring/verbs/serve.py"
              and any(module.startswith("scoring.serve") for module in modules(ours(imports(path))))]
    assert not wrong
    verb = ROOT / "scoring/verbs/serve.py"
    assert not any(module.startswith("scoring.serve") for module in modules(ours(imports(verb, top_only=True))))
    assert "scoring.serve.server" in modules(ours(imports(verb)))


def test_nobody_imports_tests():
    assert not [name_of(path) for path in sources("backends", "scoring", "submissions", "tools", "benchmarks")
                if any(name.split(".")[0] == "tests" for name in imports(path))]


# Files ---------------------------------------------------------------------------------------------------------------

SOURCES = (".py", ".yml", ".yaml", ".cu", ".hip", ".cpp", ".h", ".c", ".sh", ".sql", ".j2")
FOLDERS = ("backends", "scoring", "submissions", "kernels", "problems", "tests", "tools", "benchmarks", "examples",
           "workbench")
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
    roots = (ROOT, ROOT / "workbench")
    files = [path for root in roots for path in (root / "kernels").rglob("*") if path.is_file() and path != home]
    files += [path for root in roots for path in (root / "problems").rglob("kernel.h")]
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
    problems = [path.parent for root in (ROOT, ROOT / "workbench") for path in (root / "problems").glob("*/task.yml")]
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
    """The best of several runs, in seconds of this process's own children: others may use the machine as well. Where
    Python itself starts slowly, the limit is eight times that start; torch takes forty."""
    bare = best = float("inf")
    for _ in range(12):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import argparse, dataclasses, typing, yaml"], check=True)
        bare = min(bare, time.perf_counter() - started)
        before, started = os.times(), time.perf_counter()
        subprocess.run([sys.executable, "-m", "scoring", *arguments], cwd=ROOT, capture_output=True, check=True)
        wall = time.perf_counter() - started
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best, wall, max(cpu, 0.01))
        if best < limit:
            break
    assert best < max(limit, 8 * bare)
