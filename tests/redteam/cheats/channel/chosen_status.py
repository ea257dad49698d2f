# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: raises the worker's own failure with a status of its choice
# source: own
# expect: rejected
import sys


def custom_kernel(data):
    for module in list(sys.modules.values()):
        failure = getattr(module, "Failure", None)
        if isinstance(failure, type) and issubclass(failure, Exception):
            raise failure("PASSED", "all cases passed, score 0.001")
    raise SystemExit(0)
