# SPDX-License-Identifier: MIT
"""Machine code as data: what a compiler made of a kernel, instruction by instruction, without a GPU.

``files.read`` takes a binary of ours, a cubin, a code object, a library or a program and returns its ``Function``s.
``loops`` finds their loops, ``overlap`` the order of products and waits in one, ``warnings`` what costs time, and
``document`` puts all of it into a JSON-ready dict.
"""
