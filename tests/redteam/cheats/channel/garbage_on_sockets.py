# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: writes bytes that are no message to every socket it has
# source: GPU MODE cheat-fd test, 2025-04
# expect: rejected
import os
import stat

import torch


def custom_kernel(data):
    a, b, s, _ = data
    for number in range(256):
        try:
            mode = os.fstat(number).st_mode
            if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                os.write(number, b"\x00\x00\x00\x08PASSED!!\xff\xff")
        except OSError:
            continue
    return torch.mm(a, b.t()) * s[:, None]
