# SPDX-License-Identifier: MIT
"""Modelled times come from launches that a process of the judge's runs again, on inputs that no worker has seen."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backends
from backends import _emulated
from backends.errors import ToolchainMissing
from scoring.ipc import requests
from scoring.judge import replay
from scoring.judge.job import Job
from scoring.judge.replay import RecordFile
from scoring.judge.score import score
from scoring.record import Case, Mode, Record, Status
from scoring.run import targets
from scoring.run.job import make_kernel_job, make_submission_job
from scoring.worker.replay import runs
from tests.emulator import assembled
from tests.scoring.harness import problem, toy

pytestmark = [pytest.mark.toolchain("rocm"), pytest.mark.timeout(600)]      # one of them may build the emulator

BENCHMARK = Case({"n": 4096}, "benchmarks")
# y = alpha * x; the arguments are the addresses of x and y, and the bits of alpha.
SCALE = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    s_load_dword s9, s[0:1], 0x10
    v_lshlrev_b32 v1, 2, v0
    s_lshl_b32 s8, s2, 8
    v_add_u32 v1, s8, v1
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
    v_mul_f32 v2, s9, v2
    global_store_dword v1, v2, s[6:7]
"""
SUBMISSION = """
import ctypes
import struct

import torch

CODE = bytes.fromhex("{code}")
hip = ctypes.CDLL(None)
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert hip.hipModuleLoadData(ctypes.byref(module), CODE) == 0
assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"kernel") == 0


def scale(x, alpha, y):
    bits = struct.unpack("<I", struct.pack("<f", alpha))[0]
    values = [ctypes.c_uint64(each) for each in (x.data_ptr(), y.data_ptr(), bits)]
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    assert hip.hipModuleLaunchKernel(function, x.numel() // 64, 1, 1, 64, 1, 1, 0, None, pointers, None) == 0
    return y


def custom_kernel(data):
    x, alpha, y = data
    {body}
"""


@pytest.fixture
def settings(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    try:
        _emulated.library()
    except ToolchainMissing as error:
        pytest.skip(str(error))
    monkeypatch.setattr(_emulated, "_chosen", [True])
    return toy(cache)


def kernel(settings: Any, name: str) -> Job:
    backend = backends.get("rocm")
    (candidate,) = targets.candidates(settings, [problem(settings)], {"rocm": backend.probe()}, [name], None)
    return make_kernel_job(settings, candidate, Mode.BENCHMARK, [BENCHMARK], False)


@pytest.fixture
def submitted(settings: Any, tmp_path: Path) -> Callable[[str], Record]:
    """The record of a Python file that calls ``scale`` as the text says."""
    code = assembled.code_object(SCALE, tmp_path, 3).hex()

    def judge(body: str) -> Record:
        path, staging = tmp_path / "submission.py", tmp_path / "staged"
        path.write_text(SUBMISSION.format(code=code, body=body))
        staging.mkdir(mode=0o755)
        backend = backends.get("rocm")
        (place,) = targets.places(settings, backend, backend.probe(), None)
        return score(make_submission_job(
            settings, problem(settings), place, path, staging, Mode.BENCHMARK, [BENCHMARK], False))

    return judge


def test_every_judgement_models_the_same_time(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other seeds, guards and poison, fresh processes, another number of threads."""
    times = set()
    for threads in (1, 3):
        monkeypatch.setenv("WARPWAVE_EMULATOR", f"threads={threads}")
        result = score(kernel(settings, "honest"))
        (case,) = result.cases
        assert case.stats is not None, result.message
        times.add(case.stats.median)
    assert len(times) == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("body", [
    "return scale(x, alpha, y)",
    "return scale(x, alpha, torch.empty_like(x))",
    "return scale(scale(x, alpha, torch.empty_like(x)), 1.0, torch.empty_like(x))",
])
def test_a_file_that_launches_everything_has_a_time(submitted: Callable[[str], Record], body: str) -> None:
    result = submitted(body)
    (case,) = result.cases
    assert result.status is Status.PASSED
    assert case.stats is not None, case.message
    assert case.stats.median == pytest.approx(1e-6 * sum(launch["modelled_us"] for launch in case.counters))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("body", [
    "scale(x, 1.0, torch.empty_like(x)); return x * alpha",                      # a launch that does nothing for it
    "scale(x, alpha, y); y[7] = x[7] * alpha; y = y.clone(); return y * 1.0",      # the host has the last word
    "return scale(x * alpha, 1.0, y)",                                           # the host works first
    "keep = (x * alpha).numpy().copy(); return scale(torch.from_numpy(keep), 1.0, y)",
    "return x * alpha",
])
def test_work_of_the_host_has_no_time(submitted: Callable[[str], Record], body: str) -> None:
    """It passes, as it is right; it has no counters, so no time that somebody could take for its own."""
    result = submitted(body)
    (case,) = result.cases
    assert (result.status, case.stats, case.counters) == (Status.PASSED, None, ())
    assert "no modelled time: " in case.message


def test_a_wrong_kernel_is_wrong_in_the_replay(settings: Any) -> None:
    result = score(kernel(settings, "wrong"))
    assert result.status is Status.INCORRECT_NUMERICAL
    assert "4096 of 4096 elements are wrong" in result.message


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "words"), [
    ("off_by_one", "read of 4 bytes"), ("traps", "s_trap"),
])
def test_a_replay_keeps_kernels_within_their_memory(settings: Any, name: str, words: str) -> None:
    """Whatever checks the settings ask for."""
    result = score(kernel(settings, name))
    assert result.status is Status.RUNTIME_ERROR
    assert words in result.message
    assert f"{name}.hip" in result.message


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spoil", [
    lambda record: b"",
    lambda record: b"{",
    lambda record: b"[]",
    lambda record: json.dumps({**record, "complete": False}).encode(),
    lambda record: json.dumps({**record, "slot": 5}).encode(),
    lambda record: json.dumps({**record, "slot": "x"}).encode(),
    lambda record: json.dumps({**record, "memory": [[1 << 62, 1]]}).encode(),
    lambda record: json.dumps({**record, "modules": []}).encode(),
    lambda record: json.dumps({**record, "modules": [{**record["modules"][0], "code": "7f454c46"}]}).encode(),
    lambda record: json.dumps({**record, "calls": [{"do": "call"}]}).encode(),
    lambda record: json.dumps({**record, "calls": [{**record["calls"][0], "kernel": "none"}]}).encode(),
    lambda record: json.dumps({**record, "calls": [{**record["calls"][0], "grid": [-1, 1, 1]}]}).encode(),
])
def test_a_spoilt_record_has_no_time(settings: Any, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    real = RecordFile.read
    monkeypatch.setattr(replay.RecordFile, "read", lambda self: spoil(json.loads(real(self))))
    result = score(kernel(settings, "honest"))
    (case,) = result.cases
    assert case.stats is None
    assert case.counters == ()
    assert result.message or case.message


def test_a_record_that_is_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "LARGEST", 1 << 20)
    with RecordFile() as file:
        os.truncate(file.fd, 1 << 40)
        assert len(file.read()) <= 2 << 20


def test_pages_beside_one_another_are_one_range() -> None:
    assert list(runs([0x5000, 0x3000, 0x4000, 0x9000, 0x3000])) == [(0x3000, 0x3000), (0x9000, 0x1000)]
    assert list(runs([])) == []


def test_a_call_that_is_recorded_crosses_the_wire() -> None:
    call = requests.Call("kernel", "slot0", "instead")
    assert requests.decode(requests.encode(call)) == call
