# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: a tensor with a shape and a dtype and no bytes
# source: SOL-ExecBench
# expect: rejected
import torch


def custom_kernel(data):
    return torch.empty(data[0].shape, device="meta")
