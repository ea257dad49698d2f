# SPDX-License-Identifier: MIT
"""``python -m backends.emulator`` builds the emulator's library, if need be, and prints its path."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from backends.base import BackendError, CompileError
from backends.emulator import build


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 there it is, 1 refused by the compiler, 2 anything else a user can put right."""
    parser = argparse.ArgumentParser(prog="python -m backends.emulator", description=__doc__)
    parser.add_argument("--prefix", action="store_true",
                        help="print the folder above it: what ROCM_PATH should be for programs that load HIP by it")
    options = parser.parse_args(arguments)
    try:
        path = build.library(report=lambda line: print(line, file=sys.stderr))
    except CompileError as error:
        print(error.log or error, file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BackendError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(path.parent.parent if options.prefix else path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
