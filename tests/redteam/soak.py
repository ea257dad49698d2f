# SPDX-License-Identifier: MIT
"""``python -m tests.redteam.soak [COUNT]``: judgements of good, wrong, crashing, hanging and flooding files in a row.

Three judges at a time (``--jobs``), of which every fourth is killed (``--kill``; ``tests.redteam.crowd``). At the end
no process, file or control group is left of them, and the store has a whole record of each judgement that was not
killed.

``--jobs 0``: all in this process. At the end, and every hundred on the way, nothing may be left of them: no process,
descriptor, mapping, file, control group or shared memory; the judge's memory is flat. Exit code 1 otherwise. ``--device
cuda`` does the same on a GPU, whose free memory must come back, too.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scoring.judge.score import score
from scoring.record import Mode, Status
from scoring.store.store import Store
from tests.redteam import bench
from tests.redteam.crowd import Crowd, File

HERE = Path(__file__).resolve().parent
GROWTH = 48 << 20            # bytes that the judge may be larger at the end than after the first round of files
SETTINGS: Mapping[str, Any] = {
    "limits.load_seconds": 20.0, "limits.first_call_seconds": 3.0, "limits.call_seconds": 3.0,
    "timing.processes": 1, "timing.min_rounds": 1, "timing.max_rounds": 2, "timing.seconds": 0.05,
}
GOOD, WRONG, ENDED = (Status.PASSED,), (Status.INCORRECT_NUMERICAL, Status.INCORRECT_SHAPE), (Status.RUNTIME_ERROR,)
# What the files do, and what must become of them. ``{x}`` is the honest answer.
BODIES: tuple[tuple[str, str, tuple[Status, ...]], ...] = (
    ("good", "return {x}", GOOD),
    ("wrong", "return {x} * 1.5", WRONG),
    ("good in place", "return data[2].copy_({x}) if len(data) > 2 else {x}", GOOD),
    ("raising", "raise ValueError('no')", ENDED),
    ("shape", "return {x}[:1]", WRONG),
    ("crashing", "import ctypes; ctypes.string_at(0)", ENDED),
    ("good with threads",
     "import threading; t = threading.Thread(target=id, args=(0,)); t.start(); t.join()\n    return {x}", GOOD),
    ("flooding", "print('x' * 4_000_000, flush=True); return {x}", GOOD),
    ("leaving", "import os; os._exit(0)", ENDED),
    ("littering", "import tempfile; tempfile.mkdtemp(); open('/dev/shm/left', 'w').write('x' * 10**6); return {x}",
     (*GOOD, *ENDED)),
    ("forking", "import os, time\n    if os.fork() == 0:\n        os.setsid(); time.sleep(600)\n    return {x}", GOOD),
    ("hanging", "import time; time.sleep(600)", (Status.TIMEOUT,)),
    ("killing", "import os; os.kill(os.getpid(), 9)", ENDED),
)
FILE = "# SPDX-License-Identifier: MIT\nimport torch\n\n\ndef custom_kernel(data):\n    {body}\n"
HONEST = "torch.softmax(data[0] * data[1], dim=-1)"        # of the problem ``foreign``


def leavings(folder: Path) -> dict[str, int]:
    """What a judgement could leave: counts by kind."""
    processes = bench.descendants(os.getpid())
    groups = list(Path("/sys/fs/cgroup").glob(f"**/warpwave-{os.getpid()}-*"))       # other judges have theirs
    return {
        "processes": len(processes),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "mappings": Path("/proc/self/maps").read_text().count("memfd:warpwave"),
        "files in the temporary folder": len(list(folder.iterdir())),
        "shared memory": len(list(Path("/dev/shm").iterdir())),
        "control groups": len(groups),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def device_memory(device: str) -> int:
    """Free bytes of the GPU; 0 without one."""
    if device != "cuda":
        return 0
    import torch

    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def soak(
    count: int, device: str, mode: Mode, tell: Callable[[str], None], jobs: int = 0, kill: int = 4,
    seconds: float = math.inf,
) -> list[str]:
    """Judge ``count`` files, ``jobs`` at a time of which one in ``kill`` is killed, or all in this process; what is
    wrong afterwards, nothing if all is well. Of ``jobs`` none begins after ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="warpwave-soak-") as outer:
        folder, tmp = Path(outer) / "files", Path(outer) / "tmp"
        folder.mkdir()
        tmp.mkdir(mode=0o777)
        tempfile.tempdir = str(tmp)
        try:
            if jobs:
                crowd = Crowd(_files(folder), folder, tmp, jobs, kill, device, mode)
                return _crowd(count, tmp, tell, crowd, seconds)
            return _soak(count, device, mode, folder, tmp, tell)
        finally:
            tempfile.tempdir = None


