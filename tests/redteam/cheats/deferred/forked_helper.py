# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: cpu
# idea: a process forked at import computes in the shared arenas, the call only tells it which
# source: pygpubench; own
# expect: no-gain
import os
import sys

import torch

# The helper inherits the arenas only if it is forked after they were mapped: at the first call with a new buffer.
HELPERS = {}


def custom_kernel(data):
    a, b, s, c = data
    key = a.data_ptr(), c.data_ptr(), c.shape
    if key not in HELPERS and len(HELPERS) < 16:
        torch.set_num_threads(1)
        ask, told = os.pipe(), os.pipe()
        if os.fork() == 0:
            try:
                os.close(ask[1])
                while os.read(ask[0], 1):
                    c.copy_((a @ b.t()) * s[:, None])
                    os.write(told[1], b"x")
            finally:
                os._exit(0)
        HELPERS[key] = ask[1]
        sys.stdout.flush()
    if key in HELPERS:
        os.write(HELPERS[key], b"x")
        return c
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
