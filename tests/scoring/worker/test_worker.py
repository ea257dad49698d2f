# SPDX-License-Identifier: MIT
"""``scoring.worker`` from inside and from outside: requests, slots, and an end together with the judge's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from scoring.ipc import arena, wire
from scoring.ipc.requests import Load, NativeSpec, PythonSpec, ShareSlot, encode
from scoring.ipc.template import TemplateError, build_data
from scoring.worker.__main__ import Worker, serve
from scoring.worker.failure import Failure
from scoring.worker.loaders import PythonSubmission, Slot
from tests.scoring.harness import ROOT, alive, wait_until


def message(shape: tuple[int, ...] = (4,), outputs: int = 1) -> dict[str, Any]:
    """A slot with an input ``x`` and outputs ``y0 …`` of the same shape, 1 KiB apart."""
    strides = [1] if len(shape) == 1 else [shape[1], 1]
    names = ["x", *(f"y{index}" for index in range(outputs))]
    return {
        "tensors": [{"name": name, "dtype": "float32", "width": 4, "shape": list(shape), "strides": strides,
                     "offset": 1024 * index} for index, name in enumerate(names)],
        "outputs": names[1:], "arguments": [], "sealed": [0, 1024], "data": ["tuple", [["tensor", "x"], ["value", 2]]],
    }


@pytest.fixture
def worker() -> Worker:
    return Worker()


def submit(worker: Worker, tmp_path: Path, body: str, name: str = "s") -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(f"import torch\n\ndef custom_kernel(data):\n    {body}\n")
    worker.handle(encode(Load(name, PythonSpec(str(path), f"module_{name}"))), [])


def add_slot(worker: Worker, slot: str = "slot0", **options: Any) -> arena.Arena:
    block = arena.create_host(8192)
    worker.handle({"do": "share_slot", "slot": slot, "arena": block.export, **message(**options)}, [os.dup(block.fd)])
    return block


def view(block: arena.Arena, index: int, count: int = 4) -> torch.Tensor:
    return block.block[1024 * index : 1024 * index + 4 * count].view(torch.float32)


def test_a_call_sees_the_judges_inputs_and_fills_its_outputs(worker, tmp_path):
    block = add_slot(worker)
    view(block, 0).copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    submit(worker, tmp_path, "x, factor = data; return x * factor")
    reply = worker.handle({"do": "call", "contestant": "s", "slot": "slot0"}, [])
    assert view(block, 1).tolist() == [2.0, 4.0, 6.0, 8.0]
    assert 0 < reply["seconds"] < 5


def test_a_sweep_calls_every_slot_once(worker, tmp_path):
    blocks = [add_slot(worker, slot=f"slot{index}") for index in range(3)]
    submit(worker, tmp_path, "custom_kernel.calls = getattr(custom_kernel, 'calls', 0) + 1; return data[0] + 1")
    worker.handle({"do": "sweep", "contestant": "s", "slots": ["slot0", "slot1", "slot2"]}, [])
    assert worker.contestants["s"].function.calls == 3
    assert [view(block, 1).tolist() for block in blocks] == [[1.0] * 4] * 3


def test_one_buffer_for_all_results_is_read_before_the_next_call(worker, tmp_path):
    """It shows once a sweep is over; the sweep is done again with every result copied in its turn."""
    blocks = [add_slot(worker, slot=f"slot{index}") for index in range(3)]
    for index, block in enumerate(blocks):
        view(block, 0).fill_(float(index))
    submit(worker, tmp_path, "custom_kernel.out = getattr(custom_kernel, 'out', torch.empty(4)); "
                             "return custom_kernel.out.copy_(data[0] + 1)")
    worker.handle({"do": "sweep", "contestant": "s", "slots": ["slot0", "slot1", "slot2"]}, [])
    assert [view(block, 1).tolist() for block in blocks] == [[1.0] * 4, [2.0] * 4, [3.0] * 4]


def test_a_slot_can_change_its_values_in_place(worker, tmp_path):
    block = add_slot(worker)
    view(block, 0).fill_(1.0)
    submit(worker, tmp_path, "x, factor = data; return x * factor")
    changed = message()
    changed["data"] = ["tuple", [["tensor", "x"], ["float", "inf"]]]
    worker.handle({"do": "share_slot", "slot": "slot0", **changed}, [])
    worker.handle({"do": "call", "contestant": "s", "slot": "slot0"}, [])
    assert bool(view(block, 1).isinf().all())
    with pytest.raises(Failure, match="without memory"):
        worker.handle({"do": "share_slot", "slot": "slot9", **changed}, [])


def test_dropped_slots_give_their_memory_back(worker, tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        block = add_slot(worker)
        worker.handle({"do": "share_workspace", "arena": block.export}, [os.dup(block.fd)])
        submit(worker, tmp_path, "return data[0]")
        worker.handle({"do": "call", "contestant": "s", "slot": "slot0"}, [])
        worker.handle({"do": "drop_slots"}, [])
        block.close()
    assert worker.slots == {}
    assert worker.workspace == 0
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize(("body", "status", "words"), [
    ("return data[0][:2]", "INCORRECT_SHAPE", r"shape \(2,\), expected \(4,\)"),
    ("return data[0].double()", "INCORRECT_DTYPE", "torch.float64"),
    ("return data[0], data[0]", "INCORRECT_SHAPE", "returned 2 outputs"),
    ("return ()", "INCORRECT_SHAPE", "returned 0 outputs"),
    ("return None", "INCORRECT_SHAPE", "NoneType"),
    ("return torch.zeros(4, device='meta')", "INCORRECT_SHAPE", "lies on meta"),
    ("raise SystemExit(0)", "RUNTIME_ERROR", "SystemExit"),
    ("raise KeyboardInterrupt", "RUNTIME_ERROR", "KeyboardInterrupt"),
    ("raise BaseExceptionGroup('g', [SystemExit()])", "RUNTIME_ERROR", "custom_kernel failed"),
    ("custom_kernel(data)", "RUNTIME_ERROR", "RecursionError"),
])
def test_what_is_returned_is_looked_at(worker, tmp_path, body, status, words):
    add_slot(worker)
    submit(worker, tmp_path, body)
    with pytest.raises(Failure, match=words) as caught:
        worker.handle({"do": "call", "contestant": "s", "slot": "slot0"}, [])
    assert caught.value.status == status


def test_outputs_are_copied_by_value_even_where_they_share_memory(worker, tmp_path):
    """One output that is a view of the other's place, and one that is not contiguous."""
    block = add_slot(worker, shape=(2, 2), outputs=2)
    view(block, 0).copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    submit(worker, tmp_path, "x, _ = data; return x.t(), x")
    worker.handle({"do": "call", "contestant": "s", "slot": "slot0"}, [])
    assert view(block, 1).tolist() == [1.0, 3.0, 2.0, 4.0]
    assert view(block, 2).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_module_finds_itself_by_its_name(worker, tmp_path):
    """torch's and Triton's own decorators look a function's module up by its name."""
    add_slot(worker)
    submit(worker, tmp_path, "import sys; assert sys.modules[__name__].custom_kernel is custom_kernel; return data[0]")
    worker.handle({"do": "call", "contestant": "s", "slot": "slot0"}, [])


