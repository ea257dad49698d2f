# SPDX-License-Identifier: MIT
"""The ladders' steps translate to PTX, and each is timed beside what the tree has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import backends
from backends.base import ToolchainMissing
from backends.cuda import ptx_command
from backends.source import KernelSource

ROOT = Path(__file__).resolve().parents[3]
STEPS = sorted((ROOT / "benchmarks/ladder").glob("*/*.cu"))


@pytest.mark.parametrize("path", STEPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_step_translates_without_a_warning(path: Path, tmp_path: Path) -> None:
    backend = backends.get("cuda")
    source = KernelSource.read(path, ROOT)
    assert source.arches[-1] == "sm_90a"
    ptx = tmp_path / "kernel.ptx"
    try:
        command = ptx_command(backend.command(source, tmp_path / "kernel.so", backend.target("sm_90a"), {}), ptx)
    except ToolchainMissing as error:
        pytest.skip(str(error))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"\b(warning|error)\b", done.stdout + done.stderr)
    assert ".entry" in ptx.read_text()


def test_steps_are_numbered_without_gaps_between_them_and_the_trees() -> None:
    script = (ROOT / "benchmarks/dev/ladder.py").read_text()
    for folder in sorted({path.parent for path in STEPS}):
        line = re.search(rf'"{folder.name}": (\{{[^}}]*\}})', script)
        assert line is not None
        steps = [path.stem for path in folder.glob("*.cu")] + re.findall(r'"(\d\w+)":', line[1])
        assert sorted(int(step.split("_")[0]) for step in steps) == list(range(1, len(steps) + 1))
