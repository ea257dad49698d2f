# SPDX-License-Identifier: MIT
"""``scoring.judge.worker_process``: whatever a worker does, the judge learns it in time and is rid of the worker."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from scoring.ipc.wire import MAX_COUNTED
from scoring.judge import worker_process
from scoring.judge.worker_process import KEEP_OUTPUT, WorkerFailure, WorkerProcess
from scoring.record import Status
from scoring.sandbox import cleanup, users
from tests.scoring.harness import Work, alive, descriptors, left_open, wait_until


def worker(behaviour: str) -> WorkerProcess:
    return WorkerProcess(program=("-m", "tests.data.fake_worker", behaviour), start_timeout=30)


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = descriptors()
    yield
    assert not left_open(before)


def failure(process: WorkerProcess, timeout: float = 20, **fields: object) -> WorkerFailure:
    with pytest.raises(WorkerFailure) as caught:
        process.request(Work(**fields), timeout)
    return caught.value


def family(process: WorkerProcess) -> set[int]:
    """Live processes of a worker's sandbox, whichever way they can be told."""
    launched = process._launched
    found = set(cleanup.marked(launched.mark))
    if launched.group is not None:
        found |= launched.group.members()
    if launched.uid is not None:
        found |= set(users.processes(launched.uid))
    return {pid for pid in found if alive(pid)}


def test_questions_are_answered_in_order():
    with worker("honest") as process:
        assert process.facts["torch"] == "0"
        for value in (1, "two", [3.0], None):
            assert process.request(Work(value), 10)["echo"] == value
        assert process.alive
    assert not process.alive
    assert not alive(process.pid)


@pytest.mark.parametrize(("behaviour", "status", "words"), [
    ("garbage", Status.TAMPERED, "the answer to 'work' is none: not a JSON message"),
    ("oversized", Status.TAMPERED, "announced an answer of 4294967295 bytes"),
    ("large", Status.TAMPERED, "bytes, the limit is 65536"),
    ("deep", Status.TAMPERED, "nested more than 16 deep"),
    ("list", Status.TAMPERED, "a message is a JSON object, not list"),
    ("wrong nonce", Status.TAMPERED, "answered a question that was not asked"),
    ("no nonce", Status.TAMPERED, "answered a question that was not asked"),
    ("nonce of another type", Status.TAMPERED, "answered a question that was not asked"),
    ("exit", Status.RUNTIME_ERROR, "left during 'work' with exit code 3; it printed last:\nlast words"),
    ("abort", Status.RUNTIME_ERROR, "crashed during 'work' with SIGABRT"),
    ("kill", Status.RUNTIME_ERROR, "crashed during 'work' with SIGKILL"),
    ("nameless signal", Status.RUNTIME_ERROR, "crashed during 'work' with signal 40"),
    ("child and exit", Status.RUNTIME_ERROR, "left during 'work' with exit code 5"),
])
def test_a_worker_that_breaks_off(behaviour, status, words):
    with worker(behaviour) as process:
        caught = failure(process)
        assert (caught.status, caught.alive) == (status, False)
        assert words in str(caught)
        assert not process.alive
        assert not alive(process.pid)
        again = failure(process)
        assert not again.alive
        assert str(again), "asking a dead worker tells why it is dead"


def test_a_worker_that_hangs_up_but_lives_is_killed():
    with worker("hang up") as process:
        caught = failure(process)
        assert "broke the connection" in str(caught)
        assert not alive(process.pid)


@pytest.mark.parametrize("behaviour", ["silent", "trickle"])
def test_a_deadline_is_a_deadline(behaviour):
    with worker(behaviour) as process:
        started = time.monotonic()
        caught = failure(process, timeout=0.5)
        assert time.monotonic() - started < 5
        assert (caught.status, caught.alive) == (Status.TIMEOUT, False)
        assert str(caught) == "no answer to 'work' within 0.5 s"
        assert not alive(process.pid)


def test_a_second_answer_does_not_answer_the_next_question():
    with worker("twice") as process:
        process.request(Work(), 10)
        assert failure(process).status is Status.TAMPERED


def test_many_values_are_refused_before_they_are_made():
    with WorkerProcess(program=("-m", "tests.data.fake_worker", "many values"), start_timeout=30,
                       largest_answer=MAX_COUNTED) as process:
        caught = failure(process)
        assert (caught.status, "of more than 200000 values" in str(caught)) == (Status.TAMPERED, True)


def test_no_descriptor_reaches_the_judge():
    with worker("descriptors") as process:
        before = descriptors()
        for _ in range(10):
            assert process.request(Work(), 10)["refused"] is True
        assert not left_open(before)


def test_a_watchdog_ends_the_worker_whatever_the_judge_waits_for(monkeypatch):
    """Here it waits for nothing at all; a close that never returns would be the same to it."""
    monkeypatch.setattr(worker_process, "GRACE", 0.2)
    with WorkerProcess(program=("-m", "tests.data.fake_worker", "honest"), start_timeout=30,
                       until=time.monotonic() + 5) as process:
        assert process.request(Work(1), 4)["echo"] == 1
        members = family(process)
        assert members
        assert wait_until(lambda: not any(map(alive, members)), 15)
        caught = failure(process)
        assert (caught.status, caught.alive) == (Status.TIMEOUT, False)
        assert "the job's time was over" in str(caught)


