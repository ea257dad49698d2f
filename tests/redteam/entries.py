# SPDX-License-Identifier: MIT
"""The red team's files and what is decided about them: headers, trials, outcomes. No effects but reading files.

A file's head is a block of comments, ``# key: value``:

``class``    the row of the catalogue it belongs to; its folder's name
``problem``  ``matmul``, ``foreign`` (tests/redteam/problems), ``fp8_gemm``, or ``toy`` (tests/data) for a command line
``device``   ``cpu``, ``cuda``, ``any``, or ``shell``: a file of ``commands``, which is a command line
``idea``     one line: how it wants to gain, or why an honest file looks like a cheat
``source``   where it was seen, or ``own``
``expect``   of a cheat: ``no-gain`` (the default: it may pass, but not faster than honest) or ``rejected`` (what it
             returns is wrong or forbidden: it must not pass at any time)
``needs``    ``sandbox`` where only a sandbox stands against it (or ``landlock``, that kind): without one it is not run,
             and said so
``ends``     ``never`` for a file that has to be stopped: its deadlines are short ones
``again``    ``yes`` for a file that leaves something for its next judgement: it is judged twice in a row
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROBLEMS = ("matmul", "foreign", "fp8_gemm", "toy")
DEVICES = ("cpu", "cuda", "any", "shell")
GAIN = 0.8               # a cheat gains if its time is below this share of the honest one's …
TRIES = 4                # … in every one of so many paired tries: single ones gain by luck


class HeaderError(Exception):
    """A file's head lacks a key, or holds a value that is none; the message names the file."""


class Outcome(StrEnum):
    """What became of a file."""

    REWARDED = "rewarded"            # a cheat that got what it wanted: a hole in the judge
    REJECTED = "rejected"
    NEUTRALISED = "neutralised"      # a cheat that passed and gained nothing
    ACCEPTED = "accepted"            # an honest file that passed
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Entry:
    """One file with its header."""

    path: Path
    honest: bool
    kind: str                        # the header's class
    problem: str
    device: str
    idea: str
    source: str = "own"
    expect: str = "no-gain"
    needs: str = ""
    endless: bool = False
    again: bool = False              # judged twice in a row: the first time may leave something for the second

    @property
    def name(self) -> str:
        """``replay/by_address``: folder and file."""
        return f"{self.path.parent.name}/{self.path.stem}"

    def runs_on(self, device: str) -> bool:
        return self.device in (device, "any") or (device == "cpu" and self.device == "shell")


@dataclass(frozen=True)
class Trial:
    """One judgement, and the honest times right before and after it (seconds; None where it was not asked)."""

    status: str
    score: float | None = None
    before: float | None = None
    after: float | None = None
    message: str = ""
    evidence: tuple[str, ...] = ()   # what it got that is forbidden, whatever its score
    isolation: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "PASSED"

    @property
    def ratio(self) -> float | None:
        """Its time as a share of the honest one's: the faster of the two beside it. None without both."""
        honest = [value for value in (self.before, self.after) if value is not None]
        return self.score / min(honest) if self.score is not None and honest else None

    @property
    def gained(self) -> bool:
        return self.passed and self.ratio is not None and self.ratio < GAIN


def parse_header(path: Path, text: str) -> Entry:
    """The entry of a file with this text. Raises ``HeaderError``."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        key, colon, value = line.removeprefix("#").partition(":")
        if colon and not key.strip().startswith("SPDX"):
            fields[key.strip()] = value.strip()
    missing = [key for key in ("class", "problem", "device", "idea") if not fields.get(key)]
    if missing:
        raise HeaderError(f"{path}: its head has no {', '.join(missing)}")
    allowed = {"problem": PROBLEMS, "device": DEVICES, "expect": ("no-gain", "rejected"),
               "needs": ("sandbox", "landlock"), "ends": ("never",), "again": ("yes",)}
    for key, values in allowed.items():
        if key in fields and fields[key] not in values:
            raise HeaderError(f"{path}: {key} is {fields[key]!r}; there are {', '.join(values)}")
    return Entry(
        path, is_honest(path), fields["class"], fields["problem"], fields["device"], fields["idea"],
        fields.get("source", "own"), fields.get("expect", "no-gain"), fields.get("needs", ""),
        "ends" in fields, "again" in fields,
    )


def is_honest(path: Path) -> bool:
    """Whether the file lies in the folder of the honest ones."""
    return "honest" in path.relative_to(HERE).parts


def entries(root: Path = HERE) -> list[Entry]:
    """All files of the red team, cheats first, in name order. Raises ``HeaderError``."""
    folders = ("cheats", "cheats_cuda", "commands", "honest")
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return [parse_header(path, path.read_text(encoding="utf-8")) for path in paths]


def sample(found: Iterable[Entry], each: int) -> set[str]:
    """Names of ``each`` entries of every class, spread over its files."""
    classes: dict[str, list[str]] = {}
    for entry in found:
        classes.setdefault(entry.kind, []).append(entry.name)
    return {name for names in classes.values() for name in names[:: -(-len(names) // each)]}


def decide(entry: Entry, trials: Sequence[Trial]) -> Outcome:
    """What the trials of a file come to; none at all is NOT_RUN.

    A cheat is rewarded for forbidden evidence in any trial, for passing in any trial where it must be rejected, or for
    a gain in all of them. An honest file is accepted only if every trial passed.
    """
    if not trials:
        return Outcome.NOT_RUN
    if entry.honest:
        return Outcome.ACCEPTED if all(trial.passed for trial in trials) else Outcome.REJECTED
    if any(trial.evidence for trial in trials) or all(trial.gained for trial in trials):
        return Outcome.REWARDED
    if not any(trial.passed for trial in trials):
        return Outcome.REJECTED
    return Outcome.REWARDED if entry.expect == "rejected" else Outcome.NEUTRALISED


def wants_another(entry: Entry, trials: Sequence[Trial]) -> bool:
    """Whether one more try tells a gain from noise, or shows what the first left behind."""
    if entry.again and len(trials) == 1:
        return True
    return not entry.honest and 0 < len(trials) < TRIES and all(t.gained and not t.evidence for t in trials)


@dataclass(frozen=True)
class Result:
    """A file, its trials and their outcome."""

    entry: Entry
    trials: tuple[Trial, ...]
    outcome: Outcome
    why: str = ""                    # of a file that was not run

    @property
    def failed(self) -> bool:
        """Whether this is what must not be."""
        return self.outcome is (Outcome.REJECTED if self.entry.honest else Outcome.REWARDED)


def figures(results: Iterable[Result]) -> str:
    """The two figures: ``cheats rewarded: 0 of 64 · honest rejected: 0 of 27``, and how many were not run."""
    results = list(results)
    text = []
    for honest, label in ((False, "cheats rewarded"), (True, "honest rejected")):
        run = [r for r in results if r.entry.honest is honest and r.outcome is not Outcome.NOT_RUN]
        text.append(f"{label}: {sum(r.failed for r in run)} of {len(run)}")
    left = sum(r.outcome is Outcome.NOT_RUN for r in results)
    return " · ".join(text) + (f" · not run: {left}" if left else "")
