# SPDX-License-Identifier: MIT
"""The doors of a chain: what a device that waits at them and a judge that rings see of one another, with threads and
the host's build of the chain in place of a device."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from scoring import arena, timing
from scoring.caserun import CaseRun
from scoring.chain import doors as doors_module
from scoring.chain.calibration import Overhead
from scoring.chain.doors import INPUTS, LINKS, NBYTES, Doors
from scoring.chain.gate import Chained, Gate
from scoring.chain.library import BLOCK, DOOR_BYTES, DOOR_KEY, KEY_BYTES, ChainLibrary
from scoring.chain.links import Links
from scoring.chain.rounds import Rounds
from scoring.check import Verdict
from scoring.judge import score
from scoring.model import Status
from scoring.session import WorkerFailure
from tests.redteam import bench
from tests.redteam.entries import HERE
from tests.scoring import test_gate

job, worker, gate = test_gate.job, test_gate.worker, test_gate.gate      # fixtures
KEY, OTHER = bytes(range(16)), bytes(range(100, 116))


@pytest.fixture
def doors() -> Iterator[Doors]:
    block = arena.create_host(NBYTES)
    yield Doors(block)
    block.close()


@pytest.fixture
def library(job) -> ChainLibrary:
    return ChainLibrary(job.chain["library"], "cpu")


def never() -> bool:
    return False


# Doors ---------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("door", [INPUTS, LINKS])
def test_a_key_goes_in_and_a_digest_comes_out(doors, library, door):
    seen = library.open(doors.arena.block) + door * DOOR_BYTES
    got, left = library.keys(1)[0], library.key(OTHER)

    def device() -> None:
        library.listen(seen, got)
        library.answer(seen, left)

    thread = threading.Thread(target=device)
    thread.start()
    assert doors.wait_listening(door, never)
    time.sleep(0.01)
    assert bytes(got.tolist()) == bytes(16), "nothing before the judge rings"
    doors.ring(door, KEY)
    assert doors.wait_answered(door, never) == OTHER
    thread.join()
    assert bytes(got.tolist()) == KEY
    doors.close_all()
    assert doors.wait_answered(door, lambda: True) is None
    library.close(doors.arena.block)


def test_who_never_comes_is_not_waited_for(doors):
    looks = iter([False, False, True])
    assert not doors.wait_listening(INPUTS, lambda: next(looks))
    assert doors.wait_answered(LINKS, lambda: True) is None


def test_an_answer_beside_the_end_of_the_worker_counts(doors):
    def gone() -> bool:
        doors._words[(LINKS * DOOR_BYTES + doors_module.DOOR_ANSWERED) // 4] = 1
        return True

    assert doors.wait_answered(LINKS, gone) == bytes(16)


# A chain at the doors ------------------------------------------------------------------------------------------------

class Device:
    """A worker whose ``stand`` is played by a thread: a chain that waits at the doors, its phases asked of the real
    worker. ``change(door, digest)`` is what it leaves there; ``late`` seconds pass before it listens."""

    def __init__(self, inner: Any, doors: Doors, library: ChainLibrary,
                 change: Callable[[int, bytes], bytes | None] = lambda door, digest: digest, late: float = 0.0):
        self.inner, self.doors, self.library, self.change, self.late = inner, doors, library, change, late
        self.thread: threading.Thread | None = None
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def request(self, do: str, *arguments: Any, **fields: Any) -> dict[str, Any]:
        if do == "arm":
            assert fields["doors"] is True
            self.slots, apart = fields["slots"], not fields["fresh"]
            self.play = self._stand_apart if apart else self._stand
            if not apart:
                self.inner.request(do, *arguments, **fields | {"doors": False})
            return {"captured": True}
        return self.inner.request(do, *arguments, **fields)

    def ask(self, do: str, timeout: float) -> Any:
        assert do == "stand"
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

    def _stand(self) -> None:
        time.sleep(self.late)
        base, key = self.doors.arena.block.data_ptr(), self.library.keys(1)[0]
        try:
            self.library.listen(base, key)
            self.inner.request("unseal", 60, secret=bytes(key.tolist()).hex())
            if not self._leave(INPUTS, bytes(16)):
                return
            self.library.listen(base + DOOR_BYTES, key)
            reply = self.inner.request("go", 60, secret=bytes(key.tolist()).hex())
            self._leave(LINKS, bytes.fromhex(reply["digest"]))
        except WorkerFailure as failure:
            self.failure = failure

    def _stand_apart(self) -> None:
        key = self.library.keys(1)[0]
        for door, slot in enumerate(self.slots):
            self.library.listen(self.doors.arena.block.data_ptr() + door * DOOR_BYTES, key)
            self.inner.request("arm", 60, contestant="honest", slots=[slot], fresh=[], doors=False, opened=False)
            secret = bytes(key.tolist()).hex()
            reply = self.inner.request("go", 60, secret=secret, seal=secret)
            if not self._leave(door, bytes.fromhex(reply["digest"])):
                return

    def _leave(self, door: int, digest: bytes) -> bool:
        left = self.change(door, digest)
        if left is not None:
            self.library.answer(self.doors.arena.block.data_ptr() + door * DOOR_BYTES, self.library.key(left))
        return left is not None


@pytest.fixture
def standing(gate, library, doors):
    def make(slots: int = 3, **options: Any) -> Gate:
        made = gate(slots)
        made.doors = doors
        made.run.worker = Device(made.run.worker, doors, library, **options)
        return made

    return make


def stood(made: Gate) -> Chained:
    return made.chain(made.run.contestant, made.run.slots, nan=True, doors=True)


@pytest.mark.parametrize("links", [2, 5])
def test_an_honest_chain_at_the_doors_is_verified_and_timed(standing, links):
    made = standing(links)
    for _chain in range(2):
        chained = stood(made)
        assert chained.verdict.passed, chained.verdict
        assert chained.doors
        assert 0 < chained.wall < 10
        assert 0 < chained.unseal < 10


def apart(made: Gate) -> list[Chained]:
    return made.apart(made.run.contestant, made.run.slots, nan=True, doors=True)


@pytest.fixture
def alone(monkeypatch):
    """The toy problem as a folder of somebody else's, which names no operand that can be drawn anew."""
    monkeypatch.setattr(CaseRun, "_redrawn", lambda *_arguments: ())


