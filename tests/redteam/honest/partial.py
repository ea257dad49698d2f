# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: custom_kernel is a functools.partial of a wrapped function
# source: patterns of accepted GPU MODE submissions
import functools

import torch


def counted(function):
    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        wrapper.calls += 1
        return function(*arguments, **keywords)

    wrapper.calls = 0
    return wrapper


@counted
def scaled_product(data, *, product):
    a, b, s, _ = data
    return product(a, b.t()).mul_(s[:, None])


custom_kernel = functools.partial(scaled_product, product=torch.mm)
