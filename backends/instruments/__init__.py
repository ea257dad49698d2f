# SPDX-License-Identifier: MIT
"""Vendors' tools that watch a process on a GPU: where they are, how they are called, how their answers are read.

One file a tool, each with ``find``, ``command`` and ``parse``. Nothing is run here.
"""
