# SPDX-License-Identifier: MIT
"""A Ray cluster: which devices it has, and bundles that run on its nodes. ``run --ray`` and ``serve --ray`` use it.

A device is a custom resource, ``device:H100`` for the label H100. A node says how many it has when it starts::

    ray start --address HEAD:6379 --num-gpus 8 --resources '{"device:H100": 8}'

Ray never runs more on a label than it has devices. With ``--num-gpus`` it also shows each process its own GPU alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import backends
from scoring.record import ExitCode
from scoring.remote import node
from scoring.run.select import SelectionError

PREFIX = "device:"
ATTEMPTS = 2                 # of a job whose node ends


class NodeLost(Exception):
    """The node that ran a job ended, or its process; the message says how."""


@dataclass(frozen=True)
class Devices:
    """All devices of one label in a cluster; ``options`` are what a task or actor asks Ray for, to have one."""

    gpu: str
    count: int
    options: dict[str, Any]


def connect(address: str) -> Any:
    """The package ``ray``, connected to the cluster at ``address``. Raises ``SelectionError`` (4)."""
    try:
        import ray
    except ModuleNotFoundError:
        raise SelectionError("--ray needs the package ray, which this Python does not have\n"
                             "  pip install 'warpwave[ray]'", ExitCode.UNAVAILABLE) from None
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SelectionError(f"--ray {address}: {str(error).partition(chr(10))[0]}\n"
                             "  `ray start --head` starts a cluster and prints its address",
                             ExitCode.UNAVAILABLE) from error
    return ray


def devices(ray: Any) -> dict[str, Devices]:
    """The devices of the cluster by GPU label. Raises ``SelectionError`` (2) for a label that no backend knows."""
    known, found = backends.labels(), {}
    nodes = [each["Resources"] for each in ray.nodes() if each["Alive"]]
    for gpu in sorted({name.removeprefix(PREFIX) for each in nodes for name in each if name.startswith(PREFIX)}):
        if gpu not in known:
            raise SelectionError(f"the cluster's resource {PREFIX}{gpu}: no such GPU; there are {', '.join(known)}",
                                 ExitCode.USAGE)
        mine = [each for each in nodes if PREFIX + gpu in each]
        whole = all("GPU" in each for each in mine) and not backends.get(known[gpu].backend).on_host
        found[gpu] = Devices(gpu, int(sum(each[PREFIX + gpu] for each in mine)), {
            "resources": {PREFIX + gpu: 1}, "num_cpus": 0, "num_gpus": 1 if whole else 0})
    return found


def some_devices(ray: Any) -> dict[str, Devices]:
    """As ``devices``. Raises ``SelectionError`` (4) if there is none."""
    if found := devices(ray):
        return found
    raise SelectionError("no node of the cluster has a device: ray start … --resources '{\"device:H100\": 1}'",
                         ExitCode.UNAVAILABLE)


class Running:
    """Bundles that run on the cluster at once; ``news`` tells what comes back from them."""

    def __init__(self, ray: Any):
        from ray import cloudpickle

        cloudpickle.register_pickle_by_value(node)       # nodes have Python and torch, and nothing of ours
        self._ray = ray
        self._task = ray.remote(max_retries=0)(node.judge)
        self._jobs: dict[Any, tuple[str, Devices, bytes, tuple[str, ...], int]] = {}

    def add(self, name: str, where: Devices, packed: bytes, *arguments: str, attempt: int = 1) -> None:
        """Queue a bundle for a device; Ray waits until one is free. ``arguments`` of ``node.judge``."""
        running = self._task.options(num_returns="streaming", **where.options).remote(packed, *arguments)
        self._jobs[running] = (name, where, packed, arguments, attempt)

    def news(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(name, what ``node.judge`` says), until all have ended. Where a node ends, its job starts again once; then
        ``NodeLost`` is raised."""
        while self._jobs:
            ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=1.0, fetch_local=False)
            for running in ready:
                name, where, packed, arguments, attempt = self._jobs[running]
                try:
                    yield name, self._ray.get(next(running))
                except StopIteration:
                    del self._jobs[running]
                except self._ray.exceptions.RayError as error:
                    del self._jobs[running]
                    why = str(error).strip().partition("\n")[0]
                    if attempt >= ATTEMPTS:
                        raise NodeLost(f"{name} was begun {attempt} times without an end: {why}") from error
                    yield name, {"line": f"its node ended ({why}); it is begun again"}
                    self.add(name, where, packed, *arguments, attempt=attempt + 1)

    def close(self) -> None:
        """End what still runs."""
        for running in self._jobs:
            self._ray.cancel(running, force=True)
