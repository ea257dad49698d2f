# SPDX-License-Identifier: MIT
"""benchmarks/tools/rivals_square.py: its verdict, its table, and how it edits another project's source."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = str(Path(__file__).resolve().parents[1] / "benchmarks/tools")
    monkeypatch.syspath_prepend(folder)
    import rivals_square
    return rivals_square


def launch(microseconds: float, conflicts: int = 0, scratch: int = 0) -> dict[str, object]:
    model = {"limited_by": "mfma", "mfma_us": microseconds / 2, "l2_us": 1.0, "latency_us": 2.0, "tail_us": 0.0,
             "clock_mhz": 1200.0}
    return {"modelled_us": microseconds, "model": model, "lds": {"conflict_cycles": conflicts},
            "resources": {"scratch_bytes": scratch}}


def test_a_product_that_is_off_by_more_than_a_rounding_is_wrong(rivals: ModuleType) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(8, 64, generator=generator).bfloat16() for _ in range(2))
    exact = a.float() @ b.float().T
    result = exact.bfloat16()
    assert rivals.bf16_verdict(a, b, result, 2.0**-8) == "right"
    cut = (exact.view(torch.int32) & -65536).view(torch.float32).bfloat16()
    assert rivals.bf16_verdict(a, b, cut, 2.0**-7) == "right"
    assert rivals.bf16_verdict(a, b, cut, 2.0**-8).startswith("WRONG")
    result[3, 5] *= 1.02
    result[0, 0] = torch.nan
    assert rivals.bf16_verdict(a, b, result, 2.0**-7) == "WRONG: 2 of 64"


def test_table_adds_up_launches_and_compares(rivals: ModuleType) -> None:
    times = {"theirs": rivals.Time(300.0, 0.6, [launch(300.0, conflicts=7)]),
             "ours": rivals.Time(200.0, 0.6, [launch(150.0), launch(50.0, scratch=8)])}
    _titles, _rule, theirs, ours = rivals.table(1024, times, "theirs")
    assert [cell.strip() for cell in theirs.split("|")[1:6]] == ["theirs", "300", "7", "1.00", "0.60"]
    assert theirs.rstrip(" |").endswith("7")
    assert [cell.strip() for cell in ours.split("|")[1:5]] == ["ours s", "200", "11", "1.50"]
    assert ours.split("|")[7].strip() == "100"      # MFMA of both launches


def test_hipkittens_text_takes_another_size_and_no_bindings(rivals: ModuleType) -> None:
    from published_programs import hipkittens_text
    numbers = "".join(f"#define {name} 8192\n" for name in "MKN")
    source = f'#include "pyutils/pyutils.cuh"\n{numbers}body();\nPYBIND11_MODULE(x) {{}}'
    text = hipkittens_text(source, 512)
    assert "#define K 512\n" in text
    assert "8192" not in text
    assert "body();" in text
    assert "pyutils" not in text
    assert "PYBIND11" not in text
    with pytest.raises(AssertionError, match="not the source"):
        hipkittens_text(source.replace("#define N 8192", ""), 512)
