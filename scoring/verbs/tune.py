# SPDX-License-Identifier: MIT
"""``tune``: combinations of the values in a kernel's ``//!KERNEL tune`` lines, checked, then timed as by ``run``.

Shows which is fastest in which case. Writes nothing: no source is changed, and no record is kept.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import replace

import backends
from scoring import config, jobs, plans, render, tuning, units
from scoring.keeping import Keeper
from scoring.model import ExitCode, Mode, Record
from scoring.sandbox import leftovers
from scoring.tables import Style, use_color, width_of
from scoring.verbs import run as running


def run(options: argparse.Namespace) -> int:
    options.mode, options.peers, options.checks = Mode.BENCHMARK.value, False, None
    settings = running.settings_of(options)
    if settings.settings.seed is None:           # the same inputs for all
        options.seed = secrets.randbits(31)
        settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    backends.use_emulator(settings.settings.emulate)
    leftovers.clean()
    running.check_isolation(settings)
    plan = _plan(settings, options)
    keeper = Keeper(None)
    try:
        running.carry_out(plan, options, keeper, keeper.take)
    finally:                     # interrupted, too: what has been measured by then took its time
        _show(plan.candidates[: len(keeper.records)], keeper.records, options)
        if len(keeper.records) < plan.total:
            left = plan.total - len(keeper.records)
            print(f"not timed: {left} of {units.plural(plan.total, 'combination')} of values", file=sys.stderr)
    return running.exit_code(keeper.records, plan.required, build_only=False)


def _show(candidates: Sequence[jobs.Candidate], records: Sequence[Record], options: argparse.Namespace) -> None:
    for tuned in _grouped(candidates, records):
        if options.json:
            print(json.dumps(tuning.document(tuned), allow_nan=False))
        else:
            seen = Style(color=use_color(sys.stdout), width=width_of(sys.stdout))
            style = Style("github") if options.markdown else seen
            print(tuning.table(tuned, style), end="\n\n")
    if records and not options.json:
        told = (render.failures(records), render.absences(records), render.verdict(records))
        print("\n\n".join(filter(None, told)),
              file=sys.stderr if options.markdown else sys.stdout)


def _plan(settings: config.Config, options: argparse.Namespace) -> plans.Plan:
    """Every variant of the selected kernels that have tunables; raises ``SelectionError`` if none has, or too many."""
    rigid: set[str] = set()
    vary = options.vary or []

    def expand(candidate: jobs.Candidate) -> list[jobs.Candidate]:
        found = _variants(candidate, vary)
        name = f"{candidate.source.language}/{candidate.source.name}"
        if not found:
            rigid.add(name)
        if reason := tuning.excess(candidate.source.tunables, candidate.defines, vary):
            raise jobs.SelectionError(f"{name}: {reason}", ExitCode.USAGE)
        return found

    try:
        return plans.kernel_plan(settings, options, expand=expand)
    except jobs.SelectionError as error:
        if error.code != ExitCode.NOTHING or not rigid:
            raise
        what = f" for {' or '.join(vary)}" if vary else ""
        text = f"no '//!KERNEL tune' line{what} in {', '.join(sorted(rigid))}"
        raise jobs.SelectionError(text, error.code) from error


def _variants(candidate: jobs.Candidate, vary: Sequence[str]) -> list[jobs.Candidate]:
    """The candidate once for every combination of values; a file that cannot be read as it is, to say so."""
    if candidate.error is not None:
        return [candidate]
    combined = tuning.combinations(candidate.source.tunables, candidate.defines, vary)
    return [replace(candidate, defines=values) for values in combined]


def _grouped(candidates: Sequence[jobs.Candidate], records: Sequence[Record]) -> list[tuning.Tuning]:
    """The records by kernel and target, in the order they were made."""
    found: dict[tuple[str, str, str, str], list[tuning.Variant]] = {}
    for candidate, record in zip(candidates, records, strict=True):
        if candidate.error is None:
            target = candidate.place.target
            key = (candidate.source.language, candidate.source.name, target.gpu, target.arch)
            found.setdefault(key, []).append(tuning.Variant(candidate.defines, record))
    return [tuning.Tuning(variants) for variants in found.values()]
