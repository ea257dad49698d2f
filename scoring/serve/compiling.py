# SPDX-License-Identifier: MIT
"""Compile one submitted kernel, inside a sandbox: a source may include any file that its compiler can read.

``python -m scoring.serve.compiling FD SPEC`` writes one line of JSON and then the library's bytes to FD.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import backends
from backends.errors import CompileError, SourceError
from backends.source import KernelSource


def answer(spec: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """What the compiler made of ``spec``: {root, file, problem, backend, gpu}, and the library."""
    root = Path(spec["root"])
    backend = backends.get(spec["backend"])
    try:
        source = KernelSource.read(root / spec["file"], root, spec["problem"])
        binary = backend.compile(source, backend.target(spec["gpu"]), cache_dir=Path(tempfile.gettempdir()) / "built")
    except CompileError as error:
        return {"refused": "compiler", "message": str(error), "log": error.log[-20_000:],
                "command": list(error.command), "diagnostics": [asdict(each) for each in error.diagnostics]}, b""
    except SourceError as error:
        return {"refused": "source", "message": str(error), "line": error.line}, b""
    return {
        "digest": binary.digest, "command": list(binary.command), "version": binary.compiler_version,
        "seconds": binary.seconds, "usage": [asdict(each) for each in binary.usage.kernels],
        "diagnostics": [asdict(each) for each in binary.diagnostics],
    }, binary.path.read_bytes()


def main() -> int:
    made, library = answer(json.loads(sys.argv[2]))
    with os.fdopen(int(sys.argv[1]), "wb") as out:
        out.write(json.dumps(made).encode() + b"\n")
        out.write(library)
    return 0


if __name__ == "__main__":
    sys.exit(main())
