# SPDX-License-Identifier: MIT
"""``compare A B``: race kernels in the same rounds. It is ``run --kernel A --against B`` in fewer words."""

from __future__ import annotations

import argparse

from scoring import cli
from scoring.run import rivals
from scoring.verbs.run import execute


def run(options: argparse.Namespace) -> int:
    """Raises ``SelectionError`` (usage) for a name that is no ``KERNEL[NAME=VALUE,…]``."""
    first = rivals.parse(options.kernel)
    words = ["run", *(word for rival in options.against for word in ("--against", rival))]
    if first.what.endswith(".py"):
        words += ["--submission", first.what]
    else:
        words += ["--kernel", first.what, *(word for pair in first.defines.items() for word in ("-D", "=".join(pair)))]
    given = vars(options)
    merged = vars(cli.parser().parse_args(words))
    for name in merged.keys() & given.keys() - {"verb", "kernel", "against"}:
        if given[name]:
            merged[name] = given[name]
    merged["problem"] = [options.problem] if options.problem else None
    merged["emulate"] = options.emulate
    return execute(argparse.Namespace(**merged))
