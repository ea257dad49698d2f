# SPDX-License-Identifier: MIT
"""Load and faults of the contest server, with a judge that judges nothing. Figures: benchmarks/server.md.

    python -m benchmarks.tools.serve_load load  [--people 200] [--submissions 2600] [--every 5]
    python -m benchmarks.tools.serve_load faults [--kills 50]

The server, its workers and its database are the real ones, in processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx
from sqlalchemy import func, select

from scoring.config.schema import Serve
from scoring.record import Case, CaseResult, Mode, Record, Stats, Status
from scoring.serve import accounts, queue, server
from scoring.serve.api.app import create_app
from scoring.serve.api.service import Service
from scoring.serve.executor import Lost
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import Board, Lease, Result, Submission
from scoring.serve.worker import is_gone

WORKERS = 2
SETTINGS = Serve(requests_per_second=1e6, queued_per_person=10_000, submissions_per_hour=1_000_000, lease_seconds=5.0)


def _record(seconds: float) -> Record:
    """Ten cases that passed."""
    stats = Stats(9, seconds, seconds, seconds, seconds, 0.0, 0.0, seconds, seconds)
    cases = [CaseResult(Case({"n": n}, "benchmarks"), Status.PASSED, stats=stats) for n in range(10)]
    return Record(
        id="0" * 32, created="2026-01-01T00:00:00+00:00", problem="load", kernel="stub", digest="", backend="cpu",
        target="x86_64", gpu="CPU", device="stub", mode=Mode.LEADERBOARD, status=Status.PASSED, score=seconds,
        protocol="stub/1", cases=tuple(cases))


class Stub:
    """Takes a moment for each submission, as $STUB_SECONDS says."""

    def __init__(self, config: str | None = None):
        self._seconds = float(os.environ["STUB_SECONDS"])

    def run(self, job: Mapping[str, Any], tick: Callable[[str], bool]) -> dict[str, Any]:
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            if not tick("judging"):
                raise Lost
            time.sleep(0.01)
        return {"event": "done", "record": _record(random.uniform(1e-6, 2e-6)).to_json()}

    def close(self) -> None:
        pass


def serve(folder: Path, port: int) -> None:
    """The server's process: what ``serve`` does once it has found boards and devices."""
    database = Database(str(folder / "contest.db"))
    database.migrate()
    with database.write() as session:
        queue.release(session, is_gone)
        if session.scalar(select(Board.id)) is None:
            session.add(Board(name="board", problem={}, description="load", gpus=["CPU"], secret=secrets.token_hex(32),
                              created=time.time(), deadline=None, task={"tests": [], "benchmarks": []}))
    environment = server.worker_environment(database.url)
    arguments = [sys.executable, "-m", "scoring.serve.worker", "--gpu", "CPU", "--device", "stub", "--executor",
                 "benchmarks.tools.serve_load:Stub", "--lease-seconds", str(SETTINGS.lease_seconds), "--parent",
                 str(os.getpid())]
    posts = [server.Post("CPU", arguments, environment) for _ in range(WORKERS)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))        # so that the workers are ended, as `serve` does
    with server.Workers(database, posts, lambda text: print(text, file=sys.stderr)).running():
        server.listen(create_app(Service(database, SETTINGS)), "127.0.0.1", port)