def test_links_that_cannot_depend_on_one_another_have_doors_of_their_own(standing, alone):
    found = apart(standing(4))
    assert [chained.verdict.passed for chained in found] == [True] * 4
    assert all(chained.doors and chained.links == 1 and chained.unseal == 0.0 for chained in found)
    assert all(0 < chained.wall < 10 for chained in found)


def test_no_link_can_be_had_before_the_one_before(standing, alone):
    """Each has a key of its own, and nobody is told the next one before the digest is there."""
    seen = []

    def change(door: int, digest: bytes) -> bytes:
        seen.append([bytes(made.doors._words)[at * DOOR_BYTES + DOOR_KEY:][:KEY_BYTES] for at in range(3)])
        return digest

    made = standing(3, change=change)
    assert all(chained.verdict.passed for chained in apart(made))
    nothing = bytes(KEY_BYTES)
    assert [[key != nothing for key in keys] for keys in seen] == [
        [True, False, False], [True, True, False], [True, True, True]]
    assert len(set(seen[-1])) == 3


@pytest.mark.parametrize("left", [None, KEY], ids=["none", "made up"])
def test_links_apart_are_verified_one_by_one(standing, alone, left):
    found = apart(standing(3, change=lambda door, digest: left if door == 1 else digest))
    assert found[0].verdict.passed
    assert len(found) == 2
    assert found[1].verdict.status is Status.TAMPERED


def test_the_host_of_the_worker_is_not_timed(standing):
    """A worker that is slow to start its chain: the clock begins when the device listens."""
    made = standing(3, late=0.3)
    chained = stood(made)
    assert chained.verdict.passed
    assert chained.unseal + chained.wall < 0.25


def test_a_device_that_works_before_it_says_that_it_has_the_inputs_is_timed(standing):
    def change(door: int, digest: bytes) -> bytes:
        time.sleep(0.2 if door == INPUTS else 0.0)
        return digest

    chained = stood(standing(3, change=change))
    assert chained.unseal > 0.2
    assert Overhead(3, 0.0, 0.0, 0.0, doors=True).trusted(chained.unseal, chained.wall) > 0.19 / 3


def test_no_clock_stands_still_between_the_doors(standing):
    """Who says early that it has the inputs is rung at once: whatever it does then is timed with the links."""
    def change(door: int, digest: bytes) -> bytes:
        time.sleep(0.2 if door == LINKS else 0.0)
        return digest

    assert stood(standing(3, change=change)).wall > 0.2


@pytest.mark.parametrize("digest", [bytes(16), KEY], ids=["zeros", "made up"])
def test_a_digest_at_the_door_that_is_not_that_of_the_outputs(standing, digest):
    verdict = stood(standing(3, change=lambda door, own: digest if door == LINKS else own)).verdict
    assert verdict.status is Status.TAMPERED


@pytest.mark.parametrize("door", [INPUTS, LINKS])
def test_a_chain_that_ends_without_a_digest(standing, door):
    """At the first door: no link was run; at the second: right outputs that were never committed to."""
    verdict = stood(standing(2, change=lambda at, digest: None if at == door else digest)).verdict
    assert not verdict.passed
    assert door == INPUTS or verdict.status is Status.TAMPERED


def test_a_chain_that_fails_is_the_workers_failure(standing):
    def fails(do: str, reply: dict[str, Any]) -> dict[str, Any]:
        if do == "go":
            raise WorkerFailure(Status.RUNTIME_ERROR, "illegal memory access", alive=True)
        return reply

    made = standing(2)
    made.run.worker.inner.change = fails
    with pytest.raises(WorkerFailure, match="illegal"):
        stood(made)


