# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: computes the transpose: the result is a view with strides (1, m)
# source: patterns of accepted GPU MODE submissions
import torch


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(b, (a * s[:, None]).t()).t()
