# SPDX-License-Identifier: MIT
"""toy: imports what is staged beside it, and finds no reference."""
import importlib.util

import task
import utils

assert utils.K_BLOCK if hasattr(utils, "K_BLOCK") else utils.Expectation
assert task.input_t
assert not any(importlib.util.find_spec(name) for name in ("reference", "binding", "mutants"))


def custom_kernel(data):
    x, alpha, _ = data
    return x * alpha
