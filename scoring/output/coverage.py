# SPDX-License-Identifier: MIT
"""Which kernels there are: a row per problem, a column per target. ``list`` and README show this table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scoring.output.table import Column, Style, draw

# The targets that kernels of the checkout are written for: header, backend and arch ("" for any).
TARGETS = (("CPU", "cpu", ""), ("L4", "cuda", "sm_89"), ("H100, H200", "cuda", "sm_90a"), ("MI300", "rocm", "gfx942"))


def table(
    problems: Sequence[str], kernels: Iterable[tuple[str, str, str, Sequence[str]]], fmt: str = "simple",
) -> str:
    """``kernels``: backend, problem, variant and architectures (none for all) of each. A dash stands for no kernel."""
    known = list(kernels)

    def cell(problem: str, backend: str, arch: str) -> str:
        names = [variant for where, solved, variant, arches in known
                 if (where, solved) == (backend, problem) and (not arches or not arch or arch in arches)]
        return ", ".join(names) or "–"

    shown = [target for target in TARGETS if target[1] in {kernel[0] for kernel in known}]
    return draw([
        Column("problem", list(problems), right=False),
        *(Column(header, [cell(problem, backend, arch) for problem in problems], right=False)
          for header, backend, arch in shown),
    ], Style(fmt, width=10_000))
