# SPDX-License-Identifier: MIT
"""Faults that no test can notice, and why: (file, name) -> the reason."""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str], str] = {
    ("problems/utils.py", "a difference that is not below its bound"):
        "an answer exactly on a bound takes the slow way, which allows it",
    ("problems/utils.py", "infinities equal anything"):
        "whether an infinity is right is asked beside it; the share of a wrong element is raised to 1",
    ("scoring/judge/timing.py", "a claim of infinity"):
        "neither infinity nor NaN is at most the time of a request",
}
