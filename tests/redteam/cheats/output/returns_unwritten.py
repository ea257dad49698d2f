# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: returns the buffer as it came, hoping that it still holds an old or the reference's answer
# source: Sakana AI CUDA Engineer 2025; GPU MODE fp8-mm
# expect: rejected


def custom_kernel(data):
    return data[-1]
