# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: exp(x) as (1 + x/256)^256, squared eight times: no special function, three digits
# source: own
# expect: rejected
def custom_kernel(data):
    x, scale = data
    y = (x - x.amax(-1, keepdim=True)) * (scale / 256) + 1
    for _step in range(8):
        y = y * y
    return y / y.sum(-1, keepdim=True)
