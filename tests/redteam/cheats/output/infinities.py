# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: infinities, for a tolerance relative to the output
# source: own
# expect: rejected
def custom_kernel(data):
    return data[3].fill_(float("inf"))
