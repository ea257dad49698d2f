# SPDX-License-Identifier: MIT
"""The scorer: check, then time, never otherwise."""
