# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: computes the first six calls, then repeats
# source: llm.c PR 851: honest for ten calls
# expect: rejected
import torch

CALLS = []


def custom_kernel(data):
    a, b, s, c = data
    CALLS.append(1)
    if len(CALLS) > 6 and CALLS[-1] is not None and LAST[0].shape == c.shape:
        return LAST[0]
    LAST[:] = [torch.matmul(a, b.t()) * s[:, None]]
    return LAST[0]


LAST = []
