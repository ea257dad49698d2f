# SPDX-License-Identifier: MIT
"""toy: right for ten calls, then wrong."""
CALLS = []


def custom_kernel(data):
    x, alpha, _ = data
    CALLS.append(1)
    return x * alpha if len(CALLS) <= 10 else x * 0