class Running:
    """The server in a process, and what it uses."""

    def __init__(self, folder: Path, judge_seconds: float):
        self.folder = folder
        self._environment = {**os.environ, "STUB_SECONDS": str(judge_seconds)}
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        self.base = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.tools.serve_load", "serve", str(self.folder), str(self.port)],
                stdout=log, stderr=log, env=self._environment)
        while self.process.poll() is None:
            try:
                if httpx.get(f"{self.base}/health", timeout=5).is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise SystemExit(f"the server ended:\n{(self.folder / 'log').read_text()[-4000:]}")

    def workers(self) -> list[int]:
        """A thread of the server starts them, and /proc lists children by thread."""
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for children in lists for pid in children.read_text().split()]

    def resident(self) -> float:
        """MiB of the server's process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tokens(folder: Path, count: int) -> list[str]:
    database = Database(str(folder / "contest.db"))
    with database.write() as session:
        made = [accounts.register(session, True)[1] for _ in range(count)]
    database.close()
    return made


def audit(folder: Path, accepted: set[int]) -> dict[str, Any]:
    """What became of every accepted submission: the primary key of ``result`` allows no second one."""
    database = Database(str(folder / "contest.db"))
    with database.read() as session:
        results = dict(session.execute(select(Result.submission_id, Submission.status).join(
            Submission, Submission.id == Result.submission_id)).all())
        attempts = Counter(session.scalars(select(Submission.attempts)))
        leases = session.scalar(select(func.count()).select_from(Lease))
    database.close()
    return {"accepted": len(accepted), "with one result": len(accepted & results.keys()),
            "lost": len(accepted - results.keys()),
            "states": dict(Counter(results[n] for n in accepted & results.keys())),
            "attempts": dict(sorted(attempts.items())), "leases left": leases}


def results(folder: Path) -> int:
    """How many submissions are done."""
    with sqlite3.connect(folder / "contest.db") as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM result").fetchone()
    connection.close()
    return int(count)


async def load(options: argparse.Namespace, running: Running) -> dict[str, Any]:
    """Everybody submits once per ``every`` seconds until their share is sent, and polls as often until all is done."""
    people = tokens(running.folder, options.people)
    each = options.submissions // options.people
    latency: dict[str, list[float]] = {"submit": [], "poll": [], "list": [], "ranks": [], "queue": []}
    accepted: set[int] = set()
    memory: list[float] = []
    queued: list[int] = []
    limits = httpx.Limits(max_connections=options.people + 1, max_keepalive_connections=options.people + 1)
    async with httpx.AsyncClient(base_url=running.base, timeout=60, limits=limits) as http:
        async def call(kind: str, method: str, path: str, **more: Any) -> Any:
            started = time.perf_counter()
            answer = await http.request(method, path, **more)
            latency[kind].append(time.perf_counter() - started)
            assert answer.is_success, answer.text
            return answer.json()

        async def person(number: int, token: str) -> None:
            mine = {"X-Popcorn-Cli-Id": token}
            due = time.monotonic() + options.every * number / options.people
            waiting: list[int] = []
            sent = 0
            while sent < each or waiting:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due += options.every
                if sent < each:
                    sent += 1
                    text = f"# {number} {sent}\n" + "x = 1\n" * 200
                    told = await call("submit", "POST", "/submission/board/CPU/leaderboard", headers=mine,
                                      files={"file": ("s.py", text.encode())})
                    waiting.append(told["details"]["id"])
                    accepted.add(waiting[-1])
                told = await call("poll", "GET", f"/user/submissions/{waiting[0]}", headers=mine)
                if told["done"]:
                    waiting.pop(0)
                if random.random() < 0.1:
                    await call("list", "GET", "/user/submissions?leaderboard=board", headers=mine)
                    await call("ranks", "GET", "/submissions/board/CPU")

        async def watch() -> None:
            while True:
                memory.append(running.resident())
                queued.append((await call("queue", "GET", "/runner_queue/CPU"))["queued_jobs"])
                await asyncio.sleep(2)

        while (await call("queue", "GET", "/runner_queue/CPU"))["available_runners"] < WORKERS:
            await asyncio.sleep(0.2)
        watching = asyncio.create_task(watch())
        started, busy = time.monotonic(), time.process_time()
        await asyncio.gather(*(person(number, token) for number, token in enumerate(people)))
        watching.cancel()
    quarter = max(1, len(memory) // 4)
    latency["all"] = [seconds for found in latency.values() for seconds in found]
    return {
        "seconds": round(time.monotonic() - started, 1), "server CPU seconds": running.cpu_seconds(),
        "client CPU seconds": round(time.process_time() - busy, 1),
        "load average": [round(each, 1) for each in os.getloadavg()], "longest queue": max(queued),
        "milliseconds": {kind: {"calls": len(found), **{f"p{q}": round(1e3 * quantile(found, q / 100), 1)
                                                        for q in (50, 95, 99)}}
                         for kind, found in latency.items()},
        "MiB": {f"quarter {at + 1}": round(max(memory[at * quarter:(at + 1) * quarter]), 1) for at in range(4)
                if memory[at * quarter:(at + 1) * quarter]},
        **audit(running.folder, accepted)}


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def faults(options: argparse.Namespace, running: Running) -> dict[str, Any]:
    """Several people submit all the time, while the server or a worker is killed at random moments."""
    accepted, killed, refused = set[int](), Counter[str](), Counter[str]()
    stop = threading.Event()

    def submit(token: str) -> None:
        mine = {"X-Popcorn-Cli-Id": token}
        while not stop.wait(random.uniform(0.0, 0.3)):
            try:
                answer = httpx.post(f"{running.base}/submission/board/CPU/leaderboard", headers=mine, timeout=30,
                                    files={"file": ("s.py", f"# {random.random()}".encode())})
            except httpx.TransportError as error:
                refused[type(error).__name__] += 1
                continue
            if answer.status_code == 202:
                accepted.add(answer.json()["details"]["id"])
            else:
                refused[str(answer.status_code)] += 1

    threads = [threading.Thread(target=submit, args=(token,)) for token in tokens(running.folder, 3)]
    for thread in threads:
        thread.start()
    while killed.total() < options.kills:
        before, until = results(running.folder), time.monotonic() + 60
        while results(running.folder) == before and time.monotonic() < until:
            time.sleep(0.05)                 # each kill hits a server that judges again
        time.sleep(random.uniform(0.0, 1.5))
        workers = running.workers()
        if random.random() < 0.5:
            killed["server"] += 1
            running.process.kill()
            running.process.wait()
            running.start()
        elif workers:
            killed["worker"] += 1
            os.kill(random.choice(workers), signal.SIGKILL)
    stop.set()
    for thread in threads:
        thread.join()
    until = time.monotonic() + 600
    while time.monotonic() < until and audit(running.folder, accepted)["lost"]:
        time.sleep(1.0)
    return {"kills": dict(killed), "not accepted": dict(refused), "load average": round(os.getloadavg()[0], 1),
            **audit(running.folder, accepted)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tools.serve_load")
    verbs = parser.add_subparsers(dest="verb", required=True)
    loading = verbs.add_parser("load")
    loading.add_argument("--people", type=int, default=200)
    loading.add_argument("--submissions", type=int, default=2600, help="of all people together")
    loading.add_argument("--every", type=float, default=5.0, help="seconds between two polls of one person")
    loading.add_argument("--judge-seconds", type=float, default=0.25, help="of one submission, with two workers")
    failing = verbs.add_parser("faults")
    failing.add_argument("--kills", type=int, default=50)
    failing.add_argument("--judge-seconds", type=float, default=0.05)
    serving = verbs.add_parser("serve")
    serving.add_argument("folder", type=Path)
    serving.add_argument("port", type=int)
    options = parser.parse_args()
    if options.verb == "serve":
        serve(options.folder, options.port)
        return
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder), options.judge_seconds)
        try:
            found = asyncio.run(load(options, running)) if options.verb == "load" else faults(options, running)
        finally:
            running.process.terminate()
            running.process.wait(60)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
