# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: computes one row and returns it expanded over all
# source: own: stride 0
# expect: rejected
def custom_kernel(data):
    a, b, s, c = data
    return ((a[:1] @ b.t()) * s[0]).expand(c.shape)
