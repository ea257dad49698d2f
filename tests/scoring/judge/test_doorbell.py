# SPDX-License-Identifier: MIT
"""The doorbells of a chain: what a waiting device and a ringing judge see of each other.

Threads and the host's build of the chain stand in for a device.
"""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from scoring.ipc import arena
from scoring.ipc.chain_library import BLOCK, DOORBELL_BYTES, DOORBELL_KEY, KEY_BYTES, ChainLibrary
from scoring.ipc.requests import LaunchChain, PrepareChain, Replay, Request, RunChain, Sweep, UnsealChain
from scoring.judge import doorbell as doors_module
from scoring.judge import timing
from scoring.judge.calibration import Overhead
from scoring.judge.case_run import CaseRun
from scoring.judge.chain_verifier import ChainResult, ChainVerifier
from scoring.judge.check import Verdict
from scoring.judge.doorbell import INPUTS, LINKS, NBYTES, Doorbells
from scoring.judge.rounds import Rounds
from scoring.judge.score import score
from scoring.judge.worker_process import WorkerFailure
from scoring.record import Status
from scoring.worker.chain_runner import ChainRunner
from tests.redteam import bench
from tests.redteam.entries import HERE
from tests.scoring.judge import test_chain_verifier

job, worker, verifier = (      # fixtures
    test_chain_verifier.job, test_chain_verifier.worker, test_chain_verifier.verifier)
KEY, OTHER = bytes(range(16)), bytes(range(100, 116))


@pytest.fixture
def doorbells() -> Iterator[Doorbells]:
    block = arena.create_host(NBYTES)
    yield Doorbells(block)
    block.close()


@pytest.fixture
def library(job) -> ChainLibrary:
    return ChainLibrary(job.chain.library, "cpu")


def never() -> bool:
    return False


# Doorbells ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("doorbell", [INPUTS, LINKS])
def test_a_key_goes_in_and_a_digest_comes_out(doorbells, library, doorbell):
    seen = library.open(doorbells.arena.block) + doorbell * DOORBELL_BYTES
    got, left = library.keys(1)[0], library.key(OTHER)

    def device() -> None:
        library.listen(seen, got)
        library.answer(seen, left)

    thread = threading.Thread(target=device)
    thread.start()
    assert doorbells.wait_listening(doorbell, never)
    time.sleep(0.01)
    assert bytes(got.tolist()) == bytes(16), "nothing before the judge rings"
    doorbells.ring(doorbell, KEY)
    assert doorbells.wait_answered(doorbell, never) == OTHER
    thread.join()
    assert bytes(got.tolist()) == KEY
    doorbells.close_all()
    assert doorbells.wait_answered(doorbell, lambda: True) is None
    library.close(doorbells.arena.block)


def test_who_never_comes_is_not_waited_for(doorbells):
    looks = iter([False, False, True])
    assert not doorbells.wait_listening(INPUTS, lambda: next(looks))
    assert doorbells.wait_answered(LINKS, lambda: True) is None