def test_much_output_neither_blocks_nor_fills_memory():
    with worker("chatty") as process:
        process.request(Work(), 60)
        assert wait_until(lambda: process.output().endswith("the end"), 10)
        assert len(process.output()) <= KEEP_OUTPUT


def test_output_of_any_bytes_is_text():
    with worker("bytes") as process:
        text = str(failure(process))
        assert text.endswith("end")
        assert "\x1b" not in text
        assert "\0" not in text


def test_what_a_worker_says_cannot_paint_on_a_terminal():
    evil = {"a\x1b[2J": ["\x1b]0;title\x07x", "\u202eabc", "\ud800", "line\rover", "\x9b31mred", 7, None, "plain\n"]}
    with worker("honest") as process:
        assert process.request(Work(evil), 10)["echo"] == {
            "a": ["x", "\ufffdabc", "\ufffd", "line\nover", "red", 7, None, "plain\n"]}
    with worker("failure") as process:
        assert str(failure(process, value={"error": "bad\x1b[1A\x1b[2Kgood"})) == "badgood"


@pytest.mark.parametrize("behaviour", ["child", "daemon", "nameless child"])
def test_what_a_worker_started_goes_with_it(behaviour):
    with worker(behaviour) as process:
        before = family(process)
        process.request(Work(), 10)
        started = family(process) - before
        assert len(started) == 1
    assert wait_until(lambda: not any(map(alive, started)), 5)


def test_what_a_dead_worker_left_in_its_group_goes_too():
    with worker("child and exit") as process:
        failure(process)
        assert wait_until(lambda: not family(process), 5)


@pytest.mark.parametrize("ok", [False, None, 1, "true", [], {}])
def test_only_true_is_true(ok):
    with worker("not ok") as process:
        caught = failure(process, value=ok)
        assert (caught.status, caught.alive) == (Status.RUNTIME_ERROR, True)
        assert "without a reason" in str(caught)


@pytest.mark.parametrize(("word", "status"), [
    ("UNSUPPORTED", Status.UNSUPPORTED), ("INCORRECT_SHAPE", Status.INCORRECT_SHAPE), ("PASSED", Status.RUNTIME_ERROR),
    ("TIMEOUT", Status.RUNTIME_ERROR), ("nonsense", Status.RUNTIME_ERROR), (7, Status.RUNTIME_ERROR),
    (None, Status.RUNTIME_ERROR),
])
def test_a_worker_chooses_among_few_words(word, status):
    with worker("failure") as process:
        caught = failure(process, value={"status": word, "error": "because"})
        assert (caught.status, str(caught), caught.alive) == (status, "because", True)


@pytest.mark.parametrize(("status", "error"), [(["UNSUPPORTED"], "x"), ({}, "x"), ("UNSUPPORTED", {"a": 1})])
def test_reasons_of_a_wrong_type_are_no_crash(status, error):
    with worker("failure") as process:
        caught = failure(process, value={"status": status, "error": error})
        assert isinstance(str(caught), str)
        assert caught.alive


def test_a_long_reason_is_cut():
    with worker("failure") as process:
        assert len(str(failure(process, value={"error": "x" * 50_000}))) == 6000


def test_a_worker_that_cannot_start():
    with pytest.raises(WorkerFailure, match="left during 'hello' with exit code 1; it printed last:\nno torch here"):
        worker("rude")
    with pytest.raises(WorkerFailure, match="left during 'hello'"):
        WorkerProcess(program=("-c", "import no_such_module"), start_timeout=30)


def test_a_program_that_is_not_there(monkeypatch):
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(WorkerFailure, match=r"left during 'hello' with exit code (?s:.*)/no/such/python"):
        worker("honest")


def test_an_interrupt_does_not_leave_an_answer_on_its_way():
    """Ctrl-C while a call hangs: the worker is gone at once, and nothing waits for it again."""
    with worker("silent") as process:
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                process.request(Work(), 60)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        assert not process.alive
        assert not alive(process.pid)
        started = time.monotonic()
        assert str(failure(process, timeout=60)) == "interrupted"
        assert time.monotonic() - started < 1


def test_closing_twice_is_closing():
    process = worker("honest")
    process.close()
    process.close()
    assert not process.alive


def test_the_environment_is_a_short_list(monkeypatch):
    monkeypatch.setenv("WARPWAVE_DB", "/secret")
    monkeypatch.setenv("POPCORN_SEED", "42")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with worker("silent") as process:
        for pid in family(process):
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            names = {entry.partition(b"=")[0].decode() for entry in entries}
            assert not {"WARPWAVE_DB", "POPCORN_SEED"} & names
            assert {"PATH", "OMP_NUM_THREADS", "PYTHONPATH"} <= names
