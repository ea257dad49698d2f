# SPDX-License-Identifier: MIT
"""Faults planted in a copy of the kernels: all of them in one build, one at a time chosen when it runs.

A check of the checks: what neither the emulated GPU nor a comparison with the reference notices, no test that relies on
them finds. Each fault says by what it must be noticed. It runs in a fork of one process, as it may run for ever.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.kernels.cuda.emulated import ROOT, EmulatedKernel, copied, needs_nvcc

NONE = "none"             # the name of the build's run without any fault
PASSED = "passed"
SECONDS = 100             # that one fault may take
_DECLARED = """#pragma once
static __constant__ int fault_of_the_device;
static int fault_of_the_host;
__host__ __device__ __forceinline__ bool planted(int number) {
#ifdef __CUDA_ARCH__
    return fault_of_the_device == number;
#else
    return fault_of_the_host == number;
#endif
}
extern "C" __attribute__((used)) int choose_fault(int number) {
    fault_of_the_host = number;
    return cudaMemcpyToSymbol(fault_of_the_device, &number, sizeof number);
}
"""
Built = tuple[EmulatedKernel, Callable[[str], None]]


@dataclass(frozen=True)
class Fault:
    """``text``, which stands ``times`` in the files of kernels/cuda that match ``files``, becomes ``damaged``.

    A space inside ``text`` matches a line break, too; a line break and what it indents match themselves.
    ``FAULT`` in ``damaged`` is true when this fault is on. Where that is not in it, both texts are whole statements.
    ``shows``: what must notice it, the name of one of the emulated GPU's checks or "wrong", a number out of its bound.
    """

    files: str
    text: str
    damaged: str = ""
    shows: str = "wrong"
    times: int = 1

    def planted(self, number: int) -> str:
        statements = f"{{ if (FAULT) {{ {self.damaged} }} else {{ {self.text} }} }}"
        switched = self.damaged if "FAULT" in self.damaged else statements
        return switched.replace("FAULT", f"planted({number})")


def pattern_of(text: str) -> re.Pattern[str]:
    """Matches ``text`` however a formatter spreads its statements over lines."""
    words = re.findall(r"^ +|\n *|\w+|[^\w\s]", text)
    gaps = ["" if {" ", "\n"} & {*a, *b} else r"\s+" if (a[-1] + b[0]).isalnum() else r"\s*"
            for a, b in pairwise(words)]
    return re.compile("".join(re.escape(word) + gap for word, gap in zip(words, [*gaps, ""], strict=True)))


def plant(folder: Path, faults: Mapping[str, Fault], home: Path = ROOT) -> Path:
    """``folder`` with a copy of the kernels below it that has these faults, numbered from 1."""
    kernels = copied(folder, home=home) / "kernels/cuda"
    (kernels / "fault.h").write_text(_DECLARED)
    for number, fault in enumerate(faults.values(), 1):
        found = 0
        for path in kernels.glob(fault.files):
            source = path.read_text()
            damaged, count = pattern_of(fault.text).subn(lambda _: fault.planted(number), source)  # noqa: B023
            if count:
                found += count
                path.write_text('#include "fault.h"\n' + damaged)
        assert found == fault.times, f"{fault.text} stands {found} times in {fault.files}"
    return folder


def outcomes(
    folder: Path, faults: Mapping[str, Fault], build: Callable[..., Built], argument: str | None = None,
    home: Path = ROOT,
) -> dict[str, str]:
    """What came of each fault, and of ``NONE``: PASSED, what noticed it, or how its process ended.

    ``build`` is a function of a module: of ``argument`` if there is one and the folder with the planted kernels it
    makes the kernel, and the check to run with the name of each fault.
    """
    needs_nvcc()
    plant(folder, faults, home)
    command = [sys.executable, "-m", "tests.kernels.cuda.planting", build.__module__, build.__name__, argument or "",
               str(folder), *faults]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=590, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def noticed(found: Mapping[str, str], faults: Mapping[str, Fault]) -> None:
    """Assert that the twin without a fault passes, and that each fault is noticed by what its table says."""
    expected = {NONE: PASSED, **{name: fault.shows for name, fault in faults.items()}}
    other = {name: found[name][:400] for name, words in expected.items() if not found[name].startswith(words)}
    assert not other, other


def _words(check: Callable[[str], None], name: str) -> str:
    try:
        check(name)
        return PASSED
    except AssertionError as error:
        return str(error) or "wrong"


def _outcome(kernel: EmulatedKernel, check: Callable[[str], None], number: int, name: str) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(SECONDS)
        try:
            kernel.fault = number
            os.write(write, _words(check, name).encode()[:4000])
        except BaseException:  # noqa: BLE001  the child must end here, whatever it was
            os.write(write, traceback.format_exc()[-4000:].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return told if status == 0 else f"ended with {status}"


def _main(module: str, build: str, argument: str, folder: str, *names: str) -> None:
    given = ([argument] if argument else []) + [Path(folder)]
    kernel, check = getattr(importlib.import_module(module), build)(*given)
    found: dict[str, Any] = {NONE: _words(check, NONE)}      # here, so that its kernels' PTX is read only once
    found |= {name: _outcome(kernel, check, number, name) for number, name in enumerate(names, 1)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
