# SPDX-License-Identifier: MIT
"""``build``: compile the selection and show registers, spills, shared memory and occupancy."""

from __future__ import annotations

import argparse

from scoring.verbs import run as running


def run(options: argparse.Namespace) -> int:
    return running.execute(options, build_only=True)
