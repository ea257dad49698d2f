# SPDX-License-Identifier: MIT
"""``scoring.judge.gpu_lock``: one judge per device, and a lock that nobody can leave behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from scoring.judge import gpu_lock
from tests.scoring.harness import ROOT


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_second_judge_waits_for_the_first():
    waited, order = threading.Event(), []

    def second() -> None:
        with gpu_lock.holding("gpu", waited.set):
            order.append("second")

    with gpu_lock.holding("gpu", lambda: order.append("never")) as held:
        assert held
        thread = threading.Thread(target=second)
        thread.start()
        assert waited.wait(10)
        time.sleep(0.05)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_judges_that_only_check_share_a_device_and_keep_one_that_times_waiting():
    waited, order = threading.Event(), []

    def timing() -> None:
        with gpu_lock.holding("gpu", waited.set):
            order.append("timed")

    with gpu_lock.holding("gpu", pytest.fail, shared=True):
        with gpu_lock.holding("gpu", pytest.fail, shared=True) as held:
            assert held
            thread = threading.Thread(target=timing)
            thread.start()
            assert waited.wait(10)
        time.sleep(0.05)
        order.append("checked")
    thread.join(10)
    assert order == ["checked", "timed"]


def test_devices_do_not_wait_for_one_another():
    with gpu_lock.holding("gpu 0", pytest.fail), gpu_lock.holding("gpu 1", pytest.fail) as held:
        assert held


def test_a_judge_that_is_killed_holds_nothing(tmp_path):
    code = ("import tempfile, time; tempfile.tempdir = {!r}\n"
            "from scoring.judge import gpu_lock\n"
            "with gpu_lock.holding('gpu', int): print('held', flush=True); time.sleep(60)")
    command = [sys.executable, "-c", code.format(str(tmp_path))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        other.kill()
    with gpu_lock.holding("gpu", pytest.fail) as held:
        assert held


def test_where_no_lock_can_be_the_judge_goes_on(tmp_path):
    gpu_lock.lock_file("gpu").symlink_to(tmp_path / "elsewhere")
    with gpu_lock.holding("gpu", pytest.fail) as held:
        assert not held
    assert not (tmp_path / "elsewhere").exists()
