# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: an exception whose text is fifty megabytes, with a chain of two hundred causes
# source: own
# expect: rejected


def custom_kernel(data):
    error = RuntimeError("PASSED " * (50 << 17))
    for depth in range(200):
        cause = ValueError(f"{depth} " + "x" * 1000)
        cause.__cause__ = error
        error = cause
    raise error
