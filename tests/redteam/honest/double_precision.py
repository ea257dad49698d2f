# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: works in fp64 and rounds once
# source: patterns of accepted GPU MODE submissions


def custom_kernel(data):
    a, b, s, _ = data
    return ((a.double() @ b.double().t()) * s.double()[:, None]).float()
