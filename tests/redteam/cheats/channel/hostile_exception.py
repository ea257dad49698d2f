# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: an exception that raises while it is printed, lies about its class, and exits in its __str__
# source: own
# expect: rejected
import os


class Hostile(BaseException):
    __module__ = None
    __notes__ = ["\x1b[32mPASSED", 7, None]

    @property
    def __class__(self):
        return KeyError

    def __str__(self):
        os._exit(0)

    __repr__ = __str__


def custom_kernel(data):
    raise Hostile
