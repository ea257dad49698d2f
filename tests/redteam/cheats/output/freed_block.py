# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: a fresh empty tensor may be the block in which the reference left its answer
# source: Sakana AI CUDA Engineer 2025: memory reuse in the checker
# expect: rejected
import torch


def custom_kernel(data):
    return torch.empty(data[3].shape, device=data[3].device)
