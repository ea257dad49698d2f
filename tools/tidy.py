# SPDX-License-Identifier: MIT
"""Check the C++ that runs on the host: the emulator, the judge's chain, the CPU kernels.

Each file goes through clang-tidy (.clang-tidy) with -Wall -Wextra. What the CPU backend compiles goes through its
compiler as well. A file that passed is not checked again until it, one of its headers or a tool changes, in no checkout
of this user: the folder ``tidy`` of the compilers' cache has an empty file for each.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from backends import _cache, cpu
from backends.emulator import build
from backends.errors import BackendError

ROOT = Path(__file__).resolve().parent.parent
KEPT_SECONDS = 30 * 24 * 3600.0
TIDY = Path(sysconfig.get_path("purelib")) / "clang_tidy" / "data" / "bin" / "clang-tidy"   # without its Python wrapper
CPU_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Unit:
    """A file, the folders of its own headers, what it is compiled with, and the commands that check it."""

    source: Path
    folders: tuple[Path, ...]
    commands: tuple[tuple[str, ...], ...]

    def key(self, common: bytes) -> str:
        """Changes with everything the result depends on but the system's own headers."""
        digest = hashlib.sha256(common + repr(self.commands).replace(f"{ROOT}/", "").encode())
        for path in [self.source, *sorted(header for folder in self.folders for header in folder.rglob("*.h"))]:
            digest.update(f"{path.relative_to(ROOT)}:{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return digest.hexdigest()


def units() -> list[Unit]:
    """Everything to check. Raises ``ToolchainMissing``."""
    headers = build.find().headers
    # The same findings on every machine; the C++ library here is not the one that the emulator is built with.
    flags = [*(flag for flag in build.FLAGS if flag != "-march=native"), "-Wno-deprecated-declarations"]
    found = [_unit(path, (build.ROOT,), (*flags, "-isystem", str(headers)))
             for path in sorted(build.ROOT.rglob("*.cpp"))]
    compiler = str(cpu.find_cxx().path)
    for path in sorted((*(ROOT / "kernels/cpu").glob("*/*.cpp"), *(ROOT / "workbench/kernels/cpu").glob("*/*.cpp"))):
        root = path.parents[3]
        folders = (root / "problems" / path.parent.name, ROOT / "kernels" / "common", ROOT / "kernels" / "cpu")
        found.append(_unit(path, folders, CPU_FLAGS, compiler))
    for path in sorted((ROOT / "scoring").rglob("*.cpp")):
        found.append(_unit(path, (path.parent, ROOT / "kernels" / "common"), CPU_FLAGS, compiler))
    return found


def _unit(source: Path, folders: tuple[Path, ...], flags: Sequence[str], compiler: str | None = None) -> Unit:
    name = str(source.relative_to(ROOT))
    words = (*flags, *(word for folder in folders for word in ("-I", str(folder.relative_to(ROOT)))))
    commands = [(str(TIDY), "--quiet", name, "--", *words)]
    if compiler is not None:
        commands.append((compiler, *words, "-fsyntax-only", name))
    return Unit(source, folders, tuple(commands))


def check(unit: Unit, stamp: Path) -> str:
    """What the tools say about a file, "" and a stamp if that is nothing."""
    for command in unit.commands:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode != 0:
            return done.stdout.strip() or done.stderr.strip() or f"{command[0]}: exit status {done.returncode}"
    stamp.touch()
    return ""


def report(findings: str) -> bool:
    """Print findings at once, in one piece; whether there are any."""
    if findings:
        sys.stdout.write(f"{findings}\n\n")
        sys.stdout.flush()
    return bool(findings)


def main() -> int:
    """Exit status: 0 clean, 1 findings, 2 a tool is missing."""
    try:
        todo = units()
        version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
        common = (ROOT / ".clang-tidy").read_bytes() + version
    except (BackendError, OSError) as error:
        print(f"tidy: {error}", file=sys.stderr)
        return 2
    passed = _cache.default_folder() / "tidy"
    passed.mkdir(parents=True, exist_ok=True)
    stamps = {unit: passed / unit.key(common) for unit in todo}
    left = [unit for unit, stamp in stamps.items() if not stamp.exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = sum(pool.map(lambda unit: report(check(unit, stamps[unit])), left))
    for stamp in passed.iterdir():
        if stamp.stat().st_mtime < time.time() - KEPT_SECONDS:
            stamp.unlink(missing_ok=True)
    print(f"tidy: {len(todo)} C++ files, {len(left)} checked now, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
