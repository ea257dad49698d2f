# SPDX-License-Identifier: MIT
"""A contest whose data are on a GPU: a small matrix product in fp32."""

import torch
from task import input_t, output_t


def generate_input(m: int, n: int, k: int, seed: int) -> input_t:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    a = torch.randn(m, k, device="cuda", generator=generator)
    b = torch.randn(k, n, device="cuda", generator=generator)
    return a, b, torch.zeros(m, n, device="cuda")


def ref_kernel(data: input_t) -> output_t:
    a, b, _ = data
    return a @ b


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    error = float((output - ref_kernel(data)).abs().max())
    return error < 1e-3, f"largest difference {error:.3g}"
