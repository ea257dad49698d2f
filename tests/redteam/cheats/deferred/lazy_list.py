# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: any
# idea: returns a list that computes when its elements are asked for the second time
# source: own
# expect: no-gain
import torch


class Lazy(list):
    def __iter__(self):
        a, b, s, c = self.work
        torch.matmul(a, b.t(), out=c).mul_(s[:, None])
        return iter([c])


def custom_kernel(data):
    lazy = Lazy([data[3]])
    lazy.work = data
    return lazy
