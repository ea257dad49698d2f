# SPDX-License-Identifier: MIT
"""The process that the code under test runs in. Standard library and torch only."""
