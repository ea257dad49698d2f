# SPDX-License-Identifier: MIT
"""The commit chain from the judge's side: ``chain_verifier``, ``calibration`` and what ``rounds`` makes of
the two, with a real worker on the toy problem, and with workers that lie."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from scoring.ipc.chain_library import ChainLibrary
from scoring.ipc.requests import Load, PrepareChain, PythonSpec, Replay, Request, RunChain, Sweep
from scoring.judge import calibration, timing
from scoring.judge.calibration import Overhead
from scoring.judge.case_run import CaseRun
from scoring.judge.chain_verifier import ChainResult, ChainVerifier
from scoring.judge.check import Verdict
from scoring.judge.job import Job
from scoring.judge.rounds import Rounds
from scoring.judge.seeds import SeedSource
from scoring.judge.worker_process import WorkerProcess
from scoring.record import Case, Mode, Status
from scoring.run.build import NATIVE
from tests.scoring.harness import kernel_job, toy

CASE = Case({"n": 1000})
QUICK = timing.TimingOptions(processes=1, min_rounds=2, max_rounds=3, seconds=0.5)


@pytest.fixture(scope="module")
def job(cache) -> Job:
    return kernel_job(toy(cache), "honest", [CASE], Mode.BENCHMARK)


@pytest.fixture(scope="module")
def worker(job: Job) -> Iterator[WorkerProcess]:
    assert job.chain is not None
    files = [Path(job.chain.library), Path(job.contestant.spec.library)]
    with WorkerProcess(files=files) as process:
        process.request(job.chain, 60)
        process.request(Load("honest", job.contestant.spec), 60)
        yield process


class Meddler:
    """A worker of which ``change(request, reply)`` changes the answers."""

    def __init__(self, worker: WorkerProcess, change: Callable[[Request, dict[str, Any]], dict[str, Any]]):
        self.worker = worker
        self.change = change

    @property
    def alive(self) -> bool:
        return self.worker.alive

    def request(self, request: Request, *arguments: Any) -> dict[str, Any]:
        return self.change(request, self.worker.request(request, *arguments))


@pytest.fixture
def verifier(job: Job, worker: WorkerProcess):
    """Make a verifier over ``slots`` slots, its worker's answers changed by ``change``."""
    made = []

    def make(
        slots: int, change: Callable[[Request, dict[str, Any]], dict[str, Any]] = lambda request, reply: reply,
    ) -> ChainVerifier:
        contestant = replace(job.contestant, name="honest")
        run = CaseRun(job.problem, CASE, Meddler(worker, change), contestant, SeedSource(3), "cpu", "e4m3fn", 60)
        run.__enter__()
        made.append(run)
        for _slot in range(slots):
            run.add_slot()
        return ChainVerifier(run, ChainLibrary(job.chain.library, "cpu"))

    yield make
    for run in made:
        run.__exit__()


def chain(verifier: ChainVerifier) -> ChainResult:
    return verifier.chain(verifier.run.contestant, verifier.run.slots, nan=True)


# Chains --------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("links", [1, 2, 5])
def test_an_honest_chain_is_verified_and_timed(verifier, links):
    chained = chain(verifier(links))
    assert chained.verdict.passed, chained.verdict
    assert chained.links == links
    assert 0 < chained.claim * links < chained.wall < 10
    assert 0 < chained.unseal < 10 or links == 1, "a chain of one link has one phase"


def test_nothing_of_the_inputs_can_be_read_before_they_are_revealed(verifier):
    """When the chain is prepared the slots hold bytes that have nothing to do with the inputs."""
    seen = []

    def look(request: Request, reply: dict[str, Any]) -> dict[str, Any]:
        if isinstance(request, PrepareChain):
            for slot in made.run.slots:
                (spec,) = (spec for spec in slot.memory.layout.inputs if spec.name == "data.0")
                there = spec.view(slot.memory.arena.block).view(torch.uint8)
                truth = slot.memory.private["data.0"].view(torch.uint8)
                seen.append(float((there == truth).float().mean()))
        return reply

    made = verifier(3, look)
    assert chain(made).verdict.passed
    assert len(seen) == 3
    assert max(seen) < 0.02, "one byte in 256 is equal by chance"


def test_every_link_has_inputs_that_depend_on_the_one_before(verifier):
    made = verifier(4)
    drawn = []
    for _chain in range(2):
        assert chain(made).verdict.passed
        drawn += [slot.memory.private["data.0"].clone() for slot in made.run.slots]
    for index, one in enumerate(drawn):
        for other in drawn[:index]:
            assert float((one == other).float().mean()) < 0.05


