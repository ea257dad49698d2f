# SPDX-License-Identifier: MIT
"""The server's HTTP interface: what popcorn-cli speaks, and the organiser's part of it."""
