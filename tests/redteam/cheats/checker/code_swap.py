# SPDX-License-Identifier: MIT
# class: checker
# problem: foreign
# device: any
# idea: the functions' __code__ is replaced, so that their identity is unchanged
# source: SOL-ExecBench's gap: id() stays the same
# expect: rejected
import gc
import types

import torch


def passed(*_arguments, **_keywords):
    return True, ""


for function in gc.get_objects():
    if isinstance(function, types.FunctionType) and function.__name__ in (
            "verify", "compare", "examine", "check_implementation", "check_outputs", "damage"):
        function.__code__ = passed.__code__


def custom_kernel(data):
    return torch.zeros_like(data[0])
