# SPDX-License-Identifier: MIT
"""Judges on a Ray cluster of several nodes on this machine, one of which is killed in the middle.

The nodes talk over 127.0.0.2: Ray takes 127.0.0.1 for the name of the machine's other address, which a firewall may
close.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scoring.remote import cluster
from scoring.run.select import SelectionError
from scoring.serve import on_ray, server
from scoring.serve.executor import RAY_ADDRESS, JudgeDied, Lost
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import Lease, Result, Submission
from scoring.serve.worker import Loop
from tests.scoring.serve.conftest import add_account, add_board
from tests.scoring.serve.fakes import record
from tests.scoring.serve.judge_on_ray import Judge
from tests.scoring.serve.test_queue import submit

pytest.importorskip("ray", reason="the package ray is not installed")
pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]
ADDRESS = "127.0.0.2"


class Nodes:
    """A head without devices, and nodes that have one each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        from ray.cluster_utils import Cluster

        for name, value in (("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_ADDRESS", ""), ("RAY_worker_niceness", "0")):
            monkeypatch.setenv(name, value)
        self._given = {"num_cpus": 0, "object_store_memory": 80 << 20, "node_ip_address": ADDRESS}
        quick = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000,
                 "health_check_failure_threshold": 3}
        self.cluster = Cluster(initialize_head=True, head_node_args={
            **self._given, "include_dashboard": False, "_system_config": quick})
        self.address = self.cluster.address
        self.nodes: list[Any] = []

    def add(self, **resources: int) -> None:
        self.nodes.append(self.cluster.add_node(**self._given, resources=resources))

    def kill(self, number: str) -> None:
        (node,) = (each for each in self.nodes if each.node_id == number)
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    import ray

    found = Nodes(monkeypatch)
    try:
        for _ in range(2):
            found.add(**{"device:CPU": 1})
        monkeypatch.setenv(RAY_ADDRESS, found.address)
        yield found
    finally:
        ray.shutdown()
        found.cluster.shutdown()


@pytest.fixture
def executor(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[on_ray.RayExecutor]:
    monkeypatch.setattr(on_ray, "Judge", Judge)
    found = on_ray.RayExecutor(json.dumps(record(2e-6).to_json()))
    yield found
    found.close()


def job(text: str) -> dict[str, Any]:
    return {"source": text, "mode": "leaderboard", "gpu": "CPU", "submission": 1}


def always(_text: str) -> bool:
    return True


def test_a_killed_node_costs_an_attempt_and_no_submission(nodes, executor, local: Database, tmp_path):
    """Also: what a cluster has, cancelling, and a judge that dies by itself."""
    seen = tmp_path / "seen"
    assert {gpu: found.count for gpu, found in cluster.devices(executor._ray).items()} == {"CPU": 2}
    assert executor.run(job("# 1"), always)["event"] == "done"
    with pytest.raises(JudgeDied, match="node ended"):
        executor.run(job("# die"), always)
    with pytest.raises(Lost):
        executor.run(job(f"# until {seen}"), lambda text: not text.startswith("on "))

    add_board(local)
    who, _ = add_account(local, "ann")
    number = submit(local, who, f"# until {seen}")
    worker = Loop(local, {"CPU": "a device"}, executor, 5.0)
    thread = threading.Thread(target=lambda: [worker.step() for _ in range(2)])
    thread.start()
    first = wait_for(lambda: place(local, number))
    nodes.kill(first)
    assert wait_for(lambda: place(local, number).replace(first, "")), "on the other node"
    seen.touch()
    thread.join(120)
    assert not thread.is_alive()
    with local.read() as session:
        row = session.get_one(Submission, number)
        assert (row.status, row.attempts) == ("succeeded", 2)
        assert session.get_one(Result, number).score == 2e-6
        assert session.query(Lease).count() == 0


@pytest.mark.slow
def test_without_a_node_a_job_waits_until_one_comes(nodes, executor):
    for node in list(nodes.nodes):
        nodes.kill(node.node_id)
    said: list[str] = []

    def tell(text: str) -> bool:
        said.append(text)
        if len(said) == 8:
            assert set(said) == {"waiting for a node with CPU"}
            nodes.add(**{"device:CPU": 1})
        return True

    assert executor.run(job("# 1"), tell)["event"] == "done"
    assert len(said) > 8


def place(database: Database, number: int) -> str:
    """The node that judges a submission, as its progress tells; "" for none."""
    with database.read() as session:
        text = session.get_one(Submission, number).progress
    return text.removeprefix("on ") if text.startswith("on ") else ""


def wait_for(look: Callable[[], str], seconds: float = 180.0) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError("nothing came")


@pytest.mark.slow
def test_a_run_and_a_contest_on_a_cluster_with_the_real_judge(nodes, capsys, monkeypatch, tmp_path: Path):
    from scoring.cli import main
    from tests.scoring.harness import SETTINGS

    arguments = ["--config", str(SETTINGS), "run", "--ray", nodes.address, "--problem", "toy", "--kernel", "honest",
                 "--mode", "test", "--no-save", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "PASSED"
    from scoring.config.load import load_config

    config = load_config({"emulate": False}, str(SETTINGS))
    found = on_ray.find_devices(config, str(SETTINGS), nodes.address)
    assert {gpu: len(devices) for gpu, devices in found.items()} == {"CPU": 2}
    posts = server.posts_for(found, {"CPU"}, "sqlite:///x", str(SETTINGS), 5.0, nodes.address)
    assert [post.environment[RAY_ADDRESS] for post in posts] == [nodes.address] * 2
    kernel = Path("tests/data/kernels/cpu/toy/honest.cpp")
    given = {"submission": 1, "attempt": 1, "worker": "w", "board": "toy", "gpu": "CPU", "mode": "test",
             "file_name": kernel.name, "source": kernel.read_text(), "secret": "5ecre7",
             "problem": {"folder": str(Path("tests/data/problems/toy").absolute()), "tests": [], "benchmarks": []}}
    executor = on_ray.RayExecutor(str(SETTINGS))
    event = executor.run(given, always)
    executor.close()
    assert event["record"]["status"] == "PASSED"


def test_addresses_and_resources_that_are_not_there():
    """Without a cluster: what is said."""

    class Ray:
        @staticmethod
        def nodes() -> list[dict[str, Any]]:
            return [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 2.0, "device:H100": 2.0}},
                    {"Alive": True, "Resources": {"CPU": 4.0, "device:MI300": 1.0}},
                    {"Alive": False, "Resources": {"device:L4": 1.0}}]

    found = cluster.devices(Ray)
    assert {gpu: (each.count, each.options["num_gpus"]) for gpu, each in found.items()} == {
        "H100": (2, 1), "MI300": (1, 0)}
    Ray.nodes = staticmethod(lambda: [{"Alive": True, "Resources": {"device:H1000": 1.0}}])  # type: ignore[method-assign]
    with pytest.raises(SelectionError, match="no such GPU"):
        cluster.devices(Ray)
    Ray.nodes = staticmethod(list)  # type: ignore[method-assign]
    with pytest.raises(SelectionError, match="no node of the cluster has a device"):
        cluster.some_devices(Ray)