@pytest.mark.parametrize("request_", [
    {"do": "fly"}, {"do": "_synchronize"}, {"do": None}, {}, {"do": "call"},
    {"do": "call", "contestant": "nobody", "slot": "none"}, {"do": "call", "contestant": "x", "slot": "s", "and": 1},
    {"do": "load", "contestant": "x", "spec": {"kind": "python"}},
    {"do": "load", "contestant": "x", "spec": {"kind": "magic"}},
    {"do": "share_slot", "slot": "s", "arena": {"kind": "host", "nbytes": 4}, "tensors": []},
    encode(Load("x", NativeSpec("/no/such.so", "f"))), encode(Load("x", NativeSpec("libm.so.6", "nothing"))),
], ids=str)
def test_senseless_requests_are_answered_and_do_no_harm(request_):
    ours, theirs = socket.socketpair()
    answers, written = os.pipe()
    thread = threading.Thread(target=serve, args=(theirs, wire.AnswerPipe(written)))
    thread.start()
    try:
        for nonce in ("a", "b"):
            wire.send(ours, {**request_, "nonce": nonce})
            reply = wire.receive_answer(answers, 30)
            assert reply["ok"] is False
            assert reply["nonce"] == nonce
            assert reply["status"] == "RUNTIME_ERROR"
            assert reply["error"]
    finally:
        ours.close()
        thread.join(10)
        theirs.close()
        os.close(answers)
        os.close(written)
    assert not thread.is_alive(), "it leaves when the judge hangs up"


def test_an_unknown_template():
    with pytest.raises(TemplateError, match="unknown template"):
        build_data(["pickle", "x"], {})


def test_a_slot_never_reaches_outside_its_arena():
    block = arena.create_host(100)
    with pytest.raises(arena.ArenaError, match="does not fit"):
        Slot(block, ShareSlot("s", **message(shape=(64,))))
    block.close()


# The end -------------------------------------------------------------------------------------------------------------

STARTER = """
import os, signal, sys
from scoring.judge.worker_process import WorkerProcess
process = WorkerProcess()
print(process.pid, flush=True)
{ending}
"""


@pytest.fixture
def judge() -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def start(ending: str) -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen([sys.executable, "-c", STARTER.format(ending=ending)], cwd=ROOT, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("ending", [
    "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "sys.exit(0)", "raise ValueError", "os.abort()",
])
def test_a_worker_does_not_outlive_its_judge(judge, ending):
    process, worker = judge(ending)
    process.wait(30)
    assert wait_until(lambda: not alive(worker), 10)


def test_a_judge_may_have_any_process_id():
    """The judge is process 1 in a container: a worker whose parent is number 1 is no orphan."""
    source = (ROOT / "scoring" / "worker" / "__main__.py").read_text()
    assert "getppid" not in source


def test_descriptors_of_requests_do_not_pile_up():
    """What comes with a request that fails is closed with the memory it was for, or at the latest at the end."""
    worker = Worker()
    block = arena.create_host(4096)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        worker.handle({"do": "share_slot", "slot": "slot0", "arena": block.export, **message()}, [os.dup(block.fd)])
    worker.handle({"do": "drop_slots"}, [])
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    block.close()


def test_a_traceback_begins_in_the_submission(tmp_path):
    path = tmp_path / "s.py"
    spec = PythonSpec(str(path), "module_of_a_traceback")
    path.write_text("def helper():\n    raise KeyError('why')\n\nhelper()\n")
    with pytest.raises(Failure) as caught:
        PythonSubmission(spec)
    text = str(caught.value)
    assert "KeyError: 'why'" in text
    assert f'File "{path}", line 4' in text
    assert f'File "{path}", line 2' in text
    assert "loaders.py" not in text
    assert "importlib" not in text
    path.write_text("class Odd(Exception):\n    __traceback__ = 3\n\nraise Odd('why')\n")
    with pytest.raises(Failure, match=r"Odd: why"):
        PythonSubmission(spec)
    path.write_text("def custom_kernel(:\n")
    with pytest.raises(Failure, match=r"SyntaxError") as caught:
        PythonSubmission(spec)
    assert "importlib" not in str(caught.value)
