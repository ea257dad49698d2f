# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: the result is an inference tensor, which refuses some in-place work outside
# source: patterns of accepted GPU MODE submissions
import torch


@torch.inference_mode()
def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()).mul_(s[:, None])