@pytest.mark.parametrize("digest", ["", "00" * 16, None, 7, ["x"], "z" * 10**5], ids=str)
def test_a_digest_that_is_not_that_of_the_outputs(verifier, digest):
    made = verifier(3, lambda request, reply: {**reply, "digest": digest} if isinstance(request, RunChain) else reply)
    verdict = chain(made).verdict
    assert verdict.status is Status.TAMPERED
    assert "committed" in verdict.message


@pytest.mark.parametrize(("link", "status"), [(0, Status.INCORRECT_NUMERICAL), (2, Status.TAMPERED)])
def test_outputs_that_change_after_the_answer(verifier, link, status):
    """Right in value or not: what the clock stopped for is what counts. A wrong number says more, where one is seen."""

    def late(request: Request, reply: dict[str, Any]) -> dict[str, Any]:
        if isinstance(request, RunChain):
            slot = made.run.slots[link]
            (spec,) = slot.memory.layout.outputs
            view = spec.view(slot.memory.arena.block)
            view[5] = -view[5]
        return reply

    made = verifier(3, late)
    verdict = chain(made).verdict
    assert verdict.status is status
    assert ("y: 1 of 1000 elements" if link == 0 else "had committed itself to") in verdict.message


def test_right_outputs_that_come_after_the_answer(verifier):
    """Committed to nonsense, right in the end: only the digest tells."""
    kept: dict[str, str] = {}

    def late(request: Request, reply: dict[str, Any]) -> dict[str, Any]:
        if isinstance(request, RunChain) and "digest" in kept:
            return {**reply, "digest": kept["digest"]}
        if isinstance(request, RunChain):
            kept["digest"] = reply["digest"]
        return reply

    made = verifier(1, late)
    assert chain(made).verdict.passed
    assert chain(made).verdict.status is Status.TAMPERED, "the digest of an earlier chain"


def test_a_wrong_link_is_named_by_its_seed(job, worker, verifier):
    """A kernel that is right once in a while: its digests are those of its wrong outputs."""
    body = "_count[0] += 1\n    return data[0] * (data[1] + (_count[0] == 2))"
    path = Path(job.chain.library).with_name("sometimes.py")
    path.write_text(f"_count = [0]\n\ndef custom_kernel(data):\n    {body}\n")
    with WorkerProcess(files=[path, Path(job.chain.library)]) as fresh:
        fresh.request(job.chain, 60)
        fresh.request(Load("honest", PythonSpec(str(path))), 60)
        made = verifier(3)
        made.run.worker.worker = fresh
        for slot in made.run.slots:
            made.run.share(slot.memory.arena, partial(slot.memory.layout.request, slot.name))
        chained = chain(made)
        assert chained.verdict.status is Status.INCORRECT_NUMERICAL
        assert chained.seed == made.run.slots[1].seed
        made.run.worker.worker = worker


# Calibration ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("device", "wall"), [("cuda:0", 1.06), ("cpu", 1.01)])
def test_an_overhead_is_measured_at_the_chains_own_length(device, wall):
    times = iter([9.0, 9.0, *(1.0 + index / 100 for index in range(12))])
    prepared = []
    overhead = calibration.measure(lambda: prepared.append(1), lambda seal, begin: (0.5, next(times)), 4, device)
    assert len(prepared) == 14
    assert overhead == Overhead(4, 0.5, pytest.approx(wall), pytest.approx(0.05))
    assert overhead.resolution == pytest.approx(0.0125)


def test_a_host_that_was_busy_while_calibrating_is_no_gift():
    times = iter([1.0, 1.0, *[3.0, 1.0, 3.0, 3.0, 3.0, 3.0] * 2])      # ten of twelve chains beside other work
    overhead = calibration.measure(lambda: None, lambda seal, begin: (0.5, next(times)), 4, "cpu")
    assert overhead.trusted(0.5, 1.0 + 4 * 0.5) == pytest.approx(0.5)


def test_what_is_trusted():
    overhead = Overhead(links=4, unseal=10e-3, wall=2e-3, spread=0.0)
    assert overhead.trusted(10e-3, 6e-3) == pytest.approx(1e-3)
    assert overhead.trusted(1e-3, 6e-3) == pytest.approx(1e-3), "unsealing fast buys nothing"
    assert overhead.trusted(14.7e-3, 2e-3) == pytest.approx(1e-3), "work done before the links counts, jitter aside"
    alone = Overhead(links=1, unseal=0.0, wall=2e-3, spread=0.0)
    assert alone.trusted(0.0, 3e-3) == pytest.approx(1e-3)


