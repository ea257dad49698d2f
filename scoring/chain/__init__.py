# SPDX-License-Identifier: MIT
"""The commit chain: inputs sealed until they are due, N dependent calls per request, and a digest of every output.

``library`` has the arithmetic, for both processes; ``links`` is the worker's side, ``gate`` the judge's;
``calibration`` measures what a chain costs by itself; ``rounds`` decides which seconds count. docs/judge.md has the
protocol.
"""