def test_who_is_interrupted_leaves_nobody_waiting_at_a_door(standing):
    def interrupted() -> bool:
        raise KeyboardInterrupt

    closed = []
    made = standing(2, late=0.2)
    made.run.worker.answered, made.run.worker.close = interrupted, lambda: closed.append(True)
    with pytest.raises(KeyboardInterrupt):
        stood(made)
    assert closed
    made.doors.ring(INPUTS, KEY)
    made.doors.ring(LINKS, KEY)
    made.run.worker.thread.join()


# The worker's chain, between its doors -------------------------------------------------------------------------------

def links(library: ChainLibrary, at: int, fresh: list[str], opened: bool = False) -> Links:
    def slot() -> Any:
        sealed = torch.arange(512, dtype=torch.uint8)
        output = torch.zeros(64, dtype=torch.uint8)
        return types.SimpleNamespace(sealed=sealed, tensors={"a": sealed}, output=output)

    class Copies:
        def run(self, slot: Any, workspace: int) -> None:
            slot.output.copy_(slot.sealed[:64])

        def commits(self, slot: Any) -> list[tuple[int, int, int]]:
            return [(slot.output.data_ptr(), slot.output.data_ptr(), 64)]

    return Links(library, Copies(), [slot() for _slot in range(3)], fresh, 0, at, opened)


def test_a_chain_between_the_doors_is_the_chain(library, doors):
    """What a device captures does the same, in the same order, as the phases asked for one by one."""
    asked = links(library, 0, ["a"])
    asked.unseal(KEY)
    expected = asked.run(OTHER)["digest"]
    standing = links(library, library.open(doors.arena.block), ["a"])
    thread = threading.Thread(target=standing._between_doors)
    thread.start()
    doors.ring(INPUTS, KEY)
    assert doors.wait_answered(INPUTS, never) is not None
    doors.ring(LINKS, OTHER)
    assert doors.wait_answered(LINKS, never).hex() == expected
    thread.join()


@pytest.mark.device("cuda")
def test_a_gpu_waits_at_the_doors(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    made = bench.job("cuda", HERE / "baselines" / "fp8_gemm.py", "fp8_gemm", tmp_path, {})
    record = score(replace(made, cases=tuple(case for case in made.cases if case.group == "benchmarks")[:1]))
    assert record.status is Status.PASSED, record.message
    chain = record.cases[-1].environment["chain"]
    assert chain["doors"]
    assert chain["captured"]
    assert chain["resolution"] < 1e-6


@pytest.mark.parametrize("opened", [False, True])
def test_links_at_doors_of_their_own_are_chains_of_one(library, doors, opened):
    standing = links(library, library.open(doors.arena.block), [], opened)
    thread = threading.Thread(target=standing._one_by_one)
    thread.start()
    for door in range(3):
        key = bytes([door + 1]) * KEY_BYTES
        assert doors.wait_listening(door, never)
        doors.ring(door, key)
        asked = links(library, 0, [])
        asked.slots = asked.slots[:1]
        if opened:
            library.seal(asked.slots[0].sealed[:BLOCK], library.key(key), 0)
        else:
            asked.unseal(key)
        assert doors.wait_answered(door, never).hex() == asked.run(key)["digest"]
    thread.join()


# Which overhead is subtracted ----------------------------------------------------------------------------------------

class FakeGate:
    """Chains whose links take ``wall``; ``doors`` says, chain by chain, whether the worker's waited at them."""

    def __init__(self, wall: float, doors: list[bool]):
        self.wall, self.doors = wall, iter(doors)

    def chain(self, contestant: Any, slots: Any, nan: bool, doors: bool) -> Chained:
        assert doors
        return Chained(Verdict(Status.PASSED), 0, 4, 0.0, self.wall, float("nan"), True, next(self.doors))


def bound(request: str, doors: list[bool]) -> float:
    overheads = [Overhead(4, 0.0, 100e-6, 0.0, doors=True), Overhead(4, 0.0, 300e-6, 0.0)]
    gate = FakeGate(500e-6, doors)
    rounds = Rounds(test_gate.fake_run("cuda:0"), (), 8, timing.TimingOptions(), dict, gate, overheads)
    _samples, facts = rounds._chained(gate, [1e-6], request)
    return float(facts["chain"]["bound"])


def test_a_host_is_subtracted_where_a_host_was_timed():
    assert bound("replay", [True] * 8) == pytest.approx(100e-6)
    assert bound("sweep", [False] * 8) == pytest.approx(50e-6), "nothing of it can be captured"


def test_who_keeps_from_the_doors_gains_nothing():
    """A contestant that was captured for its claims and says that its chain cannot be; one that does so at times."""
    assert bound("replay", [False] * 8) == pytest.approx(100e-6)
    assert bound("sweep", [False, True] * 4) == pytest.approx(50e-6), "by the chains without doors"
    assert bound("sweep", [True] * 8) == pytest.approx(100e-6)
