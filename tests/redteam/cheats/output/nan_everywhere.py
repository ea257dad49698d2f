# SPDX-License-Identifier: MIT
# class: output
# problem: matmul
# device: any
# idea: returns NaN, which is greater than no tolerance
# source: pygpubench PR 2; Sakana: comparisons with NaN are False
# expect: rejected
def custom_kernel(data):
    return data[3].fill_(float("nan"))
