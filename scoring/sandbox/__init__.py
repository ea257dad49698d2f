# SPDX-License-Identifier: MIT
"""What the code under test runs in: which isolation this machine can give, and everything that makes it up."""
