# SPDX-License-Identifier: MIT
"""What a bundle does on the other machine, which has Python and torch and nothing else: ``run.py`` of the bundle.

    run.py               run in the foreground; records go to records.jsonl, one line each
    run.py probe         print what is here, as JSON
    run.py state         print whether a run is "running", "done" or "ended" before its end
    run.py start         run in the background, unless that is going on or done
    run.py follow R L    print what comes behind byte R of the records and byte L of the log, until the run ends
    run.py stop          end the run; it keeps what is judged

Standard library alone until a run begins. ``lock`` is held as long as the run lives; ``exit`` has its exit code.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CODE, PACKAGES = HERE / "code", HERE / "packages"
RECORDS, LOG, EXIT, LOCK, PID, DATABASE = (
    HERE / name for name in ("records.jsonl", "log.txt", "exit", "lock", "pid", "records.db"))
OURS = ("WARPWAVE_CONFIG", "WARPWAVE_BACKEND", "WARPWAVE_DB", "WARPWAVE_CACHE_DIR")
OLDEST = (3, 11)
SECONDS_BETWEEN = 0.2        # looks at the files while following
SECONDS_SILENT = 5.0         # after which a line without news shows that the connection lives


def main(arguments: list[str]) -> int:
    match arguments:
        case [] | ["run"]:
            return run()
        case ["probe"]:
            print(json.dumps(probe()), flush=True)
        case ["state"]:
            print(json.dumps({"state": state()}), flush=True)
        case ["start"]:
            print(json.dumps({"state": start()}), flush=True)
        case ["follow", records, log]:
            follow(int(records), int(log))
        case ["stop"]:
            stop()
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    return 0


def missing() -> str:
    """What this machine lacks, in one sentence; "" if nothing."""
    if sys.version_info < OLDEST:
        return f"{sys.executable} is Python {platform.python_version()}; a bundle needs 3.11 or newer"
    if importlib.util.find_spec("torch") is None:
        return f"{sys.executable} has no torch; name a Python that has it (PYTHON=… sh run.sh, or run --host-python)"
    return ""


def prepare() -> dict[str, Any]:
    """Make the bundle's modules importable; its job."""
    if lacking := missing():
        raise SystemExit(f"error: {lacking}")
    job: dict[str, Any] = json.loads((HERE / "job.json").read_text())
    sys.path[:] = [str(CODE), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE), str(PACKAGES)]
    for name in OURS:
        os.environ.pop(name, None)
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch  # noqa: F401 - the devices are asked of it where no other package tells them

    import backends

    backends.use_cache(HERE / "cache")
    backends.use_prebuilt(HERE / "prebuilt")
    backends.use_emulator(job["emulate"])
    return job


def probe() -> dict[str, Any]:
    """Compilers and devices of every backend, and the versions of what runs here."""
    if lacking := missing():
        return {"missing": lacking}
    prepare()
    import dataclasses

    import torch

    import backends

    found = {}
    for name in backends.names():
        available = backends.get(name).probe()
        found[name] = {"compiler": available.compiler, "reasons": list(available.reasons),
                       "devices": [dataclasses.asdict(device) for device in available.devices]}
    return {"python": platform.python_version(), "torch": torch.__version__, "node": platform.node(),
            "machine": platform.machine(), "backends": found}


def run() -> int:
    """The run itself; 2 if one is going on."""
    job = prepare()
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.stderr.write("error: this bundle is running already\n")
        return 2
    PID.write_text(str(os.getpid()))
    EXIT.unlink(missing_ok=True)
    os.chdir(CODE)
    from scoring.cli import main as scoring

    again = ["--resume"] if DATABASE.is_file() and job["resumable"] else []
    code = 3
    try:
        code = scoring([*job["arguments"], "--records", str(RECORDS), *again])
    except SystemExit as stopped:        # argparse
        code = stopped.code if isinstance(stopped.code, int) else 2
    finally:
        waiting = EXIT.with_name("exit.new")
        waiting.write_text(str(int(code)))
        waiting.replace(EXIT)
    return int(code)


def alive() -> bool:
    """Whether the run lives, whoever started it."""
    if not LOCK.exists():
        return False
    lock = os.open(LOCK, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def state() -> str:
    """``running``; ``done``, with an exit code of its own; or ``ended`` by a signal or not begun."""
    if alive():
        return "running"
    return "done" if EXIT.exists() and int(EXIT.read_text()) < 128 else "ended"


def start() -> str:
    """``running`` and ``done`` if there is nothing to start, else ``started``."""
    if (now := state()) != "ended":
        return now
    EXIT.unlink(missing_ok=True)
    with LOG.open("ab") as log:
        subprocess.Popen(
            [sys.executable, str(HERE / "run.py"), "run"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=log, start_new_session=True)
    deadline = time.monotonic() + 60.0
    while not alive() and not EXIT.exists() and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN)
    return "started"


def follow(records: int, log: int) -> None:
    """Lines of JSON: ``record`` or ``log`` with the places behind them, then ``exit`` or ``died``."""
    told = time.monotonic()
    while True:
        living = alive()             # asked first: what a run that has ended wrote is there when it is read
        for line, end in lines(RECORDS, records):
            records = end
            say(record=json.loads(line), records=records)
        for line, end in lines(LOG, log):
            log = end
            say(line=line.decode(errors="replace"), log=log)
        if EXIT.exists() and not living:
            return say(exit=int(EXIT.read_text()))
        if not living:
            return say(died=True)
        if time.monotonic() - told > SECONDS_SILENT:
            say()
            told = time.monotonic()
        time.sleep(SECONDS_BETWEEN)


def lines(path: Path, start: int) -> list[tuple[bytes, int]]:
    """The whole lines of a file behind the byte ``start``, each with the place of its end."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(start)
        found = []
        for line in file:
            if line.endswith(b"\n"):
                start += len(line)
                found.append((line.rstrip(b"\n"), start))
        return found
    return []


def say(**news: Any) -> None:
    print(json.dumps(news), flush=True)


def stop() -> None:
    """Ask the run to end, and wait until it has kept what is judged."""
    if not alive():
        return
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(PID.read_text()), signal.SIGTERM)
    deadline = time.monotonic() + 30.0
    while alive() and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
