# SPDX-License-Identifier: MIT
"""kernels/hip/amd_moe/mfma.hip on the emulated MI300X beyond the cases of task.yml: experts without tokens and with
several tiles of rows, column tiles that are half full, what it declines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.hip.conftest import Builder
from tests.problems.folders import generate, problem, signature

UNSUPPORTED, SMALL = -1, -2
CASE = {"dhidden": 192, "dexpert": 64, "nroutedexperts": 3, "nsharedexperts": 1, "nexpertspertoken": 1, "bs": 1,
        "seqlen": 150}


def call(hip_kernel: Builder, data: Any, change: dict[str, int] | None = None) -> tuple[int, torch.Tensor]:
    """(status, y) of a call on ``data`` with other arguments."""
    binding = problem("amd_moe").binding
    case = binding.case_of(data)
    values = {name: value.numpy() if isinstance(value, torch.Tensor) else value
              for name, value in binding.arguments(case, data).items()}
    y = np.full((case["bs"], case["seqlen"], case["dhidden"]), np.nan, np.float16)
    room = np.full(binding.workspace_bytes(case), 0xFF, np.uint8)
    values |= {"y": y, "workspace": room, "workspace_bytes": room.nbytes, "queue": None, **(change or {})}
    status = hip_kernel("amd_moe")(*(values[parameter.name] for parameter in signature("amd_moe").params))
    return status, torch.from_numpy(y)


def check(data: Any, y: torch.Tensor) -> None:
    passed, message = problem("amd_moe").reference.check_implementation(data, y)
    assert passed, message


def test_an_expert_without_tokens_and_others_with_two_tiles(hip_kernel: Builder) -> None:
    """Expert 1's score is 0 and one of the other two's is positive, so nobody takes it."""
    x, weights, config = generate("amd_moe", CASE, seed=3)
    router = weights["router"].clone()
    router[1], router[2] = 0, -router[0]
    x = x.clone()
    x[0, :140] = x[0, :1]                       # one expert gets more than a tile holds
    data = x, {**weights, "router": router}, config
    status, y = call(hip_kernel, data)
    assert status == 0
    check(data, y)


@pytest.mark.parametrize(("tokens", "hidden", "inner", "experts", "chosen"), [
    (8192, 64, 64, 2, 1),       # tiles of four units, then of two and one where the shared expert ends
    (1100, 320, 192, 5, 2),     # tiles of unequal heights; columns that no die has alone
    (700, 512, 256, 20, 1),     # dies with more of the shared expert than an eighth of everything
    (130, 1024, 128, 63, 8),    # as many experts as there can be, a tile each
])
def test_every_tile_is_planned_once(
        hip_kernel: Builder, tokens: int, hidden: int, inner: int, experts: int, chosen: int) -> None:
    data = generate("amd_moe", {**CASE, "dhidden": hidden, "dexpert": inner, "nroutedexperts": experts,
                                "nexpertspertoken": chosen, "seqlen": tokens}, seed=5)
    status, y = call(hip_kernel, data)
    assert status == 0
    check(data, y)


@pytest.mark.parametrize(("change", "status"), [
    ({"hidden": 96}, UNSUPPORTED), ({"inner": 32}, UNSUPPORTED), ({"experts": 64}, UNSUPPORTED),
    ({"chosen": 4}, UNSUPPORTED), ({"tokens": 0}, UNSUPPORTED), ({"workspace_bytes": 4096}, SMALL)])
def test_what_it_declines(hip_kernel: Builder, change: dict[str, int], status: int) -> None:
    found, y = call(hip_kernel, generate("amd_moe", {**CASE, "seqlen": 3}), change)
    assert found == status
    assert bool(y.isnan().all())
