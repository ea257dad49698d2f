# SPDX-License-Identifier: MIT
"""No instruction without a test, and none that gfx942 has without an implementation."""

from __future__ import annotations

import collections
import re
import subprocess
from pathlib import Path

import pytest

from tests.emulator.isa import suites
from tests.emulator.isa.assembler import COMMAND
from tests.emulator.isa.corrections import ASSEMBLER_NAMES
from tests.emulator.isa.test_disassemble import instructions
from tests.emulator.isa.wave import Emulator

pytestmark = pytest.mark.toolchain("rocm")

# Instructions of the table that no test runs, and why not.
UNTESTED: dict[str, str] = {}
# What the assembler knows for gfx942 and the table has not, and why not.
UNKNOWN = {"v_screen_partition_4se_b32": "nobody publishes the table that it looks numbers up in"}

_ALIASES = {"v_accvgpr_read": "v_accvgpr_read_b32", "v_accvgpr_write": "v_accvgpr_write_b32"}


def test_every_instruction_is_tested(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    counts: collections.Counter[str] = collections.Counter()
    where: dict[str, set[str]] = collections.defaultdict(set)
    for suite in suites.NAMES:
        for code in suites.codes(suite):
            for name in {_name(text) for _, text in instructions(code, emulator)}:
                counts[name] += 1
                where[name].add(suite)
    for name in _matrix_names():
        counts[name] += 1
        where[name].add("test_mfma")
    rows = {row["name"] for row in emulator.instructions()}
    missing = sorted(rows - counts.keys() - UNTESTED.keys())
    with capsys.disabled():
        print(f"\n{len(rows)} instructions, {len(rows & counts.keys())} tested by "     # noqa: T201
              f"{sum(n for name, n in counts.items() if name in rows)} cases in {len(suites.NAMES) + 1} tests, "
              f"{len(UNTESTED)} excepted")
    assert not missing, f"no test runs them, and no exception says why: {missing}"
    assert sorted(UNTESTED.keys() & counts.keys()) == [], "excepted although a test runs them"


def _name(text: str) -> str:
    return re.sub(r"_(e64|sdwa|dpp)$", "", text.split()[0])


def _matrix_names() -> list[str]:
    from tests.emulator.matrix_problem import DENSE, SPARSE
    return [*DENSE, *SPARSE]


def test_every_instruction_of_gfx942_is_implemented(implemented: set[str], tmp_path: Path) -> None:
    """Of all names that the manuals' tables have, those that the assembler knows for this processor."""
    enumerations = pytest.importorskip("tinygrad.runtime.autogen.amd.cdna.operands")
    names = sorted({re.sub(r"_e(32|64)$", "", op.name.lower()) for op in enumerations.OPERANDS})
    names = [_ALIASES.get(name, ASSEMBLER_NAMES.get(name, name)) for name in names]
    source = tmp_path / "names.s"
    source.write_text("\n".join(f"{name} ?" for name in names))
    log = subprocess.run([*COMMAND, str(source), "-o", str(tmp_path / "names.o")], capture_output=True, text=True,
                         check=False).stderr
    said = dict(re.findall(r"names\.s:(\d+):\d+: error: ([^\n]*)", log)[::-1])
    unknown = re.compile("invalid instruction|not supported on this GPU")
    there = {name for i, name in enumerate(names, 1) if not unknown.search(said.get(str(i), ""))}
    assert len(there) > 1000
    assert sorted(there - implemented - UNKNOWN.keys()) == []
    assert UNKNOWN.keys() <= there
