# SPDX-License-Identifier: MIT
"""Sweeps the HIP programs of a checkout: builds each folder that has a Makefile, runs its program on the emulated
MI300X with all checks, and prints a row per program.

``python benchmarks/tools/hip_programs.py CHECKOUT/HIP-Basic [NAME…]`` for ROCm/rocm-examples. ``--variable NAME=VALUE``
sets what the Makefiles of other collections call the compiler. Nothing of a checkout belongs into this repository.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from backends.emulator import build

SECONDS = 120


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="of programs; default: all")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    prefix = build.prefix(report=lambda line: print(line, file=sys.stderr))
    variables = [f"ROCM_INSTALL_DIR={prefix}", f"ROCM_PATH={prefix}", f"HIPCXX={prefix}/bin/hipcc",
                 f"HIPCC={prefix}/bin/hipcc", *options.variable]
    print("| program | result | seconds | findings |\n|---|---|---|---|")
    for makefile in sorted(options.folder.glob("*/Makefile")):
        if not options.names or makefile.parent.name in options.names:
            print(row(makefile.parent, variables), flush=True)
    return 0


def row(folder: Path, variables: list[str]) -> str:
    """One line of the table."""
    before = set(folder.iterdir())
    made = quietly(["make", "-B", "-C", str(folder), *variables])
    if made is None or made.returncode:
        log = "" if made is None else made.stdout
        why = re.search(r"warpwave-hipcc: .*|(?:fatal )?error: .*|\*\*\* .*", log)
        return f"| {folder.name} | does not build: {why[0][:120] if why else 'no reason given'} | – | – |"
    programs = [path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK) and
                path.read_bytes().startswith(b"\x7fELF") and (path not in before or not path.suffix)]
    if not programs:
        return f"| {folder.name} | makes no program | – | – |"
    started = time.monotonic()
    run = quietly([sys.executable, "-m", "backends", "emulate", "--json", "--", str(programs[0])], folder)
    seconds = time.monotonic() - started
    if run is None:
        return f"| {folder.name} | not done after {SECONDS} s | – | – |"
    try:
        found = json.loads(run.stdout[run.stdout.index("{\n"):])
    except ValueError:
        return f"| {folder.name} | {run.stdout.strip()[-100:]} | – | – |"
    findings = "; ".join(f"{each['check']} at {Path(each['file']).name}:{each['line']}" for each in found["findings"])
    said = re.search(r"warpwave emulator: (.*)", run.stderr)
    result = "right" if found["status"] == 0 else f"exit {found['status']}"
    return f"| {folder.name} | {result}{': ' + said[1][:120] if said else ''} | {seconds:.1f} | {findings or 'none'} |"


def quietly(words: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str] | None:
    """None: not done in time."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    try:
        both = subprocess.STDOUT if words[0] == "make" else subprocess.PIPE
        return subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=both, text=True,
                              errors="replace", timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    sys.exit(main())
