# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: prints a forged row with terminal codes, then crashes, as the judge shows what a crash printed last
# source: own
# expect: rejected
import os
import sys

ROW = "\x1b[1A\x1b[2K\r\x1b[32m\u2502 submission.py \u2502 PASSED \u2502 1.00 \u00b5s \u2502\x1b[0m\x1b]0;PASSED\x07"


def custom_kernel(data):
    for stream in (sys.stdout, sys.stderr):
        stream.write((ROW + "\n") * 20)
        stream.flush()
    os.abort()
