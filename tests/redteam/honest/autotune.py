# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: times candidates on the first call of a shape with perf_counter and keeps the fastest
# source: patterns of accepted GPU MODE submissions
import time

import torch

CHOSEN = {}
CANDIDATES = (
    lambda a, b, s: torch.mm(a, b.t()) * s[:, None],
    lambda a, b, s: torch.mm(a * s[:, None], b.t()),
    lambda a, b, s: torch.nn.functional.linear(a, b) * s[:, None],
    lambda a, b, s: torch.mm(b, a.t()).t().mul(s[:, None]),
)


def seconds(candidate, a, b, s):
    candidate(a, b, s)
    begin = time.perf_counter()
    for _repeat in range(5):
        candidate(a, b, s)
    return time.perf_counter() - begin


def custom_kernel(data):
    a, b, s, _ = data
    key = (*a.shape, len(b))
    if key not in CHOSEN:
        CHOSEN[key] = min(CANDIDATES, key=lambda candidate: seconds(candidate, a, b, s))
    return CHOSEN[key](a, b, s)
