# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: a scripted function, whose profiling executor rewrites itself in the first calls
# source: patterns of accepted GPU MODE submissions
import warnings

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def scaled_product(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.mm(a, b.t()) * s.unsqueeze(1)


def custom_kernel(data):
    a, b, s, _ = data
    return scaled_product(a, b, s)
