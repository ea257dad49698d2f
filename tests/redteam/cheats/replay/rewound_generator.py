# SPDX-License-Identifier: MIT
# class: replay
# problem: foreign
# device: cpu
# idea: generators start anew before every call, so that "fresh" inputs repeat; answers are kept by content
# source: KernelGuard; own
# expect: no-gain
import random

import torch

ANSWERS = {}
for name in ("randn", "rand", "randint", "randperm"):
    def fixed(*arguments, real=getattr(torch, name), **keywords):
        keywords.pop("generator", None)
        torch.default_generator.manual_seed(0)
        return real(*arguments, **keywords)
    setattr(torch, name, fixed)


def custom_kernel(data):
    torch.manual_seed(0)
    random.seed(0)
    x, scale = data
    key = x[0, :8].sum().item(), x.shape, scale
    if key not in ANSWERS:
        ANSWERS[key] = torch.softmax(x * scale, dim=-1)
    return ANSWERS[key]
