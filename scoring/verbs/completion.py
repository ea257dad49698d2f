# SPDX-License-Identifier: MIT
"""``completion``: the script by which a shell completes the verbs, flags and files of ``warpwave``."""

from __future__ import annotations

import argparse

from scoring import cli
from scoring.record import ExitCode

_FILES = ("FILE", "PATH")


def run(options: argparse.Namespace) -> int:
    import shtab

    top = cli.parser()
    top.prog = "warpwave"
    for parser in _parsers(top):
        for action in parser._actions:
            if action.metavar in _FILES:
                setattr(action, "complete", shtab.FILE)  # noqa: B010 - shtab reads an attribute that argparse lacks
            elif action.metavar == "DIR":
                setattr(action, "complete", shtab.DIRECTORY)  # noqa: B010
    print(shtab.complete(top, shell=options.shell))
    return ExitCode.OK


def _parsers(top: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser and those of its verbs."""
    found = [top]
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += action.choices.values()
    return found
