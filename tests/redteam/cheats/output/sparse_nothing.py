# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: a sparse tensor without entries has the right shape, dtype and device
# source: own
# expect: rejected
import torch


def custom_kernel(data):
    x, _scale = data
    return torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), [], x.shape, dtype=x.dtype, device=x.device)
