# SPDX-License-Identifier: MIT
"""``bundle``: all that a run needs, in one file for a machine that has Python and torch."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import backends
from scoring.output.units import plural
from scoring.record import ExitCode
from scoring.remote import bundle, libraries
from scoring.remote.selection import selection_of
from scoring.run.progress import Progress
from scoring.run.select import SelectionError
from scoring.verbs import run as running


def run(options: argparse.Namespace) -> int:
    settings = running.settings_of(options)
    backends.use_cache(settings.cache)
    target = Path(options.output)
    if not target.absolute().parent.is_dir():
        raise SelectionError(f"--output {target}: no such folder", ExitCode.USAGE)
    selection = selection_of(settings, options)
    built = 0
    with tempfile.TemporaryDirectory(prefix="warpwave-") as name, \
            Progress(None, quiet=options.json, verbose=not options.json) as progress:
        folder = Path(name)
        bundle.stage(folder, settings, selection)
        if options.libraries:
            devices = libraries.expected_devices(settings, options.gpu)
            built = libraries.build(folder, settings, selection, devices, options.gpu, options.arch,
                                    dict(options.define or ()), progress)
        packed = bundle.archive(folder, bundle.FOLDER)
    target.write_bytes(packed)
    if options.json:
        print(json.dumps({"schema": 1, "file": str(target), "bytes": len(packed), "libraries": built}))
        return ExitCode.OK
    print(f"wrote {target}: {len(packed) / 1e6:.1f} MB, {plural(built, 'build')}")
    print(f"there: tar xzf {target.name} && sh {bundle.FOLDER}/run.sh      (PYTHON=… names a Python that has torch)")
    print(f"here:  python -m scoring import {bundle.FOLDER}/records.jsonl")
    return ExitCode.OK
