# SPDX-License-Identifier: MIT
"""Runs programs of the corpus: ``python -m tests.emulator.programs.run [--gpu H100] [--checks all] [NAME]…``

With ``--serve`` it reads one program a line from stdin and answers each with a line of JSON: tests drive it so, from a
process that survives whatever happens to this one. The HIP programs given then are compiled ahead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.emulator.programs import running


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(emulator: running.Emulator, words: list[str]) -> dict[str, object]:
    """``wrong``: None or what is wrong; ``seconds``: what running it took, compilation included."""
    started = time.monotonic()
    try:
        wrong = running.run(emulator, words)
    except Exception as error:      # noqa: BLE001  whatever it was, the next program gets its turn
        wrong = f"{type(error).__name__}: {error}"
    return {"wrong": wrong, "seconds": time.monotonic() - started}


def serve(emulator: running.Emulator, coming: Sequence[str]) -> None:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for program in coming:
            pool.submit(running.compile_hip, *program.split()[1:])     # a failure comes again where it is asked for
        for line in sys.stdin:
            say(json.dumps(answer(emulator, line.split())))
        pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", default="none", help="the emulator's checks: all, none or a comma list")
    parser.add_argument("--gpu", choices=("MI300", "H100", "L4"), default="MI300")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    emulator = running.Emulator(options.checks, options.gpu)
    programs = [["triton", name] for name in running.triton_names(options.gpu)]
    if options.gpu == "MI300":
        programs += [["hip", name, level] for name in running.hip_names() for level in running.LEVELS]
    if options.serve:
        serve(emulator, options.parts)
        return 0
    failed = 0
    for words in programs:
        if options.parts and not any(part in " ".join(words) for part in options.parts):
            continue
        result = answer(emulator, words)
        failed += result["wrong"] is not None
        say(f"{' '.join(words):48} {result['seconds']:6.2f} s  {result['wrong'] or 'right'}")
    say(f"{failed} failed" if failed else "all right")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
