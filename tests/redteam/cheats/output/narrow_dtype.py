# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: returns fp16, half the bytes to write
# source: KernelGuard's precision rules
# expect: rejected
def custom_kernel(data):
    a, b, s, _c = data
    return ((a @ b.t()) * s[:, None]).half()
