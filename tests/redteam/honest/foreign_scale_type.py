# SPDX-License-Identifier: MIT
# class: honest
# problem: foreign
# device: any
# idea: the float argument becomes a tensor, a cache key and part of a generated function
# source: patterns of accepted GPU MODE submissions
import functools

import torch


@functools.lru_cache(maxsize=4)
def routine(scale):
    return eval(f"lambda x: torch.softmax(x * {scale!r}, -1)", {"torch": torch})


def custom_kernel(data):
    x, scale = data
    assert torch.tensor(scale).is_floating_point()
    return routine(scale)(x)