def test_an_answer_beside_the_end_of_the_worker_counts(doorbells):
    def gone() -> bool:
        doorbells._words[(LINKS * DOORBELL_BYTES + doors_module.DOORBELL_ANSWERED) // 4] = 1
        return True

    assert doorbells.wait_answered(LINKS, gone) == bytes(16)


# A chain at the doorbells ---------------------------------------------------------------------------------------------

class Device:
    """A worker whose ``launch_chain`` is played by a thread: a chain that waits at the doorbells. The real worker does
    its phases. ``change(doorbell, digest)`` is what it leaves there; ``late`` seconds pass before it listens."""

    def __init__(self, inner: Any, doorbells: Doorbells, library: ChainLibrary,
                 change: Callable[[int, bytes], bytes | None] = lambda doorbell, digest: digest, late: float = 0.0):
        self.inner, self.doorbells, self.library, self.change, self.late = inner, doorbells, library, change, late
        self.thread: threading.Thread | None = None
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def request(self, request: Request, *arguments: Any) -> dict[str, Any]:
        if isinstance(request, PrepareChain):
            assert request.doorbells
            self.slots = request.slots
            self.play = self._launch if request.fresh else self._launch_single_links
            if request.fresh:
                self.inner.request(replace(request, doorbells=False), *arguments)
            return {"captured": True}
        return self.inner.request(request, *arguments)

    def ask(self, request: Request, timeout: float) -> Any:
        assert request == LaunchChain()
        self.thread = threading.Thread(target=self.play)
        self.thread.start()
        return types.SimpleNamespace(until=time.monotonic() + timeout)

    def answered(self) -> bool:
        return not self.thread.is_alive()

    def answer(self, asked: Any) -> dict[str, Any]:
        self.thread.join()
        if self.failure is not None:
            raise self.failure
        return {}

    def _launch(self) -> None:
        time.sleep(self.late)
        base, key = self.doorbells.arena.block.data_ptr(), self.library.keys(1)[0]
        try:
            self.library.listen(base, key)
            self.inner.request(UnsealChain(bytes(key.tolist()).hex()), 60)
            if not self._leave(INPUTS, bytes(16)):
                return
            self.library.listen(base + DOORBELL_BYTES, key)
            reply = self.inner.request(RunChain(bytes(key.tolist()).hex()), 60)
            self._leave(LINKS, bytes.fromhex(reply["digest"]))
        except WorkerFailure as failure:
            self.failure = failure

    def _launch_single_links(self) -> None:
        key = self.library.keys(1)[0]
        for doorbell, slot in enumerate(self.slots):
            self.library.listen(self.doorbells.arena.block.data_ptr() + doorbell * DOORBELL_BYTES, key)
            self.inner.request(PrepareChain("honest", (slot,)), 60)
            secret = bytes(key.tolist()).hex()
            reply = self.inner.request(RunChain(secret, secret), 60)
            if not self._leave(doorbell, bytes.fromhex(reply["digest"])):
                return

    def _leave(self, doorbell: int, digest: bytes) -> bool:
        left = self.change(doorbell, digest)
        if left is not None:
            place = self.doorbells.arena.block.data_ptr() + doorbell * DOORBELL_BYTES
            self.library.answer(place, self.library.key(left))
        return left is not None


@pytest.fixture
def launched(verifier, library, doorbells):
    def make(slots: int = 3, **options: Any) -> ChainVerifier:
        made = verifier(slots)
        made.doorbells = doorbells
        made.run.worker = Device(made.run.worker, doorbells, library, **options)
        return made

    return make


def by_doorbell(made: ChainVerifier) -> ChainResult:
    return made.chain(made.run.contestant, made.run.slots, nan=True, doorbells=True)


@pytest.mark.parametrize("links", [2, 5])
def test_an_honest_chain_at_the_doors_is_verified_and_timed(launched, links):
    made = launched(links)
    for _chain in range(2):
        chained = by_doorbell(made)
        assert chained.verdict.passed, chained.verdict
        assert chained.doorbells
        assert 0 < chained.wall < 10
        assert 0 < chained.unseal < 10


def single_link_chains(made: ChainVerifier) -> list[ChainResult]:
    return made.single_link_chains(made.run.contestant, made.run.slots, nan=True, doorbells=True)


@pytest.fixture
def alone(monkeypatch):
    """The toy problem as a folder of somebody else's, which names no operand that can be drawn anew."""
    monkeypatch.setattr(CaseRun, "_redrawn", lambda *_arguments: ())


def test_links_that_cannot_depend_on_one_another_have_doors_of_their_own(launched, alone):
    found = single_link_chains(launched(4))
    assert [chained.verdict.passed for chained in found] == [True] * 4
    assert all(chained.doorbells and chained.links == 1 and chained.unseal == 0.0 for chained in found)
    assert all(0 < chained.wall < 10 for chained in found)


def test_no_link_can_be_had_before_the_one_before(launched, alone):
    """Each has a key of its own, and nobody is told the next one before the digest is there."""
    seen = []

    def change(doorbell: int, digest: bytes) -> bytes:
        seen.append([bytes(made.doorbells._words)[at * DOORBELL_BYTES + DOORBELL_KEY:][:KEY_BYTES] for at in range(3)])
        return digest

    made = launched(3, change=change)
    assert all(chained.verdict.passed for chained in single_link_chains(made))
    nothing = bytes(KEY_BYTES)
    assert [[key != nothing for key in keys] for keys in seen] == [
        [True, False, False], [True, True, False], [True, True, True]]
    assert len(set(seen[-1])) == 3


@pytest.mark.parametrize("left", [None, KEY], ids=["none", "made up"])
def test_links_apart_are_verified_one_by_one(launched, alone, left):
    found = single_link_chains(launched(3, change=lambda doorbell, digest: left if doorbell == 1 else digest))
    assert found[0].verdict.passed
    assert len(found) == 2
    assert found[1].verdict.status is Status.TAMPERED


def test_the_host_of_the_worker_is_not_timed(launched):
    """A worker that is slow to start its chain: the clock begins when the device listens."""
    made = launched(3, late=0.3)
    chained = by_doorbell(made)
    assert chained.verdict.passed
    assert chained.unseal + chained.wall < 0.25


def test_a_device_that_works_before_it_says_that_it_has_the_inputs_is_timed(launched):
    def change(doorbell: int, digest: bytes) -> bytes:
        time.sleep(0.2 if doorbell == INPUTS else 0.0)
        return digest

    chained = by_doorbell(launched(3, change=change))
    assert chained.unseal > 0.2
    assert Overhead(3, 0.0, 0.0, 0.0, doorbells=True).trusted(chained.unseal, chained.wall) > 0.19 / 3


def test_no_clock_stands_still_between_the_doors(launched):
    """Who says early that it has the inputs is rung at once: whatever it does then is timed with the links."""
    def change(doorbell: int, digest: bytes) -> bytes:
        time.sleep(0.2 if doorbell == LINKS else 0.0)
        return digest

    assert by_doorbell(launched(3, change=change)).wall > 0.2


@pytest.mark.parametrize("digest", [bytes(16), KEY], ids=["zeros", "made up"])
def test_a_digest_at_the_door_that_is_not_that_of_the_outputs(launched, digest):
    verdict = by_doorbell(launched(3, change=lambda doorbell, own: digest if doorbell == LINKS else own)).verdict
    assert verdict.status is Status.TAMPERED


@pytest.mark.parametrize("doorbell", [INPUTS, LINKS])
def test_a_chain_that_ends_without_a_digest(launched, doorbell):
    """At the first doorbell: no link was run; at the second: right outputs that were never committed to."""
    verdict = by_doorbell(launched(2, change=lambda at, digest: None if at == doorbell else digest)).verdict
    assert not verdict.passed
    assert doorbell == INPUTS or verdict.status is Status.TAMPERED


def test_a_chain_that_fails_is_the_workers_failure(launched):
    def fails(request: Request, reply: dict[str, Any]) -> dict[str, Any]:
        if isinstance(request, RunChain):
            raise WorkerFailure(Status.RUNTIME_ERROR, "illegal memory access", alive=True)
        return reply

    made = launched(2)
    made.run.worker.inner.change = fails
    with pytest.raises(WorkerFailure, match="illegal"):
        by_doorbell(made)


def test_who_is_interrupted_leaves_nobody_waiting_at_a_door(launched):
    def interrupted() -> bool:
        raise KeyboardInterrupt

    closed = []
    made = launched(2, late=0.2)
    made.run.worker.answered, made.run.worker.close = interrupted, lambda: closed.append(True)
    with pytest.raises(KeyboardInterrupt):
        by_doorbell(made)
    assert closed
    made.doorbells.ring(INPUTS, KEY)
    made.doorbells.ring(LINKS, KEY)
    made.run.worker.thread.join()


# The worker's chain, between its doorbells ----------------------------------------------------------------------------

def links(library: ChainLibrary, at: int, fresh: list[str], unsealed: bool = False) -> ChainRunner:
    def slot() -> Any:
        sealed = torch.arange(512, dtype=torch.uint8)
        output = torch.zeros(64, dtype=torch.uint8)
        return types.SimpleNamespace(sealed=sealed, memory={"a": sealed}, output=output)

    class Copies:
        def run(self, slot: Any, workspace: int) -> None:
            slot.output.copy_(slot.sealed[:64])

        def commits(self, slot: Any) -> list[tuple[int, int, int]]:
            return [(slot.output.data_ptr(), slot.output.data_ptr(), 64)]

    return ChainRunner(library, Copies(), [slot() for _slot in range(3)], fresh, 0, at, unsealed)


def test_a_chain_between_the_doors_is_the_chain(library, doorbells):
    """What a device captures does the same, in the same order, as the phases asked for one by one."""
    asked = links(library, 0, ["a"])
    asked.unseal(KEY)
    expected = asked.run(OTHER)["digest"]
    standing = links(library, library.open(doorbells.arena.block), ["a"])
    thread = threading.Thread(target=standing._between_doorbells)
    thread.start()
    doorbells.ring(INPUTS, KEY)
    assert doorbells.wait_answered(INPUTS, never) is not None
    doorbells.ring(LINKS, OTHER)
    assert doorbells.wait_answered(LINKS, never).hex() == expected
    thread.join()


@pytest.mark.device("cuda")
def test_a_gpu_waits_at_the_doors(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    made = bench.job("cuda", HERE / "baselines" / "fp8_gemm.py", "fp8_gemm", tmp_path, {})
    record = score(replace(made, cases=tuple(case for case in made.cases if case.group == "benchmarks")[:1]))
    assert record.status is Status.PASSED, record.message
    chain = record.cases[-1].environment["chain"]
    assert chain["doorbells"]
    assert chain["captured"]
    assert chain["resolution"] < 1e-6


@pytest.mark.parametrize("unsealed", [False, True])
def test_links_at_doors_of_their_own_are_chains_of_one(library, doorbells, unsealed):
    standing = links(library, library.open(doorbells.arena.block), [], unsealed)
    thread = threading.Thread(target=standing._one_by_one)
    thread.start()
    for doorbell in range(3):
        key = bytes([doorbell + 1]) * KEY_BYTES
        assert doorbells.wait_listening(doorbell, never)
        doorbells.ring(doorbell, key)
        asked = links(library, 0, [])
        asked.slots = asked.slots[:1]
        if unsealed:
            library.seal(asked.slots[0].sealed[:BLOCK], library.key(key), 0)
        else:
            asked.unseal(key)
        assert doorbells.wait_answered(doorbell, never).hex() == asked.run(key)["digest"]
    thread.join()


# Which overhead is subtracted ----------------------------------------------------------------------------------------

class FakeVerifier:
    """Chains whose links take ``wall``; ``doorbells`` says, chain by chain, whether the worker's waited at them."""

    def __init__(self, wall: float, doorbells: list[bool]):
        self.wall, self.doorbells = wall, iter(doorbells)

    def chain(self, contestant: Any, slots: Any, nan: bool, doorbells: bool) -> ChainResult:
        assert doorbells
        return ChainResult(Verdict(Status.PASSED), 0, 4, 0.0, self.wall, float("nan"), True, next(self.doorbells))


def bound(request: type[Replay | Sweep], doorbells: list[bool]) -> float:
    overheads = [Overhead(4, 0.0, 100e-6, 0.0, doorbells=True), Overhead(4, 0.0, 300e-6, 0.0)]
    verifier = FakeVerifier(500e-6, doorbells)
    rounds = Rounds(test_chain_verifier.fake_run("cuda:0"), (), 8, timing.TimingOptions(), dict, verifier, overheads)
    _samples, facts = rounds._chained(verifier, [1e-6], request)
    return float(facts["chain"]["bound"])


def test_a_host_is_subtracted_where_a_host_was_timed():
    assert bound(Replay, [True] * 8) == pytest.approx(100e-6)
    assert bound(Sweep, [False] * 8) == pytest.approx(50e-6), "nothing of it can be captured"


def test_who_keeps_from_the_doors_gains_nothing():
    """A contestant that was captured for its claims and says that its chain cannot be; one that does so at times."""
    assert bound(Replay, [False] * 8) == pytest.approx(100e-6)
    assert bound(Sweep, [False, True] * 4) == pytest.approx(50e-6), "by the chains without doorbells"
    assert bound(Sweep, [True] * 8) == pytest.approx(100e-6)
