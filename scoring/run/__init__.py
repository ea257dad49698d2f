# SPDX-License-Identifier: MIT
"""From a command line to jobs: what is selected, compiled, run where, and kept."""
