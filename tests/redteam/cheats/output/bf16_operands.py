# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: both operands rounded to bf16 for the faster units
# source: KernelBench-Hard; KernelGuard's precision rules
# expect: rejected


def custom_kernel(data):
    a, b, s, c = data
    return c.copy_((a.bfloat16() @ b.bfloat16().t()).float() * s[:, None])
