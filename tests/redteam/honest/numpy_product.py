# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: works on NumPy views of the tensors and wraps the result without a copy
# source: patterns of accepted GPU MODE submissions
import numpy as np
import torch


def custom_kernel(data):
    a, b, s, _ = (x.numpy() for x in data)
    return torch.from_numpy(np.multiply(a @ b.T, s[:, None]))
