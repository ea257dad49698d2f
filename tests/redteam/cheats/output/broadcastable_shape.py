# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: one row of shape [1, n], which broadcasts in a careless comparison
# source: KernelBench issue 38
# expect: rejected
def custom_kernel(data):
    a, b, s, _c = data
    return (a[:1] @ b.t()) * s[0]
