# SPDX-License-Identifier: MIT
"""Compiles all that a run needs before any of it runs: as many compilers at a time as there are processors.

What is then checked and timed has the machine to itself, and somebody with many processors waits for the slowest
compiler, not for all of them in turn. A build that fails is an error of its own future and of no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import backends

if TYPE_CHECKING:
    from backends.base import Binary
    from scoring.progress import Progress

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Build:
    """One call of a compiler: ``name`` is for people, ``make`` may raise what ``Backend.compile`` raises."""

    name: str
    make: Callable[[], Binary]


def carry_out(builds: Mapping[Key, Build], progress: Progress) -> dict[Key, Future[Binary]]:
    """All ``builds``, done, in futures that hold a binary or an error; ``progress`` hears of each that took a compiler.

    Interrupted, it stops the compilers that run and starts no more.
    """
    if not builds:
        return {}
    started, workers = time.monotonic(), max(1, min(len(builds), backends.processors()))
    progress.note(f"building {len(builds)}, up to {workers} at a time")
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = {key: pool.submit(build.make) for key, build in builds.items()}
        names = {future: build.name for future, build in zip(futures.values(), builds.values(), strict=True)}
        compiled = failed = 0
        try:
            for done, future in enumerate(as_completed(names), 1):
                if outcome := _outcome(future):
                    progress.note(f"built {done}/{len(builds)}: {names[future]}, {outcome}")
                    compiled, failed = compiled + 1, failed + (future.exception() is not None)
        except BaseException:        # interrupted: nobody waits for a compiler to finish
            pool.shutdown(wait=False, cancel_futures=True)
            backends.stop()
            raise
    progress.note(f"built all in {time.monotonic() - started:.0f} s: {len(builds) - compiled} from the cache, "
                  f"{compiled - failed} compiled, {failed} failed")
    return futures


def _outcome(future: Future[Binary]) -> str:
    """What became of a build in a few words; "" for what was in the cache."""
    if error := future.exception():
        return f"failed ({type(error).__name__})"
    binary = future.result()
    return "" if binary.cached else f"{binary.seconds:.1f} s"
