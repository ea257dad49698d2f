# SPDX-License-Identifier: MIT
"""The host emulation itself notices faults of small kernels (machine_probe.cu), and accepts the kernels without."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
IN_TURNS, FORWARD, BACKWARD = range(3)
LATE, AT_ONCE = range(2)
EVERYWHERE = {(order, copies) for order in (IN_TURNS, FORWARD, BACKWARD) for copies in (LATE, AT_ONCE)}
FAULTS = {   # fault: (the orders and times of copies that show it, the message; none where the result is wrong)
    "no barrier, reads the warp before": ({(BACKWARD, LATE), (BACKWARD, AT_ONCE)}, ""),
    "no barrier, reads the warp behind": ({(FORWARD, LATE), (FORWARD, AT_ONCE)}, ""),
    "never written": (EVERYWHERE, ""),
    "copy never waited for": ({run for run in EVERYWHERE if run[1] == LATE}, "ends with asynchronous copies under way"),
    "copy read before its wait": ({run for run in EVERYWHERE if run[1] == LATE}, ""),
    "copy from behind the array": (EVERYWHERE, "asynchronous copy reads outside every announced array"),
    "misaligned copy": (EVERYWHERE, "misaligned global address"),
    "load from behind the array": (EVERYWHERE, "__ldg reads outside every announced array"),
    "half a warp": (EVERYWHERE, "deadlock"),
    "barrier without a warp": (EVERYWHERE, "deadlock"),
}


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("the emulation needs g++")
    program = tmp_path_factory.mktemp("machine") / "probe"
    folders = (HERE / "emulation", HERE.parents[2] / "kernels/common")
    command = [compiler, "-std=c++20", "-Og", "-Wall", *(f"-I{folder}" for folder in folders), "-x", "c++",
               str(HERE / "machine_probe.cu"), "-o", str(program)]
    subprocess.run(command, check=True, timeout=100)
    return program


@pytest.mark.parametrize("kernel", FAULTS)
def test_a_fault_is_noticed_and_nothing_else(probe, kernel):
    shown_by, message = FAULTS[kernel]
    for order, copies in EVERYWHERE:
        for fault in (0, 1):
            done = subprocess.run([probe, kernel, str(fault), str(order), str(copies)], capture_output=True, text=True,
                                  timeout=20, check=False)
            noticed = bool(fault) and (order, copies) in shown_by
            assert (done.returncode != 0) == noticed, (fault, order, copies)
            assert (message in done.stderr) if noticed else not done.stderr
            assert not noticed or bool(done.stderr) == bool(message)
