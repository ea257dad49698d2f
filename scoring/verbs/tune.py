# SPDX-License-Identifier: MIT
"""``tune``: combinations of the values in a kernel's ``//!KERNEL tune`` lines, checked, then timed as by ``run``.

Shows which is fastest in which case; without a device, what the compiler made of each. Of more combinations than are
all tried it searches the fastest. Changes no source and keeps no record; with --cache it keeps its results in a file of
Kernel Tuner's format, from which it goes on.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import backends
from scoring.config.load import Config
from scoring.output import terminal, tuning, tuning_cache, units
from scoring.output.table import Style, use_color, width_of
from scoring.record import ExitCode, Mode, Record
from scoring.run import search, targets
from scoring.run.checkpoint import Keeper
from scoring.run.job import sandbox_policy
from scoring.run.plan import Plan, kernel_plan
from scoring.run.select import SelectionError
from scoring.sandbox import cleanup
from scoring.sandbox.compiler import Compilers
from scoring.verbs import run as running


def run(options: argparse.Namespace) -> int:
    options.mode, options.peers, options.checks = Mode.BENCHMARK.value, False, None
    settings = running.settings_of(options)
    if settings.settings.seed is None:           # the same inputs for all
        options.seed = secrets.randbits(128)
        settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    backends.use_emulator(settings.settings.emulate)
    cleanup.clean()
    running.check_isolation(settings)
    backends.confine(Compilers(sandbox_policy(settings)))
    earlier = _Earlier(Path(options.cache) if options.cache else None)
    wide = _wide(settings, options)
    if wide is not None:
        return _search(settings, options, wide, earlier)
    plan = _plan(settings, options, earlier)
    keeper = Keeper(None)

    def take(record: Record) -> None:
        keeper.take(record)
        earlier.keep(plan.candidates[: len(keeper.records)], keeper.records)

    try:
        running.carry_out(plan, options, keeper, take)
    finally:                     # interrupted, too: what has been measured by then took its time
        _show(*earlier.merged(plan.candidates[: len(keeper.records)], keeper.records), options)
        if len(keeper.records) < plan.total:
            left = plan.total - len(keeper.records)
            print(f"not timed: {left} of {units.plural(plan.total, 'combination')} of values", file=sys.stderr)
    compiled = all(candidate.place.device is None for candidate in plan.candidates)     # what can be shown, was
    return running.exit_code(keeper.records, plan.required, build_only=compiled)


def _wide(settings: Config, options: argparse.Namespace) -> targets.Candidate | None:
    """The kernel to search in: one with a device, and with more combinations than are all tried.

    Raises ``SelectionError`` (2) for more kernels than one.
    """
    found: list[targets.Candidate] = []

    def look(candidate: targets.Candidate) -> list[targets.Candidate]:
        if candidate.error is None:
            number = tuning.count(candidate.source.tunables, candidate.defines, options.vary or [])
            if candidate.source.tunables and number > (options.trials or tuning.MOST):
                found.append(candidate)
        return [candidate]

    quiet = argparse.Namespace(**{**vars(options), "json": True})       # what there is to note, the real plan notes
    with kernel_plan(settings, quiet, expand=look) as plan:
        kernels = [each for each in plan.candidates if each.place.device is not None and each.source.tunables]
    if not any(each.place.device is not None for each in found):
        return None
    if len(kernels) > 1:
        raise SelectionError("a search takes one kernel on one GPU; narrow it by --kernel and --gpu", ExitCode.USAGE)
    return kernels[0]


def _search(
    settings: Config, options: argparse.Namespace, kernel: targets.Candidate, earlier: _Earlier,
) -> int:
    """Batch by batch: what to try next follows from what was timed before, in this run or in the cache file."""
    vary = options.vary or []
    space = {name: values for name, values in kernel.source.tunables.items() if not vary or name in vary}
    asked = search.Search(space, kernel.defines, settings.settings.seed or 0)
    tried, records, required = [], [], False
    for values, record in earlier.known(kernel).items():
        tried.append(replace(kernel, defines=dict(values)))
        records.append(record)
        asked.tell(dict(values), tuning.Variant(dict(values), record).score)
    trials = min(options.trials or search.TRIALS, asked.size)
    try:
        while len(records) < trials and (batch := asked.ask(min(search.BATCH, trials - len(records)))):
            keeper = Keeper(None)
            chosen = [replace(kernel, defines=values) for values in batch]

            def expand(
                candidate: targets.Candidate, chosen: list[targets.Candidate] = chosen,
            ) -> list[targets.Candidate]:
                same = (candidate.source.path, candidate.place.target) == (kernel.source.path, kernel.place.target)
                return chosen if same else []

            plan = kernel_plan(settings, options, expand=expand)
            required = plan.required

            def take(record: Record, keeper: Keeper = keeper, chosen: list[targets.Candidate] = chosen) -> None:
                candidate = chosen[len(keeper.records)]
                keeper.take(record)
                tried.append(candidate)
                records.append(record)
                asked.tell(candidate.defines, tuning.Variant(candidate.defines, record).score)
                earlier.write(tried, records)

            running.carry_out(plan, options, keeper, take)
    finally:
        _show(tried, records, options)
        print(f"searched: {len(records)} of {units.plural(asked.size, 'combination')} of values, chosen by optuna's "
              f"TPE sampler", file=sys.stderr)
    return running.exit_code(records, required, build_only=False) if not _best(tried, records) else ExitCode.OK


def _best(tried: Sequence[targets.Candidate], records: Sequence[Record]) -> bool:
    """Whether a search has found a combination that passes: some of a large space are expected to fail."""
    return any(tuned.best is not None for tuned in _grouped(tried, records))


class _Earlier:
    """The cache file of one kernel on one device: combinations that it has a result for are not judged again."""

    def __init__(self, path: Path | None):
        self._path = path
        self._known: list[tuple[targets.Candidate, Record]] = []
        self._order: list[targets.Candidate] = []

    def left(self, candidates: list[targets.Candidate]) -> list[targets.Candidate]:
        """Those of a kernel's ``candidates`` that are to be judged; the last one even if it is known, so that there is
        something to do."""
        if self._path is None or not candidates or candidates[0].error is not None:
            return candidates
        first = candidates[0]
        if self._order and (first.source.path, first.place.target) != (
                self._order[0].source.path, self._order[0].place.target):
            raise SelectionError("--cache keeps one kernel on one GPU; narrow it by --kernel and --gpu", ExitCode.USAGE)
        self._order, self._known = candidates, []
        found = self._read(first)
        known = [each for each in candidates if tuning_cache.key(each.defines) in found]
        if len(known) == len(candidates):
            known = known[:-1]
        self._known = [(each, found[tuning_cache.key(each.defines)]) for each in known]
        return [each for each in candidates if each not in known]

    def known(self, kernel: targets.Candidate) -> dict[tuple[tuple[str, str], ...], Record]:
        """All results that the file has of a kernel, by their values."""
        if self._path is None:
            return {}
        found = self._read(kernel).values()
        values = [tuple(sorted(tuning_cache.values_of(record).items())) for record in found]
        return dict(zip(values, found, strict=True))

    def _read(self, kernel: targets.Candidate) -> dict[str, Record]:
        assert self._path is not None
        try:
            device = kernel.place.device.name if kernel.place.device else kernel.place.target.gpu
            name = f"{kernel.problem.name}/{kernel.source.language}/{kernel.source.variant}"
            return tuning_cache.read(self._path, name, device, kernel.source.digest)
        except tuning_cache.CacheError as error:
            raise SelectionError(f"--cache: {error}", ExitCode.USAGE) from error

    def merged(
        self, candidates: Sequence[targets.Candidate], records: Sequence[Record]
    ) -> tuple[list[targets.Candidate], list[Record]]:
        """All candidates that have a record, known ones included, in the order of their values."""
        pairs = [*self._known, *zip(candidates, records, strict=True)]
        if self._order:
            pairs.sort(key=lambda pair: self._order.index(pair[0]))
        return [each for each, _ in pairs], [record for _, record in pairs]

    def keep(self, candidates: Sequence[targets.Candidate], records: Sequence[Record]) -> None:
        """Write the file anew, after every record. Raises ``SelectionError`` for values it cannot hold."""
        self.write(*self.merged(candidates, records))

    def write(self, candidates: Sequence[targets.Candidate], records: Sequence[Record]) -> None:
        """As ``keep``, of exactly these."""
        tunings = _grouped(candidates, records)
        if self._path is None or len(tunings) != 1:       # none of a file that cannot be read
            return
        tuned, source = tunings[0], candidates[0].source
        try:
            tuning_cache.write(self._path, tuning_cache.document(tuned, source.tunables, source.digest))
        except tuning_cache.CacheError as error:
            raise SelectionError(f"--cache: {error}", ExitCode.USAGE) from error


def _show(candidates: Sequence[targets.Candidate], records: Sequence[Record], options: argparse.Namespace) -> None:
    for tuned in _grouped(candidates, records):
        if options.json:
            print(json.dumps(tuning.document(tuned), allow_nan=False))
        else:
            seen = Style(color=use_color(sys.stdout), width=width_of(sys.stdout))
            style = Style("github") if options.markdown else seen
            print(tuning.table(tuned, style), end="\n\n")
    if records and not options.json:
        told = (terminal.failures(records), terminal.absences(records), terminal.verdict(records))
        print("\n\n".join(filter(None, told)),
              file=sys.stderr if options.markdown else sys.stdout)


def _plan(settings: Config, options: argparse.Namespace, earlier: _Earlier) -> Plan:
    """Every variant of the selected kernels that have tunables; raises ``SelectionError`` if none has, or too many."""
    rigid: set[str] = set()
    vary = options.vary or []

    def expand(candidate: targets.Candidate) -> list[targets.Candidate]:
        found = _variants(candidate, vary)
        name = f"{candidate.source.language}/{candidate.source.name}"
        if not found:
            rigid.add(name)
        if reason := tuning.excess(candidate.source.tunables, candidate.defines, vary):
            raise SelectionError(f"{name}: {reason}", ExitCode.USAGE)
        return earlier.left(found)

    try:
        return kernel_plan(settings, options, expand=expand)
    except SelectionError as error:
        if error.code != ExitCode.NOTHING or not rigid:
            raise
        what = f" for {' or '.join(vary)}" if vary else ""
        text = f"no '//!KERNEL tune' line{what} in {', '.join(sorted(rigid))}"
        raise SelectionError(text, error.code) from error


def _variants(candidate: targets.Candidate, vary: Sequence[str]) -> list[targets.Candidate]:
    """The candidate once for every combination of values; a file that cannot be read as it is, to say so."""
    if candidate.error is not None:
        return [candidate]
    combined = tuning.combinations(candidate.source.tunables, candidate.defines, vary)
    return [replace(candidate, defines=values) for values in combined]


def _grouped(candidates: Sequence[targets.Candidate], records: Sequence[Record]) -> list[tuning.Tuning]:
    """The records by kernel and target, in the order they were made."""
    found: dict[tuple[str, str, str, str], list[tuning.Variant]] = {}
    for candidate, record in zip(candidates, records, strict=True):
        if candidate.error is None:
            target = candidate.place.target
            key = (candidate.source.language, candidate.source.name, target.gpu, target.arch)
            found.setdefault(key, []).append(tuning.Variant(candidate.defines, record))
    return [tuning.Tuning(variants) for variants in found.values()]
