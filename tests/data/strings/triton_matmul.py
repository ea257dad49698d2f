#!POPCORN leaderboard strings
#!POPCORN gpus MI300
# SPDX-License-Identifier: MIT
"""A matrix product in Triton, tuned by its autotuner."""

import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.autotune([triton.Config({"BM": size, "BN": size, "BK": 16}, num_warps=size // 16) for size in (16, 32)],
                 key=["m", "n", "k"])
@triton.jit
def product(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + inner[None, :], (rows[:, None] < m) & (inner[None, :] < k), 0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :], (inner[:, None] < k) & (columns[None, :] < n), 0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(out + rows[:, None] * n + columns[None, :], total, (rows[:, None] < m) & (columns[None, :] < n))


def custom_kernel(data: input_t) -> output_t:
    a, b, out = data
    (m, k), n = a.shape, b.shape[1]
    facts = torch.cuda.get_device_properties(a.device)
    assert facts.gcnArchName.startswith("gfx942") if torch.version.hip else (facts.major, facts.minor) == (9, 0)
    product[lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](a, b, out, m, n, k)
    return out
