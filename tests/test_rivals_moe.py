# SPDX-License-Identifier: MIT
"""benchmarks/tools/rivals_moe.py and hipblaslt.py: how arguments are laid out, rows ordered, results judged."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks/tools"))
    import rivals_moe
    return rivals_moe


def layer(tools: ModuleType) -> Any:
    shape = tools.Shape(tokens=6, hidden=64, inner=32, experts=4, chosen=2)
    return tools.Layer(ctypes.CDLL(None), shape, tools.small(shape))


def test_a_product_is_the_library_s_transposed_one(tools: ModuleType) -> None:
    arguments = tools.Product(a=1, b=2, c=3, m=5, n=7, k=11).arguments()
    assert len(arguments) == 88
    sizes, addresses = struct.unpack("<4I", arguments[:16]), struct.unpack("<4Q", arguments[16:48])
    assert sizes == (7, 5, 1, 11)
    assert addresses == (3, 3, 2, 1)
    assert struct.unpack("<8I2f", arguments[48:])[::2] == (7, 7, 7, 11, 1.0)


def test_rows_lie_in_the_order_of_experts(tools: ModuleType) -> None:
    made = layer(tools)
    assert made.permuted_experts.tolist() == sorted(made.permuted_experts.tolist())
    slots, tokens = made.permuted_rows // 6, made.permuted_rows % 6
    choices = torch.topk(made.scores.float(), 2).indices
    assert choices[tokens.long(), slots.long()].tolist() == made.permuted_experts.tolist()
    assert made.begins[0] == 0
    assert made.begins[-1] == 12


def test_a_wrong_row_is_seen(tools: ModuleType) -> None:
    made = layer(tools)
    weights = torch.softmax(made.scores.float(), 1).half().float()
    chosen = torch.topk(made.scores.float(), 2).indices

    def expert(number: int, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (each[number].float() for each in (made.gate, made.up, made.down))
        return torch.as_tensor((torch.nn.functional.silu(x @ gate) * (x @ up)) @ down)
    for token, x in enumerate(made.x.float()):
        parts = [weights[token, number] * expert(int(number), x) for number in chosen[token]]
        made.y[token] = (expert(-1, x) + torch.stack(parts).sum(0)).half()
    assert tools.verdict(made) == "right"
    made.y[3, 5] += 0.5
    assert tools.verdict(made) == "WRONG: 1 of 384"
