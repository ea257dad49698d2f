# SPDX-License-Identifier: MIT
# class: harness
# problem: matmul
# device: any
# idea: the worker's own look at shapes and dtypes is gone, and what is returned is a number
# source: own
# expect: rejected
import sys

CONTESTANTS = next(m for n, m in sys.modules.items() if n.endswith("scoring.worker.loaders"))
CONTESTANTS.PythonSubmission._check = lambda self, result, slot: []


def custom_kernel(data):
    return 42
