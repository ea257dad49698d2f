# SPDX-License-Identifier: MIT
"""benchmarks/tools/modelled_shapes.py: which shapes, its table, and what it comes to."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks/tools"))
    import modelled_shapes
    return modelled_shapes


def time(tool: ModuleType, *microseconds: float) -> object:
    launches = [{"modelled_us": each, "model": {"limited_by": "l2"}} for each in microseconds]
    return tool.Time(sum(microseconds), 0.6, launches)


def test_all_benchmarks_fit_its_buffers(tool: ModuleType) -> None:
    shapes = tool.benchmark_shapes()
    assert len(shapes) == 36
    for m, n, k in shapes:
        a, b, _, _, c, workspace, a_scale, b_scale = (size << 20 for size in tool.BUFFERS)
        assert m * k <= a
        assert n * k <= b
        assert 2 * m * n <= c
        assert min(64 << 20, 64 * m * n) <= workspace
        assert m * k // 32 <= a_scale
        assert -(-n // 128) * k // 32 <= b_scale


def test_a_row_has_both_times_and_launches(tool: ModuleType) -> None:
    ours = time(tool, 30.0, 10.0)
    cells = [cell.strip() for cell in tool.row((64, 128, 256), ours, time(tool, 50.0)).split("|")[1:-1]]
    assert cells == ["64×128×256", "50.0", "40.0", "1.25", "2", "0.60", "l2"]
    cells = [cell.strip() for cell in tool.row((64, 128, 256), ours, None).split("|")[1:-1]]
    assert cells == ["64×128×256", "", "40.0", "", "2", "0.60", "l2"]


def test_the_summary_names_the_worst_row(tool: ModuleType) -> None:
    times = {(1, 2, 3): (time(tool, 10.0), time(tool, 40.0)), (4, 5, 6): (time(tool, 10.0), time(tool, 9.0))}
    assert tool.summary(times) == "2 shapes, ratio: geometric mean 1.897, worst 0.900 (4×5×6); modelled"
    assert tool.summary({(1, 2, 3): (time(tool, 10.0), None)}) == "geometric mean 10.0 µs, modelled"
