# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: rows of a small scale are left at zero: they hardly count in a norm
# source: GPU MODE MLA 2026: inputs scaled until nothing mattered
# expect: rejected


def custom_kernel(data):
    a, b, s, c = data
    large = s.abs() > 0.6
    c.zero_()
    c[large] = (a[large] @ b.t()) * s[large, None]
    return c
