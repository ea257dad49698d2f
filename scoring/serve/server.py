# SPDX-License-Identifier: MIT
"""The server's process: finds devices and boards, keeps a worker alive on each device, and answers requests."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp

import backends
from backends._home import PACKAGES as ROOT
from backends.base import Device
from scoring.config.load import Config, load_config
from scoring.record import ExitCode
from scoring.run.select import SelectionError
from scoring.serve import queue
from scoring.serve.executor import RAY_ADDRESS
from scoring.serve.storage.database import Database
from scoring.serve.worker import DATABASE, is_gone

_WATCH = 0.5
_RESTART = (1.0, 30.0)       # seconds before a worker that ended is started again: first, and at most


def find_devices(config: Config, tell: Callable[[str], None]) -> dict[str, list[Device]]:
    """The devices of this machine by GPU label, made ready; emulated ones where there is no real one."""
    found: dict[str, list[Device]] = {}
    for name in config.settings.backends:
        backend = backends.get(name)
        available = backend.prepare(backend.probe(), tell)
        for device in available.devices:
            found.setdefault(device.gpu, []).append(device)
    if not found:
        raise SelectionError("no device here; `python -m scoring doctor` says why", ExitCode.UNAVAILABLE)
    return found


def organiser_token(path: Path) -> tuple[str, bool]:
    """The token in $WARPWAVE_ADMIN_TOKEN, or in the file ``path``, which is made if need be; whether it was made."""
    if given := os.environ.get("WARPWAVE_ADMIN_TOKEN", ""):
        if len(given) < 16:
            raise SelectionError("WARPWAVE_ADMIN_TOKEN: 16 letters or more are needed", ExitCode.USAGE)
        return given, False
    if path.is_file():
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SelectionError(f"{path}: others may read it; run chmod 600 {path}", ExitCode.USAGE)
        return path.read_text(encoding="utf-8").strip(), False
    token = secrets.token_hex(20)
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(token + "\n")
    return token, True


@dataclass
class Post:
    """A worker's place: its command line, its process, and when to start the next one."""

    gpu: str
    arguments: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    not_before: float = 0.0
    pause: float = field(default=_RESTART[0])


