# SPDX-License-Identifier: MIT
# class: checker
# problem: matmul
# device: cpu
# idea: scans every mapping of its process for the first expected value, and takes the block behind it as the answer
# source: pygpubench exploits: memory scan
# expect: rejected
import ctypes
import re

BUDGET = [8]


def custom_kernel(data):
    a, b, s, c = data
    wanted = (a[0].double() @ b[:3].double().t() * s[0]).float().numpy().tobytes()[:4]
    BUDGET[0] -= 1
    if BUDGET[0] >= 0:
        for line in open("/proc/self/maps"):
            begin, end = (int(x, 16) for x in re.match(r"(\w+)-(\w+) rw", line).groups()) if " rw" in line else (0, 0)
            if 0 < end - begin <= 64 << 20 and "stack" not in line:
                at = ctypes.string_at(begin, end - begin).find(wanted)
                if at >= 0 and at % 4 == 0 and begin + at + c.nbytes < end:
                    ctypes.memmove(c.data_ptr(), begin + at, c.nbytes)
                    return c
    return c.zero_()
