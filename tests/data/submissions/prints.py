# SPDX-License-Identifier: MIT
"""toy: 10 MB on stdout, then the right answer."""
import sys


def custom_kernel(data):
    x, alpha, _ = data
    sys.stdout.write("x" * 10_000_000)
    sys.stdout.flush()
    return x * alpha
