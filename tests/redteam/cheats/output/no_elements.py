# SPDX-License-Identifier: MIT
# class: output
# problem: foreign
# device: any
# idea: an empty tensor: everything in it is right
# source: own
# expect: rejected
def custom_kernel(data):
    return data[0][:0]
