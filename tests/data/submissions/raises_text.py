# SPDX-License-Identifier: MIT
"""toy: an exception whose text is no text."""


def custom_kernel(data):
    raise ValueError("\ud800 \x1b[31m \x00 ::error file=x::y ]]> <b> \u202e" + "x" * 100_000)
