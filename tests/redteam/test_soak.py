# SPDX-License-Identifier: MIT
"""The soak itself, a few rounds of it: `make soak` is for an hour when nobody waits."""

from __future__ import annotations

import os
import subprocess

import pytest

from scoring.record import Mode
from tests.redteam import soak


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_kind_of_file_comes_out_as_it_should_and_leaves_nothing():
    told: list[str] = []
    assert soak.soak(len(soak.BODIES), "cpu", Mode.TEST, told.append) == []
    assert told[-1].startswith(f"{len(soak.BODIES)} judgements")


@pytest.mark.timeout(900)
def test_judges_that_are_killed_leave_nothing():
    told: list[str] = []
    assert soak.soak(8, "cpu", Mode.TEST, told.append, jobs=3) == []
    assert told[-1].endswith("2 judges killed")


def test_what_is_left_is_seen(tmp_path):
    before = soak.leavings(tmp_path)
    (tmp_path / "left").touch()
    fd = os.open("/dev/null", os.O_RDONLY)
    with subprocess.Popen(["sleep", "60"]) as process:
        after = soak.leavings(tmp_path)
        process.kill()
    os.close(fd)
    grown = {kind for kind, count in after.items() if count > before[kind]}
    assert grown >= {"processes", "descriptors", "files in the temporary folder"}
