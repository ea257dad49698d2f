# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: prints that it passed and leaves with exit code 0 in the middle of a call
# source: own
# expect: rejected
import os


def custom_kernel(data):
    os.write(1, b"all tests passed\nPASSED score 0.001\n")
    os._exit(0)
