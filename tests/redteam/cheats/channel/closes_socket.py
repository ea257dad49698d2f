# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: hangs up in the middle of a call and works on
# source: own
# expect: rejected
import os
import stat

import torch


def custom_kernel(data):
    a, b, s, _ = data
    for number in range(3, 256):
        try:
            mode = os.fstat(number).st_mode
            if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                os.close(number)
        except OSError:
            continue
    return torch.mm(a, b.t()) * s[:, None]