def _files(folder: Path) -> list[File]:
    files = []
    for name, body, expected in BODIES:
        path = folder / f"{name.replace(' ', '_')}.py"
        path.write_text(FILE.format(body=body.format(x=HONEST)))
        files.append((name, path, expected))
    return files


def _crowd(count: int, tmp: Path, tell: Callable[[str], None], crowd: Crowd, limit: float) -> list[str]:
    crowd.settings.update(SETTINGS)
    started, before = time.monotonic(), leavings(tmp)
    crowd.judge(count, tell, limit)
    wrong = [*crowd.wrong, *crowd.left()]
    wrong += [f"{kind}: {now} were {before[kind]}" for kind, now in leavings(tmp).items() if now > before[kind]]
    for line, times in sorted(crowd.found.items()):
        tell(f"{times:5} {line}")
    seconds = time.monotonic() - started
    tell(f"{crowd.begun} judgements in {seconds:.0f} s, {crowd.jobs} at a time, {crowd.killed} judges killed")
    return wrong


def _soak(count: int, device: str, mode: Mode, folder: Path, tmp: Path, tell: Callable[[str], None]) -> list[str]:
    files = _files(folder)
    store, found, wrong = Store(folder / "records.db"), Counter[str](), []
    before, size, free, started = {}, 0, 0, time.monotonic()
    for index in range(count):
        name, path, expected = files[index % len(files)]
        with tempfile.TemporaryDirectory(dir=tmp) as staging:
            record = score(bench.job(device, path, "foreign", Path(staging), {**SETTINGS, "mode": mode}))
        store.add(record)
        found[f"{name}: {record.status}"] += 1
        if record.status not in expected:
            wrong.append(f"{index}: {name} came out as {record.status}: {record.message[:300]}")
        if index == 2 * len(files) - 1:
            before, size, free = leavings(tmp), resident(), device_memory(device)
        elif before and (index + 1) % 100 == 0:
            tell(f"{index + 1}: {(resident() - size) / 2**20:+.1f} MiB, {time.monotonic() - started:.0f} s")
            wrong += [f"after {index + 1}: {kind}: {now} were {before[kind]}" for kind, now in leavings(tmp).items()
                      if now > before[kind]]
    grown = resident() - size
    if before and grown > GROWTH:
        wrong.append(f"the judge grew by {grown / 2**20:.0f} MiB")
    if before and device_memory(device) < free - (64 << 20):
        wrong.append(f"{(free - device_memory(device)) / 2**20:.0f} MiB of the GPU's memory did not come back")
    with sqlite3.connect(folder / "records.db") as connection:
        (intact,), (kept,) = (connection.execute(query).fetchone() for query in
                              ("PRAGMA integrity_check", "SELECT count(*) FROM records"))
    if intact != "ok" or kept != count:
        wrong.append(f"the store: {intact}, {kept} records of {count}")
    for line, times in sorted(found.items()):
        tell(f"{times:5} {line}")
    tell(f"{count} judgements in {time.monotonic() - started:.0f} s, the judge's memory {grown / 2**20:+.1f} MiB")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.redteam.soak", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--mode", choices=[str(mode) for mode in Mode], default="test")
    parser.add_argument("--jobs", type=int, default=3, help="judges at a time; 0: all judgements in this process")
    parser.add_argument("--kill", type=int, default=4, help="one of how many judges is killed; 0: none")
    parser.add_argument("--minutes", type=float, default=math.inf, help="with --jobs: none begins later than that")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    wrong = soak(options.count, options.device, Mode(options.mode), lambda line: print(line, flush=True), options.jobs,
                 options.kill, 60 * options.minutes)
    print("\n".join(wrong) or "nothing was left behind")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
