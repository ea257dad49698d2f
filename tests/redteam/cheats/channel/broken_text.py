# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: an error text of lone surrogates, NULs, control and bidirectional characters that break encoders
# source: own
# expect: rejected
TEXT = "\ud800\udfff \x00\x01\x08\x0b\x7f\x85\x9b32m \u202ePASSED\u202c \u2028\ufffe\uffff \U0010ffff"


def custom_kernel(data):
    raise RuntimeError(TEXT)
