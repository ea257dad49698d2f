# SPDX-License-Identifier: MIT
"""Gather what is wrong, so that one failure tells of all instructions."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import pytest

_SHOWN = 60


class Report:
    def __init__(self) -> None:
        self.passed: collections.Counter[str] = collections.Counter()
        self.failures: dict[str, list[str]] = collections.defaultdict(list)
        self.not_there: set[str] = set()

    def missing(self, name: str) -> None:
        """gfx942 has the instruction, the emulator has not."""
        self.not_there.add(name)

    def case(self, name: str, text: str, problems: Sequence[str]) -> None:
        if problems:
            self.wrong(name, text, problems)
        else:
            self.passed[name] += 1

    def wrong(self, name: str, text: str, problems: Sequence[str]) -> None:
        self.failures[name].append(f"{text}\n      " + "\n      ".join(problems[:3]))

    def check(self, least: int) -> None:
        """Fails with every instruction that was wrong in any case; ``least`` cases must have run."""
        if self.failures:
            lines = [f"{len(self.failures)} instructions differ ({sum(map(len, self.failures.values()))} cases, "
                     f"{self.passed.total()} agree):"]
            for name, found in list(self.failures.items())[:_SHOWN]:
                lines.append(f"  {name} ({len(found)} of {len(found) + self.passed[name]}):\n    {found[0]}")
            pytest.fail("\n".join(lines), pytrace=False)
        assert self.passed.total() >= least, f"only {self.passed.total()} cases ran"
