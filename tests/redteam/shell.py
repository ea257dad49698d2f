# SPDX-License-Identifier: MIT
"""Attacks that are a command line: what somebody lays out before ``python -m scoring`` is called, and what it gains.

Each file of ``commands`` has ``attack(folder, secret) -> arguments`` of the command line; ``folder`` is its own,
``secret`` a file of the judge's user. ``gained(folder, record, text) -> words`` says what it got, "" for
nothing; a canary's evidence counts as well (``canary.py``). The judge runs with this project's rights, as root in a
container, and with ``folder/tmp`` as the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.redteam.canary import Canary
from tests.redteam.entries import HERE, Entry, Trial

ROOT = HERE.parents[1]
DATA = ROOT / "tests" / "data"
TOY = DATA / "problems" / "toy"
TEMPORARY = "tmp"
DEADLINE = 300.0             # seconds of one command line
JSON = ["run", "--no-save", "--json"]
EMULATED = [*JSON, "--backend", "rocm", "--emulate", "--mode", "benchmark"]
SETTINGS = """backends: [cpu]
mode: test
timing: {{processes: 1, min_rounds: 2, max_rounds: 3, seconds: 0.5}}
limits: {{load_seconds: 120, call_seconds: 60, job_seconds: 250}}
paths: {{problems: {problems}, kernels: {kernels}}}
"""
_ENDING = {"cpu": "cpp", "hip": "hip"}
_HEAD = {"cpu": "", "hip": "//!KERNEL arch gfx942\n"}


def kernel(folder: Path, language: str, source: str) -> list[str]:
    """A kernel file of the toy problem; the arguments that select it."""
    path = folder / "kernels" / language / "toy" / f"attack.{_ENDING[language]}"
    path.parent.mkdir(parents=True)
    path.write_text(f"// SPDX-License-Identifier: MIT\n//!KERNEL summary attack\n{_HEAD[language]}{source}")
    return ["--problem", "toy", "--kernel", "attack"]


def problem(folder: Path) -> Path:
    """A copy of the toy problem as ``folder``; its ``task.yml``."""
    shutil.copytree(TOY, folder)
    task = folder / "task.yml"
    utils = ROOT / "problems" / "utils.py"
    task.write_text(task.read_text().replace("../../../../problems/utils.py", str(utils)))
    return task


def timed(record: dict[str, Any]) -> list[float]:
    """Seconds of all timed cases of a record that passed."""
    cases = record.get("cases", ()) if record.get("status") == "PASSED" else ()
    return [case["stats"]["median"] for case in cases if case.get("stats")]


def trial(entry: Entry) -> Trial:
    """One run of a file's command line."""
    made = runpy.run_path(str(entry.path))
    with Canary() as canary, tempfile.TemporaryDirectory(prefix="redteam-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / TEMPORARY).mkdir(mode=0o777)
        (folder / TEMPORARY).chmod(0o1777)
        problem(folder / "problems" / "toy")
        arguments = made["attack"](folder, canary.folder / "secret.txt")
        kernels = folder / "kernels"
        (folder / "config.yaml").write_text(SETTINGS.format(
            problems=folder / "problems", kernels=kernels if kernels.exists() else DATA / "kernels"))
        text = _run(arguments, {
            **os.environ, **canary.environment, "TMPDIR": str(folder / TEMPORARY),
            "WARPWAVE_CONFIG": str(folder / "config.yaml"), "WARPWAVE_DB": str(folder / "records.db")})
        record = _record(text)
        evidence = canary.evidence(text)
        if told := made.get("gained", lambda *_all: "")(folder, record, text):
            evidence.append(told)
    return Trial(str(record.get("status", "no record")), None, 1.0, None, str(record.get("message", text[-500:])),
                 tuple(evidence), str(record.get("isolation", "")))


def _run(arguments: list[str], environment: dict[str, str]) -> str:
    """Everything that the command line prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scoring", *arguments], cwd=ROOT, env=environment, text=True, errors="replace",
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        text, _none = process.communicate(timeout=DEADLINE)
        return text
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _record(text: str) -> dict[str, Any]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict) and "status" in found:
                return found
    return {}
