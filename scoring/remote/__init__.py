# SPDX-License-Identifier: MIT
"""Runs on another machine: bundles of everything that is needed, and the way there and back over ssh."""
