# SPDX-License-Identifier: MIT
"""toy: the right answer, in fresh memory."""


def custom_kernel(data):
    x, alpha, _ = data
    return x * alpha