class Workers:
    """Keeps one worker process per post; takes back the leases of those that end."""

    def __init__(self, database: Database, posts: Sequence[Post], tell: Callable[[str], None]):
        self.database, self.posts, self._tell = database, list(posts), tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="workers", daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, the workers run. They end with SIGTERM: what they judge is queued again."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
            for post in self.posts:
                if post.process is not None and post.process.poll() is None:
                    post.process.terminate()
            for post in self.posts:
                if post.process is not None:
                    try:
                        post.process.wait(15.0)
                    except subprocess.TimeoutExpired:
                        post.process.kill()
                        post.process.wait()

    def _watch(self) -> None:
        while not self._stop.is_set():
            ended = False
            for post in self.posts:
                now = time.monotonic()
                if post.process is not None and post.process.poll() is not None:
                    self._tell(f"worker {post.gpu} ended with code {post.process.returncode}; it is started again")
                    post.process, post.not_before, ended = None, now + post.pause, True
                    post.pause = min(2 * post.pause, _RESTART[1])
                if post.process is None and now >= post.not_before:
                    post.process = subprocess.Popen(
                        post.arguments, env=post.environment, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
                    post.not_before = now
                elif post.process is not None and now - post.not_before > 60:
                    post.pause = _RESTART[0]
            if ended:
                try:
                    with self.database.write() as session:
                        queue.release(session, is_gone)
                except SQLAlchemyError as error:       # a worker releases them later, or the lease runs out
                    self._tell(f"leases of ended workers: {error}")
            self._stop.wait(_WATCH)


def posts_for(
    devices: dict[str, list[Device]], gpus: set[str], database: str, config: str | None, lease_seconds: float,
    ray: str | None = None,
) -> list[Post]:
    """One post per GPU that boards need, and one for the host: what is timed on the CPU, and what emulates a device
    there, take turns. A worker sees its own GPU alone. ``ray``: the address of the cluster that has the devices; then
    there is one post per device, whatever it is."""
    host: dict[str, Device] = {}
    found = []
    for gpu in sorted(gpus & set(devices)):
        for device in devices[gpu]:
            if ray is not None:
                found.append(_post({gpu: device}, {**worker_environment(database), RAY_ADDRESS: ray}, config,
                                   lease_seconds, "scoring.serve.on_ray:RayExecutor"))
                continue
            if device.emulated or backends.labels()[gpu].backend in _hosts():
                host[gpu] = device
                continue
            environment = worker_environment(database)
            for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
                known = [part for part in environment.get(variable, "").split(",") if part]
                environment[variable] = known[device.index] if device.index < len(known) else str(device.index)
            found.append(_post({gpu: device}, environment, config, lease_seconds))
    if host:
        found.append(_post(host, worker_environment(database), config, lease_seconds))
    return found


def _hosts() -> set[str]:
    return {backend.name for backend in backends.every() if backend.on_host}


def _post(devices: Mapping[str, Device], environment: dict[str, str], config: str | None, lease_seconds: float,
          executor: str | None = None) -> Post:
    arguments = [sys.executable, "-m", "scoring.serve.worker", "--lease-seconds", str(lease_seconds), "--parent",
                 str(os.getpid())]
    for gpu, device in devices.items():
        arguments += ["--gpu", gpu, "--device", device.name]
    arguments += ["--config", config] if config else []
    arguments += ["--executor", executor] if executor else []
    return Post(", ".join(devices), arguments, environment)


def worker_environment(database: str) -> dict[str, str]:
    """The environment of a worker: ours without the organiser's token. The database's URL may hold a password, which a
    command line would show to everybody."""
    environment = {name: value for name, value in os.environ.items() if name != "WARPWAVE_ADMIN_TOKEN"}
    environment[DATABASE] = database
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return environment


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    host: str
    port: int
    token_file: Path
    config: str | None = None
    secure: bool = False
    ray: str | None = None


def serve(
    config: Config, database: Database, asked: Asked, devices: dict[str, list[Device]], tell: Callable[[str], None],
) -> int:
    """Run the server until a signal ends it; the exit code. ``devices`` by GPU label. Raises ``SelectionError``."""
    from scoring.sandbox import cleanup
    from scoring.serve import catalogue
    from scoring.serve.api.app import create_app
    from scoring.serve.api.service import Service

    settings = config.settings.serve
    cleanup.clean()
    first = {gpu: several[0] for gpu, several in devices.items()}
    entries, left = catalogue.entries(config, first)
    for line in left:
        tell(line)
    token, is_new = organiser_token(asked.token_file)
    with database.write() as session:
        catalogue.sync(session, entries)
        queue.release(session, is_gone)
    gpus = {gpu for entry in entries for gpu in entry.gpus}
    posts = posts_for(devices, gpus, database.url, asked.config, settings.lease_seconds, asked.ray)
    workers = Workers(database, posts, tell)

    def reload() -> list[catalogue.Entry]:
        return catalogue.entries(load_config({"emulate": config.settings.emulate}, asked.config), first)[0]

    app = create_app(Service(database, settings, token, reload, asked.secure))
    where = f"http://{asked.host}:{asked.port}"
    for entry in entries:
        tell(f"leaderboard {entry.name} on {', '.join(entry.gpus)}: {len(entry.problem.tests)} tests, "
             f"{len(entry.problem.benchmarks)} benchmarks")
    if token == os.environ.get("WARPWAVE_ADMIN_TOKEN"):
        tell("the organiser's token is that of $WARPWAVE_ADMIN_TOKEN")
    else:
        tell(f"the organiser's token {'is new and ' * is_new}lies in {asked.token_file}")
    tell(f"serving {where}\n  popcorn-cli: export POPCORN_API_URL={where}; popcorn-cli register github")
    with workers.running():
        listen(app, asked.host, asked.port)
    return ExitCode.OK


def listen(app: ASGIApp, host: str, port: int) -> None:
    """Answer requests until a signal ends it.

    Idle connections are kept for longer than clients wait between two polls (popcorn-cli: 5 s). One that the server
    closes just when the next poll is sent would be an error to the client.
    """
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=5, timeout_keep_alive=75,
                limit_concurrency=1000, h11_max_incomplete_event_size=32_768, server_header=False, access_log=False)
