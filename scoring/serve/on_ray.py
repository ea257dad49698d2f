# SPDX-License-Identifier: MIT
"""The executor on a Ray cluster: the judge runs on the node that has the device, and its record comes back.

Every node has this project at the same path, and the problems of the boards. The worker, its lease and the database
stay on the server's machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import backends
from backends.base import Device
from scoring.record import ExitCode
from scoring.remote import cluster
from scoring.run.select import SelectionError
from scoring.serve.executor import RAY_ADDRESS, JudgeDied, LocalExecutor, Lost

if TYPE_CHECKING:
    from scoring.config.load import Config

PROBE_SECONDS = 120.0
STARTS = 3                           # of an actor whose node ends before it judges
_TICK = 0.25


class Judge:
    """The actor: a judge's process on the node of its device. The actor itself imports no torch."""

    def __init__(self, config: str | None):
        os.environ.pop("OMP_NUM_THREADS", None)      # Ray sets it to 1
        self._executor = LocalExecutor(config)

    def events(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """As ``LocalExecutor.events``; a judge that died is the event ``died``."""
        try:
            yield from self._executor.events(job)
        except JudgeDied as error:
            yield {"event": "died", "text": str(error)}


class RayExecutor:
    """One device of the cluster: an actor that stays, so that torch is loaded once; a new one after it was ended."""

    def __init__(self, config: str | None):
        self._config = config
        self._ray = cluster.connect(os.environ[RAY_ADDRESS])
        self._actor: Any = None
        self._begun = False              # whether the actor has told anything of the job

    def run(self, job: Mapping[str, Any], tick: Callable[[str], bool]) -> dict[str, Any]:
        for attempt in range(1, STARTS + 1):
            self._begun = False
            try:
                return self._follow(job, tick)
            except Lost:
                self.close()
                raise
            except self._ray.exceptions.RayError as error:
                self.close()
                # Ray knows only seconds later that a node has ended, and may still choose it: nothing was judged there.
                if self._begun or attempt == STARTS:
                    why = str(error).strip().partition("\n")[0]
                    raise JudgeDied(f"the judge's node ended ({why})") from error
        raise AssertionError("unreachable")

    def _follow(self, job: Mapping[str, Any], tick: Callable[[str], bool]) -> dict[str, Any]:
        gpu = str(job["gpu"])
        text = f"waiting for a node with {gpu}"
        events: Any = None
        while True:
            if not tick(text):
                raise Lost
            if self._actor is None and not self._start(gpu):
                time.sleep(_TICK)
                continue
            if events is None:
                events = self._actor.events.options(num_returns="streaming").remote(dict(job))
            if not self._ray.wait([events], timeout=_TICK)[0]:
                continue
            reference = next(events, None)
            if reference is None:
                raise JudgeDied("the judge's actor ended without a record")
            event: dict[str, Any] = self._ray.get(reference)
            self._begun = True
            if event["event"] == "died":
                raise JudgeDied(event["text"])
            if event["event"] != "progress":
                return event
            text = event["text"]

    def close(self) -> None:
        if self._actor is not None:
            self._ray.kill(self._actor, no_restart=True)
            self._actor = None

    def _start(self, gpu: str) -> bool:
        """Ask Ray for an actor, which it starts once a device is free; False where no node has one."""
        if there := cluster.devices(self._ray).get(gpu):
            self._actor = self._ray.remote(Judge).options(max_restarts=0, **there.options).remote(self._config)
        return there is not None


def find_devices(config: Config, config_file: str | None, address: str) -> dict[str, list[Device]]:
    """The devices of the cluster by GPU label, as their nodes describe them. Raises ``SelectionError``."""
    ray = cluster.connect(address)
    try:
        found = {}
        for gpu, there in cluster.some_devices(ray).items():
            probe = ray.remote(_describe).options(max_retries=0, **there.options).remote(
                gpu, config_file, config.settings.emulate)
            try:
                found[gpu] = [ray.get(probe, timeout=PROBE_SECONDS)] * there.count
            except ray.exceptions.RayError as error:
                why = str(error).strip().rpartition("\n")[2]
                raise SelectionError(f"--ray {address}: {gpu}: {why}\n  every node needs this project at the same "
                                     "path, and a device that is free", ExitCode.UNAVAILABLE) from error
        return found
    finally:
        ray.shutdown()


def _describe(gpu: str, config_file: str | None, emulate: bool | None) -> Device:
    """On a node: its device of that label."""
    from scoring.config.load import load_config
    from scoring.serve.server import find_devices as find_local

    config = load_config({"emulate": emulate}, config_file)
    backends.use_cache(config.cache)
    backends.use_emulator(config.settings.emulate)
    return find_local(config, lambda _text: None)[gpu][0]
