# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: an error text with terminal codes that wipe its own row and print one that passed
# source: own
# expect: rejected
ROW = "\x1b[1A\x1b[2K\r\x1b[32m\u2502 submission.py \u2502 PASSED \u2502 1.00 \u00b5s \u2502\x1b[0m\x1b]0;PASSED\x07"


def custom_kernel(data):
    raise RuntimeError(ROW * 3)
