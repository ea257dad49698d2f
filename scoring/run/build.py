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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import backends
from backends.base import Binary
from backends.errors import ToolchainMissing
from backends.source import KernelSource
from scoring.config.load import Config
from scoring.ipc.requests import LoadChain
from scoring.record import Mode
from scoring.run.targets import Candidate, Place

if TYPE_CHECKING:
    from scoring.run.progress import Progress

Key = TypeVar("Key", bound=Hashable)

NATIVE = Path(__file__).parents[1] / "chain" / "native"      # sources of the judge's commit chain


@dataclass(frozen=True)
class Build:
    """One call of a compiler: ``name`` is for people, ``make`` may raise what ``Backend.compile`` raises."""

    name: str
    make: Callable[[], Binary]


def builds_of(config: Config, candidate: Candidate, mode: Mode, to_run: bool) -> dict[tuple[str, ...], Build]:
    """What a compiler has to make for a candidate, by what tells builds apart: the kernel, then the judge's own."""
    source, place = candidate.source, candidate.place

    def kernel() -> Binary:
        if candidate.error is not None:
            raise candidate.error
        return place.backend.compile(source, place.target, candidate.defines, cache_dir=config.cache)

    values = (f"{name}={value}" for name, value in sorted(candidate.defines.items()))
    name = f"{candidate.problem.name} {candidate.kernel} for {place.target.gpu}"
    found = {(str(source.path), place.target.gpu, place.target.arch, *values): Build(name, kernel)}
    if to_run and is_chained(place, mode):
        path, where = chain_source(place), place.target
        found[str(path), where.gpu, where.arch] = Build(
            f"the judge's chain for {where.gpu}", partial(_compile_chain, config, place))
    return found


def compile_all(builds: Mapping[Key, Build], progress: Progress) -> dict[Key, Future[Binary]]:
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


def is_chained(place: Place, mode: Mode) -> bool:
    """Whether calls in a place are timed by the judge's commit chain: where something real is timed."""
    timed = place.device is not None and not place.device.emulated and mode is not Mode.TEST
    return timed and place.backend.chain is not None


def chain_source(place: Place) -> Path:
    assert place.backend.chain is not None, "is_chained says so"
    return NATIVE / place.backend.chain


def _compile_chain(config: Config, place: Place) -> Binary:
    source = KernelSource.read(chain_source(place), NATIVE, "chain")
    return place.backend.compile(source, place.target, cache_dir=config.cache)


def chain_library(config: Config, place: Place, mode: Mode) -> LoadChain | None:
    """The commit chain's library for a place where something is timed; None elsewhere, and without a compiler.

    Raises ``CompileError``.
    """
    if not is_chained(place, mode):
        return None
    try:
        binary = _compile_chain(config, place)
    except ToolchainMissing:
        return None
    preload = tuple(str(library) for library in place.backend.runtime_libraries(place.device))
    return LoadChain(str(binary.path), preload)
