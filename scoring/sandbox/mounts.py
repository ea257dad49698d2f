# SPDX-License-Identifier: MIT
"""Which files a worker needs to see: the system's programs and libraries, its Python and torch, its own modules.

Everything else (the checkout, homes, databases, temporary folders) stays out of sight.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import py_compile
import site
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scoring.sandbox.policy import ROOT

# Where systems keep programs, libraries and toolchains. What is not there is left out.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
ETC = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
    "/etc/OpenCL", "/etc/debian_version", "/etc/os-release",
)
# Variables that name one folder, or several: toolchains and libraries that lie elsewhere.
FOLDERS = ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH")
SEARCHED = ("LD_LIBRARY_PATH", "PYTHONPATH", "LIBRARY_PATH", "CPATH")


def system(concealed: Sequence[Path], private: Sequence[Path], environment: Mapping[str, str]) -> list[Path]:
    """Folders and files a worker may read and run: all that are here, none twice, parents first.

    Nothing below a folder in ``concealed``, unless Python or torch lie there, or (but for ``private`` ones) a variable
    names it.
    """
    wanted = [part for name in SYSTEM for part in carve(Path(name), concealed)]
    wanted += [Path(name) for name in ETC]
    named = [environment[name] for name in FOLDERS if environment.get(name)]
    for name in SEARCHED:
        named += filter(None, environment.get(name, "").split(os.pathsep))
    for name in named:
        path = Path(name).absolute()
        shows = any(hidden.is_relative_to(path) for hidden in concealed)
        if path != Path("/") and not shows and not any(path.is_relative_to(hidden) for hidden in private):
            wanted.append(path)
    for path in interpreter():
        wanted += carve(path, [hidden for hidden in concealed if hidden != path])
    return outermost([path for path in wanted if path.exists()])


def devices_and_kernel() -> list[Path]:
    """What a worker may see of /sys: all but /sys/fs, where control groups tell of other judgements."""
    try:
        return sorted(path for path in Path("/sys").iterdir() if path.name != "fs")
    except OSError:
        return []


def interpreter() -> list[Path]:
    """Where this Python, its packages and torch lie, by the names they are known by and by their real ones."""
    found = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)]
    binary = Path(os.path.realpath(sys.executable))
    if binary.parent.name == "bin":
        found.append(binary.parent.parent)
    found += [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    if site.ENABLE_USER_SITE:
        found.append(Path(site.getusersitepackages()))
    for package in ("torch", "numpy", "triton"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found.append(Path(spec.origin).parent)
            found += [path for path in (Path(spec.origin).resolve().parent,) if path.name == package]
    every = [path for given in found for path in (given.absolute(), given.resolve())]
    return [path for path in dict.fromkeys(every) if path != Path("/")]


def carve(path: Path, concealed: Sequence[Path]) -> list[Path]:
    """``path`` without the folders in ``concealed``: itself, or those parts of it that hold none of them."""
    if path in concealed:
        return []
    if not any(hidden.is_relative_to(path) for hidden in concealed):
        return [path]
    try:
        parts = sorted(path.iterdir())
    except OSError:
        return []
    return [found for part in parts for found in carve(part, concealed)]


def outermost(paths: Iterable[Path]) -> list[Path]:
    """``paths`` without those that lie below another of them; parents come first."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: (len(path.parts), path)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


@functools.cache
def modules(*names: str) -> tuple[Path, ...]:
    """The files of ours that these modules consist of (run by ``-m``), all that they import, and their bytecode."""
    files: dict[Path, None] = {}
    waiting = [*names, *(f"{name}.__main__" for name in names)]      # what -m runs of a package
    while waiting:
        parts = waiting.pop().split(".")
        for end in range(1, len(parts) + 1):        # importing a.b.c runs a/__init__.py and a/b/__init__.py first
            for path in (ROOT.joinpath(*parts[:end]) / "__init__.py", ROOT.joinpath(*parts[:end]).with_suffix(".py")):
                if path.is_file() and path not in files:
                    files[path] = None
                    waiting += imported(path.read_text(encoding="utf-8"))
    return (*files, *(compiled for path in files if (compiled := _compiled(path)) is not None))


def imported(source: str) -> list[str]:
    """Dotted names a file imports while it runs: not those for type checkers alone."""
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.stmt | ast.Module | ast.excepthandler | ast.match_case):
            waiting += ast.iter_child_nodes(node)
    return found


def _compiled(path: Path) -> Path | None:
    """The bytecode of a module, made if need be: a worker can write none, and would compile at every start."""
    cached = Path(importlib.util.cache_from_source(str(path)))
    try:
        if not cached.is_file() or cached.stat().st_mtime < path.stat().st_mtime:
            py_compile.compile(str(path), quiet=2)
    except OSError:
        pass
    return cached if cached.is_file() else None
