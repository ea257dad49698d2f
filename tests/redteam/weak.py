# SPDX-License-Identifier: MIT
"""Judges that trust too much, made of the real one: what a suite that cannot fail would not notice."""

from __future__ import annotations

from typing import Any

from scoring import caserun, timing
from scoring.check import Verdict
from scoring.model import Status

WEAKNESSES = ("claims", "unchecked")


def apply(weakness: str) -> None:
    """Weaken the judge of this process. Raises ``KeyError`` for an unknown word."""
    {"claims": _believe_claims, "unchecked": _check_nothing}[weakness]()


def _believe_claims() -> None:
    """Whatever seconds the worker names are the time."""
    timing.accept = lambda claim, *_clock: claim


def _check_nothing() -> None:
    """Every output is right."""
    def pass_all(*_arguments: Any, **_keywords: Any) -> Verdict:
        return Verdict(Status.PASSED)

    caserun.verify = pass_all
