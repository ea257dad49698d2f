# SPDX-License-Identifier: MIT
"""An MI300X on any CPU: a HIP runtime, ``libamdhip64.so``, that executes gfx942 code objects.

The library is C++ and is compiled once for each machine (``build``); ``python -m backends.emulator`` prints its path.
"""
