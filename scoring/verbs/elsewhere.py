# SPDX-License-Identifier: MIT
"""``run --host``: bundle, copy, run on another machine, and bring the records back as they come."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import backends
from backends.base import Device
from scoring.config.load import Config
from scoring.record import ExitCode, Record, dumps
from scoring.remote import bundle, libraries
from scoring.remote.host import Host, Lost
from scoring.remote.selection import selection_of
from scoring.run.checkpoint import Keeper
from scoring.run.progress import Progress
from scoring.run.select import SelectionError
from scoring.store.record_files import brought
from scoring.store.store import Store
from scoring.verbs import run as running


def run(options: argparse.Namespace) -> int:
    """Run the selection on the other machine, show it, keep it; the exit code."""
    settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    running.check_outputs(options)
    keeper = Keeper(None if options.no_save else Store(settings.database))
    keeper.prepare()
    visit = Visit(settings, options, keeper)
    try:
        with Progress(None, quiet=options.json, verbose=not options.json) as progress:
            visit.begin(progress)
            visit.follow(progress)
    except KeyboardInterrupt:
        visit.stop()
        running.show(keeper.records, options)
        raise
    except Lost as error:
        running.show(keeper.records, options)
        raise SelectionError(f"{error}\n  the run goes on there; the same command with --resume brings the rest",
                             ExitCode.UNAVAILABLE) from error
    finally:
        for line in keeper.losses():
            print(line, file=sys.stderr)
    running.show(keeper.records, options)
    if keeper.lost:
        return ExitCode.USAGE
    visit.host.remove()
    if not keeper.records:
        raise SelectionError(visit.said or "the run there made no record", visit.code or ExitCode.NOTHING)
    return running.exit_code(keeper.records, options.gpu is not None or options.backend is not None, False)


class Visit:
    """One run on another machine."""

    def __init__(self, settings: Config, options: argparse.Namespace, keeper: Keeper):
        self.settings, self.options, self.keeper = settings, options, keeper
        self.selection = selection_of(settings, options)
        self.code = 0                # the exit code there
        self.said = ""               # the last line of its log
        self.unfinished: dict[str, Record] = {}      # by id, until a newer record of the same kernel comes

    def begin(self, progress: Progress) -> None:
        """Copy the job there and start it, unless it is there and goes on. Raises ``SelectionError``."""
        options = self.options
        with tempfile.TemporaryDirectory(prefix="warpwave-") as name:
            folder = Path(name)
            bundle.stage(folder, self.settings, self.selection)
            packed = bundle.archive(folder)
            self.host = host = Host(options.host, options.host_python, bundle.identity(packed))
            there = host.exists()
            if there and not options.resume:
                if host.state() == "running":
                    raise SelectionError(f"{host.name}: the same run is going on there; --resume follows it", 2)
                host.remove()
                there = False
            if not there:
                if options.resume:
                    progress.note(f"{host.name}: nothing to resume; this is a new run")
                progress.note(f"{host.name}: copying {len(packed) / 1e6:.1f} MB")
                host.remove()
                host.copy(packed, done=False)
                self._compile(folder, progress)
                host.copy(bundle.archive(folder / "prebuilt", "prebuilt"), done=True)
            progress.note(f"{host.name}: {host.start()}")

    def _compile(self, folder: Path, progress: Progress) -> None:
        """Compile here for the devices there."""
        found, options = self.host.probe(), self.options
        devices = {name: [Device(**each) for each in entry["devices"]] for name, entry in found["backends"].items()}
        told = [f"{name}: {devices[name][0].name}" for name in self.settings.settings.backends if devices.get(name)]
        progress.note(f"{self.host.name} is {found['node']}, Python {found['python']}, torch {found['torch']}; "
                      f"{', '.join(told) or 'no device'}")
        libraries.build(folder, self.settings, self.selection, devices, options.gpu, options.arch,
                        dict(options.define or ()), progress)

    def follow(self, progress: Progress, patience: float | None = None) -> None:
        """Take what comes back until the run ends. Raises ``Lost``, and ``SelectionError`` if it died."""
        for news in self.host.follow(progress.note, patience):
            if "record" in news:
                self._take(brought(Record.from_json(news["record"]), self.host.name, self._names()))
            elif "line" in news:
                self.said = str(news["line"])
                progress.note(f"{self.host.name}: {self.said}")
            elif "died" in news:
                raise SelectionError(f"{self.host.name}: the run died there ({self.said or 'without a word'}); the "
                                     "same command with --resume goes on", ExitCode.UNAVAILABLE)
            elif "exit" in news:
                self.code = int(news["exit"])
        for record in self.unfinished.values():
            self._keep(record)

    def stop(self) -> None:
        """End the run there, and bring what it has judged."""
        with contextlib.suppress(SelectionError, Lost, AttributeError):
            self.host.stop()
            with Progress(None, quiet=True) as progress:
                self.follow(progress, patience=20.0)
            print(f"{self.host.name}: ended there; the same command with --resume goes on", file=sys.stderr)

    def _take(self, record: Record) -> None:
        self.unfinished.pop(record.id, None)
        if record.unjudged:
            self.unfinished[record.id] = record
        else:
            self._keep(record)

    def _keep(self, record: Record) -> None:
        if any(record.id == each.id for each in self.keeper.records):
            return                   # told twice, after a lost connection
        self.keeper.take(record)
        if self.options.json:
            print(dumps(record), flush=True)

    def _names(self) -> Mapping[str, tuple[str, ...]]:
        """What words of a command there are called here."""
        options, selection = self.options, self.selection
        config = (options.config,) if options.config else ()
        python = ("--host-python", options.host_python) if options.host_python != "python3" else ()
        names: dict[str, tuple[str, ...]] = {
            "--config": ("--config",) * len(config), bundle.SETTINGS: config,
            "run": ("run", "--host", self.host.name, *python)}
        if selection.submission is not None:
            names[f"../inputs/submission/{selection.submission.name}"] = (str(selection.submission),)
        return names

