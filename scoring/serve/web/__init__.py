# SPDX-License-Identifier: MIT
"""The contest's pages: made on the server, readable without scripts."""
