# SPDX-License-Identifier: MIT
"""The database of records."""
