# SPDX-License-Identifier: MIT
"""``python -m backends.emulator`` builds an emulator's library, if need be, and prints its path."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from backends.cuda import CudaBackend, release
from backends.emulator import build, instructions
from backends.errors import BackendError, CompileError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 there it is, 1 refused by the compiler, 2 anything else a user can put right."""
    parser = argparse.ArgumentParser(prog="python -m backends.emulator", description=__doc__)
    parser.add_argument("--prefix", action="store_true",
                        help="print a folder for ROCM_PATH instead, whose lib/ has it under all names programs link to")
    parser.add_argument("--cuda", action="store_true",
                        help="the emulated NVIDIA GPUs' libcudart.so instead, for programs of the nvcc that is here")
    parser.add_argument("--instructions", action="store_true", help="print a table of all instructions it executes")
    options = parser.parse_args(arguments)
    try:
        path = _make(options)(report=lambda line: _say(sys.stderr, line))
    except CompileError as error:
        _say(sys.stderr, error.log or error)
        _say(sys.stderr, f"error: {error}")
        return 1
    except BackendError as error:
        _say(sys.stderr, f"error: {error}")
        return 2
    _say(sys.stdout, instructions.markdown(instructions.known(path)).rstrip("\n") if options.instructions else path)
    return 0


def _make(options: argparse.Namespace) -> Callable[..., Path]:
    if options.cuda:
        return functools.partial(build.cuda_library, release(CudaBackend().compiler()))
    return build.prefix if options.prefix else build.library


def _say(where: TextIO, line: object) -> None:
    where.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
