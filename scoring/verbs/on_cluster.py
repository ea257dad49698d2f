# SPDX-License-Identifier: MIT
"""``run --ray``: one bundle per problem and GPU of a Ray cluster, and the records back as they come."""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import backends
from backends.base import Device
from scoring.config.load import Config
from scoring.output import units
from scoring.record import ExitCode, Record, dumps
from scoring.remote import bundle, cluster, libraries
from scoring.remote.bundle import Selection
from scoring.remote.selection import selection_of
from scoring.run import targets
from scoring.run.checkpoint import Keeper
from scoring.run.progress import Progress
from scoring.run.select import SelectionError
from scoring.store.record_files import brought
from scoring.store.store import Store
from scoring.verbs import run as running


def run(options: argparse.Namespace) -> int:
    """Run the selection on the cluster, show it, keep it; the exit code."""
    settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    running.check_outputs(options)
    if options.resume:
        raise SelectionError("--resume: a run on a cluster leaves nothing there to go on with", ExitCode.USAGE)
    keeper = Keeper(None if options.no_save else Store(settings.database))
    keeper.prepare()
    ray = cluster.connect(options.ray)
    said: dict[str, str] = {}
    codes: dict[str, int] = {}
    lost = ""
    try:
        jobs = list(_jobs(settings, options, ray))
        with Progress(len(jobs), quiet=options.json, verbose=not options.json) as progress:
            there = cluster.Running(ray)
            try:
                for name, where, selection in jobs:
                    progress.note(f"{name}: {units.plural(where.count, 'device')} in the cluster")
                    there.add(name, where, _packed(settings, options, ray, where, selection, progress))
                for name, news in there.news():
                    if "record" in news:
                        _keep(brought(Record.from_json(news["record"]), "", {}), keeper, options)
                    elif "line" in news:
                        said[name] = str(news["line"])
                        progress.note(f"{name}: {said[name]}")
                    else:
                        codes[name] = int(news["exit"])
                        progress.advance()
            except cluster.NodeLost as error:
                lost = str(error)
            finally:
                there.close()
    finally:
        ray.shutdown()
        for line in keeper.losses():
            print(line, file=sys.stderr)
    running.show(keeper.records, options)
    if lost:
        raise SelectionError(lost, ExitCode.UNAVAILABLE)
    if keeper.lost:
        return ExitCode.USAGE
    for name, code in codes.items():
        if code in (ExitCode.USAGE, ExitCode.INTERNAL) or not keeper.records:
            raise SelectionError(
                f"{name}: {said.get(name) or 'the run there made no record'}", code or ExitCode.NOTHING)
    return running.exit_code(keeper.records, options.gpu is not None or options.backend is not None, False)


def _jobs(settings: Config, options: argparse.Namespace, ray: Any) -> Iterator[tuple[str, cluster.Devices, Selection]]:
    """(name, devices, what to run) of every problem that has something for a GPU of the cluster."""
    found = cluster.some_devices(ray)
    wanted = {gpu: where for gpu, where in found.items() if _is_wanted(settings, options, gpu)}
    if not wanted:
        raise SelectionError(f"the cluster has {', '.join(found)}, and nothing of that is selected",
                             ExitCode.UNAVAILABLE)
    count = 0
    for gpu, where in wanted.items():
        mine = copy.copy(options)
        mine.gpu = gpu
        backend = backends.get(backends.labels()[gpu].backend)
        selection = selection_of(settings, mine)
        for problem in selection.problems:
            if selection.submission is None and not targets.select_kernels(
                    settings, problem, backend, settings.settings.kernels):
                continue
            count += 1
            yield f"{problem.name} on {gpu}", where, Selection(
                (problem,), ("--backend", backend.name, *selection.arguments), selection.submission, selection.task,
                selection.against)
    if not count:
        raise SelectionError(f"no selected kernel is for {' or '.join(wanted)}", ExitCode.NOTHING)


def _is_wanted(settings: Config, options: argparse.Namespace, gpu: str) -> bool:
    target = backends.get(backends.labels()[gpu].backend)
    asked = options.gpu is None or options.gpu.lower() in (gpu.lower(), target.target(gpu).arch.lower())
    return asked and target.name in settings.settings.backends


def _packed(
    settings: Config, options: argparse.Namespace, ray: Any, where: cluster.Devices, selection: Selection,
    progress: Progress,
) -> bytes:
    """The bundle, with libraries that are compiled here for the device that a node says it has."""
    with tempfile.TemporaryDirectory(prefix="warpwave-") as name:
        folder = Path(name)
        bundle.stage(folder, settings, selection)
        bare = bundle.archive(folder)
        probing = cluster.Running(ray)
        probing.add(f"a node with {where.gpu}", where, bare, "probe")
        (answer,) = (news for _name, news in probing.news() if "exit" in news)
        found = json.loads(answer["answer"] or "{}")
        if missing := found.get("missing") or (not found and "its probe printed nothing"):
            raise SelectionError(f"a node with {where.gpu}: {missing}", ExitCode.UNAVAILABLE)
        devices = {each: [Device(**device) for device in entry["devices"]]
                   for each, entry in found["backends"].items()}
        libraries.build(folder, settings, selection, devices, where.gpu, options.arch, dict(options.define or ()),
                        progress)
        return bundle.archive(folder)


def _keep(record: Record, keeper: Keeper, options: argparse.Namespace) -> None:
    same = [each for each in keeper.records if (each.problem, each.kernel, each.gpu, each.digest) == (
        record.problem, record.kernel, record.gpu, record.digest)]
    if same:
        return                       # it came before its node ended, and the job was begun again
    keeper.take(record)
    if options.json:
        print(dumps(record), flush=True)
