# SPDX-License-Identifier: MIT
"""The scorer of kernels. ``python -m scoring`` is its command line; from Python::

    import scoring

    problem = scoring.load_problem("fp8_gemm")
    (record,) = scoring.score("fp8_gemm", kernel="naive", backend="cpu", mode="test", cases=["m=64,n=64,k=128"])
    kept = scoring.read_records(problem="fp8_gemm")

These names are the public interface (docs/python.md); every other module may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from scoring.api import load_problem, problem_names, read_records, score
    from scoring.problem import Problem
    from scoring.record import Case, CaseResult, Evidence, Mode, Record, Stats, Status

_HOMES = {
    **dict.fromkeys(("load_problem", "problem_names", "read_records", "score"), "scoring.api"),
    "Problem": "scoring.problem",
    **dict.fromkeys(("Case", "CaseResult", "Evidence", "Mode", "Record", "Stats", "Status"), "scoring.record"),
}
__all__ = ["Case", "CaseResult", "Evidence", "Mode", "Problem", "Record", "Stats", "Status", "load_problem",
           "problem_names", "read_records", "score"]


def __getattr__(name: str) -> Any:
    """Imports on first use: a worker imports this package too, and sees nothing of the judge."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'scoring' has no attribute {name!r}")
