# SPDX-License-Identifier: MIT
"""Records as text and pages. Reads records and nothing that makes them."""
