# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: returns memory of its own and leaves the given c alone
# source: patterns of accepted GPU MODE submissions
import torch


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a * s[:, None], b.t())
