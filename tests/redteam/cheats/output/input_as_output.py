# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: returns the input itself
# source: own
# expect: rejected
def custom_kernel(data):
    return data[0]
