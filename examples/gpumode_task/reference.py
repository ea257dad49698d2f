# SPDX-License-Identifier: MIT
"""RMS normalisation: inputs, reference and check."""

import torch

from task import input_t, output_t

# The row's sum is exact enough in fp64. The bound covers the rounding to bf16 and one more for a product in bf16.
RELATIVE = 2 * 2.0**-8
ABSOLUTE = 1e-6


def generate_input(rows: int, width: int, seed: int) -> input_t:
    """Normal x with one large column; weights around 1."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(rows, width, device=device, generator=generator)
    x[:, seed % width] *= 30
    weight = 1 + 0.1 * torch.randn(width, device=device, generator=generator)
    return x.bfloat16(), weight.bfloat16(), 1e-5


def ref_kernel(data: input_t) -> output_t:
    x, weight, eps = data
    wide = x.double()
    return (wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()).to(x.dtype)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    """Compares every element in fp64; the bound follows from the rounding to bf16."""
    expected = ref_kernel(data)
    if not isinstance(output, torch.Tensor) or output.shape != expected.shape or output.dtype != expected.dtype:
        return False, f"a {expected.dtype} tensor of shape {tuple(expected.shape)} is expected"
    difference = (output.double() - expected.double()).abs()
    wrong = ~(difference <= RELATIVE * expected.double().abs() + ABSOLUTE)
    if wrong.any():
        row, column = (int(i) for i in wrong.nonzero()[0])
        return False, (f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at [{row}, {column}]: "
                       f"{output[row, column].item():g} instead of {expected[row, column].item():g}")
    return True, f"largest difference {difference.max().item():.3g}"
