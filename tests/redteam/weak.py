# SPDX-License-Identifier: MIT
"""Judges that trust too much, made of the real one: a suite that finds nothing wrong with them finds nothing."""

from __future__ import annotations

from typing import Any

from scoring.judge import case_run, chain_verifier, timing
from scoring.judge.check import Verdict
from scoring.record import Status

WEAKNESSES = ("claims", "unchecked", "uncommitted")


def apply(weakness: str) -> None:
    """Weaken the judge of this process. Raises ``KeyError`` for an unknown word."""
    {"claims": _believe_claims, "unchecked": _check_nothing, "uncommitted": _ask_no_digest}[weakness]()


def _believe_claims() -> None:
    """Whatever seconds the worker names are the time."""
    timing.settle = lambda claim, bound: claim
    timing.possible = lambda claim, wall: claim > 0


def _check_nothing() -> None:
    """Every output is right."""
    def pass_all(*_arguments: Any, **_keywords: Any) -> Verdict:
        return Verdict(Status.PASSED)

    setattr(case_run, "verify", pass_all)  # noqa: B010 - the name is imported there, not exported


def _ask_no_digest() -> None:
    """Outputs need not be those that were there when the clock stopped, and nothing else than outputs is looked at."""
    real = chain_verifier.ChainVerifier._verify

    def verify(
        self: chain_verifier.ChainVerifier, contestant: Any, slots: Any, key: Any, reply: Any
    ) -> tuple[Verdict, int]:
        verdict, seed = real(self, contestant, slots, key, reply)
        return (Verdict(Status.PASSED), 0) if verdict.status is Status.TAMPERED else (verdict, seed)

    setattr(chain_verifier.ChainVerifier, "_verify", verify)  # noqa: B010
