# SPDX-License-Identifier: MIT
"""What a planted fault is: a snippet of a file that becomes another one, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """``text``, which stands once in ``file``, becomes ``damaged``; a test among ``tests`` must fail.

    ``likely``: the tests to try first.
    """

    file: str
    name: str
    text: str
    damaged: str
    likely: tuple[str, ...]
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """``source`` with the fault. Raises ``LookupError`` unless the snippet stands there exactly once."""
        if (found := source.count(self.text)) != 1:
            raise LookupError(f"{self.file}: {self.name}: the snippet stands there {found} times; write it anew")
        return source.replace(self.text, self.damaged)


@dataclass(frozen=True)
class Group:
    """Faults of one file: (name, text, damaged). ``more``: further tests that may notice what ``tests`` do not."""

    file: str
    tests: tuple[str, ...]
    faults: tuple[tuple[str, str, str], ...]
    more: tuple[str, ...] = ()

    def all(self) -> list[Fault]:
        return [Fault(self.file, *fault, self.tests, (*self.tests, *self.more)) for fault in self.faults]


def stale(root: Path, faults: list[Fault]) -> list[str]:
    """What is wrong with a list: snippets that are not there once, faults that change nothing, names given twice."""
    found, names = [], set()
    for fault in faults:
        try:
            if fault.planted((root / fault.file).read_text()) == (root / fault.file).read_text():
                found.append(f"{fault.file}: {fault.name}: changes nothing")
        except LookupError as error:
            found.append(str(error))
        if (key := (fault.file, fault.name)) in names:
            found.append(f"{fault.file}: {fault.name}: the name is given twice")
        names.add(key)
    return found