def test_overheads_are_known_for_a_while(monkeypatch):
    known, overheads = calibration.Known(), (Overhead(4, 1.0, 1.0, 0.0),)
    assert known.get(("x",), "cpu") == ()
    known.put(("x",), overheads)
    assert known.get(("x",), "cpu") == overheads
    assert known.get(("y",), "cpu") == ()
    now = calibration.time.monotonic() + calibration.STALE["cpu"] + 1
    monkeypatch.setattr(calibration.time, "monotonic", lambda: now)
    assert known.get(("x",), "cpu") == ()
    assert known.get(("x",), "cuda:0") == overheads


# What counts ---------------------------------------------------------------------------------------------------------

class FakeVerifier:
    """Chains in which a call takes ``seconds`` by the judge's clock and ``claim`` by the worker's."""

    def __init__(self, links: int, seconds: float, claim: float, overhead: Overhead):
        self.links, self.seconds, self.claim, self.overhead = links, seconds, claim, overhead
        self.chained = 0

    def single_link_chains(self, contestant: Any, slots: Any, nan: bool, doorbells: bool) -> list[ChainResult]:
        return [self.chain(contestant, [slot], nan, doorbells) for slot in slots]

    def chain(self, contestant: Any, slots: Any, nan: bool, doorbells: bool) -> ChainResult:
        assert len(slots) == self.links
        self.chained += 1
        wall = self.overhead.wall + self.links * self.seconds
        unseal = self.overhead.unseal if self.links > 1 else 0.0
        return ChainResult(Verdict(Status.PASSED), 0, self.links, unseal, wall, self.claim, False)


def fake_run(device: str) -> Any:
    slots = [types.SimpleNamespace(name=f"slot{index}") for index in range(8)]
    return types.SimpleNamespace(slots=slots, contestant=None, torch_device=device)


def judged(device: str, claims: list[float], seconds: float, claim: float, links: int = 4) -> tuple[list[float], dict]:
    overhead = Overhead(links, 1e-4, 1e-4, spread=0.0)
    verifier = FakeVerifier(links, seconds, claim, overhead)
    rounds = Rounds(fake_run(device), (), 8, QUICK, dict, verifier, [overhead])
    return rounds._chained(verifier, claims, Replay if device.startswith("cuda") else Sweep)


def test_on_a_gpu_a_claim_that_agrees_stands():
    claims = [20e-6, 20.1e-6, 20.2e-6]
    samples, facts = judged("cuda:0", claims, 21e-6, float("nan"))
    assert samples == claims
    assert facts["clock"] == "claim within the judge's bound"
    assert facts["chain"]["bound"] == pytest.approx(21e-6)


@pytest.mark.parametrize("claim", [1e-9, 5e-6, 15e-6])
def test_on_a_gpu_a_claim_that_does_not_agree_is_replaced(claim):
    samples, facts = judged("cuda:0", [claim] * 5, 21e-6, float("nan"))
    assert min(samples) == pytest.approx(21e-6)
    assert facts["clock"] == "judge"
    assert facts["claim"] == claim, "the record keeps what was claimed"


@pytest.mark.parametrize("links", [1, 4])
def test_without_a_gpu_calls_are_settled_chain_by_chain(links):
    samples, facts = judged("cpu", [], 1e-3, 0.99e-3, links)
    assert set(samples) == {0.99e-3}
    assert facts["clock"] == "claim within the judge's bound"
    samples, facts = judged("cpu", [], 1e-3, 1e-6, links)
    assert samples == pytest.approx([1e-3] * len(samples))
    assert facts["clock"] == "judge"


def test_what_the_clock_cannot_resolve_is_not_given_away():
    overhead = Overhead(4, 1e-4, 1e-4, spread=40e-6)
    verifier = FakeVerifier(4, 1e-6, 1e-9, overhead)
    samples, _facts = Rounds(fake_run("cpu"), (), 4, QUICK, dict, verifier, [overhead])._chained(verifier, [], Sweep)
    assert min(samples) == pytest.approx(10e-6)


def test_the_library_of_the_chain_is_built_where_something_is_timed(job):
    assert Path(job.chain.library).is_file()
    assert NATIVE.is_dir()
