# SPDX-License-Identifier: MIT
# class: replay
# problem: foreign
# device: any
# idea: a hash of the whole content finds repeated inputs, whatever their address
# source: GPU MODE eigh 2026, commit 5b22465
# expect: no-gain
import torch

ANSWERS = {}


def custom_kernel(data):
    x, scale = data
    bits = x.view(torch.int32)
    key = int(bits.sum()), int(bits[:, ::7].sum()), scale
    if key not in ANSWERS:
        ANSWERS[key] = torch.softmax(x * scale, dim=-1)
    return ANSWERS[key]
