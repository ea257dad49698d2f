# SPDX-License-Identifier: MIT
"""Faults planted in a copy of the kernels: all of them in one build for the host, one at a time chosen when it runs.

A check of the checks: what the host emulation cannot notice, no test that relies on it finds. Each fault runs in a fork
of one process, because most of them end by an abort.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernels.cuda.planting import pattern_of

ROOT = Path(__file__).resolve().parents[3]
NONE = "none"             # the name of the build's run without any fault
SECONDS = 60              # that one fault may take
_DECLARED = '#pragma once\nextern "C" { inline __attribute__((used)) int emulation_fault = 0; }\n'
Built = tuple[ctypes.CDLL, Callable[[str], None]]


@dataclass(frozen=True)
class Fault:
    """``text``, which stands ``times`` in the files of kernels/cuda that match ``files``, becomes ``damaged``.

    A space inside ``text`` matches a line break, too; a line break and what it indents match themselves.
    ``FAULT`` in ``damaged`` is true when this fault is on. Where that is not in it, both texts are whole statements.
    """

    files: str
    text: str
    damaged: str = ""
    times: int = 1

    def planted(self, number: int) -> str:
        statements = f"{{ if (FAULT) {{ {self.damaged} }} else {{ {self.text} }} }}"
        switched = self.damaged if "FAULT" in self.damaged else statements
        return switched.replace("FAULT", f"(emulation_fault == {number})")


def plant(folder: Path, faults: Mapping[str, Fault]) -> Path:
    """A copy of the kernels below ``folder`` with these faults, numbered from 1."""
    kernels = shutil.copytree(ROOT / "kernels", folder / "kernels")
    (kernels / "cuda/fault.h").write_text(_DECLARED)
    for number, fault in enumerate(faults.values(), 1):
        found = 0
        for path in (kernels / "cuda").glob(fault.files):
            source = path.read_text()
            damaged, count = pattern_of(fault.text).subn(lambda _: fault.planted(number), source)  # noqa: B023
            if count:
                found += count
                path.write_text('#include "fault.h"\n' + damaged)
        assert found == fault.times, f"{fault.text} stands {found} times in {fault.files}"
    return kernels


def choose(library: ctypes.CDLL, number: int) -> None:
    ctypes.c_int.in_dll(library, "emulation_fault").value = number


def outcomes(
    folder: Path, faults: Mapping[str, Fault], build: Callable[..., Built], argument: str | None = None,
) -> dict[str, str]:
    """What came of each fault, and of ``NONE``: passed, refused (by the check or the emulation), or how it ended.

    ``build`` is a function of a module: of ``argument`` if there is one, the planted kernels and a folder to build in
    it makes a library, and the check to run with the name of each fault.
    """
    plant(folder, faults)
    command = [sys.executable, "-m", "tests.kernels.cuda.faults", build.__module__, build.__name__, argument or "",
               str(folder), *faults]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _outcome(library: ctypes.CDLL, check: Callable[[str], None], number: int, name: str) -> str:
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        status = 2
        try:
            choose(library, number)
            check(name)
            status = 0
        except AssertionError:
            status = 1
        except BaseException:  # noqa: BLE001  the child must end here, whatever it was
            traceback.print_exc()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "passed", 1: "refused", -signal.SIGABRT: "refused"}.get(status, f"ended with {status}")


def _main(module: str, build: str, argument: str, folder: str, *names: str) -> None:
    given = ([argument] if argument else []) + [Path(folder, "kernels"), Path(folder)]
    library, check = getattr(importlib.import_module(module), build)(*given)
    found: dict[str, Any] = {
        name: _outcome(library, check, number, name) for number, name in enumerate((NONE, *names))}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
