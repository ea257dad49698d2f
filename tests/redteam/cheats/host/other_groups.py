# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: lists the control groups of other judgements: who judges, since when, with how much memory
# source: own
# needs: sandbox
import os

import torch

FOUND = [os.path.join(folder, name) for folder, names, _files in os.walk("/sys/fs/cgroup") for name in names
         if name.startswith("warpwave-")]
if FOUND:
    raise RuntimeError(f"ESCAPED: {FOUND[:3]}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
