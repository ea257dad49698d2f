# SPDX-License-Identifier: MIT
"""What a run produces: statuses, statistics and records. Standard library only; every output reads these.

Units: seconds, bytes, FLOP. A ``Record`` is one (problem, kernel, target) scored once; it is plain data and survives a
round trip through JSON (``to_json``/``from_json``), ``schema`` naming its version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

SCHEMA = 1
NOT_ASKED = "compiled; not asked to run"      # the message of a record that was only built


class Status(StrEnum):
    """The verdict vocabulary. Order of ``SEVERITY`` decides which one a record takes from its cases."""

    PASSED = "PASSED"
    UNAVAILABLE = "UNAVAILABLE"                    # compiled, but no device here to run on
    INCOMPLETE = "INCOMPLETE"                      # of a record alone: the run was ended, with nothing wrong until then
    UNSUPPORTED = "UNSUPPORTED"                    # the kernel declined the shape (KernelStatus kUnsupportedShape)
    COMPILE_ERROR = "COMPILE_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"                # vendor error code, exception, or a crash
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    MUTATED_INPUT = "MUTATED_INPUT"                # wrote to an input, or outside an output
    TAMPERED = "TAMPERED"
    TIMING_MISMATCH = "TIMING_MISMATCH"
    SANDBOX_VIOLATION = "SANDBOX_VIOLATION"
    TIMEOUT = "TIMEOUT"


# Least to most severe: a record takes the last one its cases reach.
SEVERITY = (
    Status.PASSED, Status.UNAVAILABLE, Status.INCOMPLETE, Status.UNSUPPORTED, Status.INCORRECT_NUMERICAL,
    Status.INCORRECT_DTYPE, Status.INCORRECT_SHAPE, Status.MUTATED_INPUT, Status.TIMING_MISMATCH, Status.RUNTIME_ERROR,
    Status.TIMEOUT, Status.COMPILE_ERROR, Status.TAMPERED, Status.SANDBOX_VIOLATION,
)


class ExitCode(IntEnum):
    """Exit codes of ``python -m scoring`` and ``python -m submissions``."""

    OK = 0
    FAILED = 1            # ran, and at least one kernel failed
    USAGE = 2             # usage or configuration error
    INTERNAL = 3
    UNAVAILABLE = 4       # requested backend or device is not here
    NOTHING = 5           # nothing matched the selection
    INTERRUPTED = 130


class Mode(StrEnum):
    TEST = "test"
    BENCHMARK = "benchmark"
    LEADERBOARD = "leaderboard"


class Evidence(StrEnum):
    """How a time came about. The two never rank together."""

    MEASURED = "measured"
    MODELLED = "modelled"


@dataclass(frozen=True)
class Case:
    """One line of a problem's ``tests`` or ``benchmarks``: the keyword arguments of ``generate_input`` but the seed."""

    params: Mapping[str, int | str]
    group: str = "tests"                 # "tests" | "benchmarks"

    @property
    def name(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.params.items())


@dataclass(frozen=True)
class Stats:
    """Statistics of the samples of one case, in seconds per call.

    ``mean, std, err, best, worst`` as GPU MODE reports them (sample standard deviation, err = std / sqrt(runs));
    ``median`` with the bootstrap confidence interval [``ci_low``, ``ci_high``] at 95 % is what the project ranks by.
    """

    runs: int
    median: float
    ci_low: float
    ci_high: float
    mean: float
    std: float
    err: float
    best: float
    worst: float

    def __post_init__(self) -> None:
        values = [getattr(self, name) for name in ("median", "mean", "best", "worst", "ci_low", "ci_high")]
        if self.runs < 1 or not all(math.isfinite(v) and v > 0 for v in values):
            raise ValueError(f"a time must be finite and positive: {self}")


@dataclass(frozen=True)
class CaseResult:
    """The verdict on one case, and its time if it passed and was timed."""

    case: Case
    status: Status
    seed: int = 0                        # what generate_input got for the newest inputs; 0 if there were none
    message: str = ""                    # why it failed, or the largest error of a pass
    stats: Stats | None = None
    flops: float = 0.0                   # useful FLOP of one call
    bytes_moved: float = 0.0             # fewest bytes one call must move
    roofline_seconds: float | None = None  # max(flops/peak, bytes/bandwidth) of the target; None if peaks are unknown
    bound: str = ""                      # "flop" | "bytes" | ""
    peers: Mapping[str, Stats] = field(default_factory=dict)  # peer name -> its time in the same interleaved run
    environment: Mapping[str, Any] = field(default_factory=dict)  # clocks, power, cache state while timing
    seconds: float = 0.0                 # wall time spent on the case, by the judge's clock
    findings: Sequence[Mapping[str, Any]] = ()  # what an emulated device's checks found in the call that failed
    counters: Sequence[Mapping[str, Any]] = ()  # what an emulated device counted, one mapping per launch of one call

    def __post_init__(self) -> None:
        if self.stats is not None and self.status is not Status.PASSED:
            raise ValueError(f"{self.status}: a time belongs to a passing case and to no other")

    @property
    def tflops(self) -> float | None:
        return self.flops / self.stats.median / 1e12 if self.stats and self.flops else None

    @property
    def gbps(self) -> float | None:
        return self.bytes_moved / self.stats.median / 1e9 if self.stats and self.bytes_moved else None

    @property
    def roofline_fraction(self) -> float | None:
        return self.roofline_seconds / self.stats.median if self.stats and self.roofline_seconds else None


@dataclass(frozen=True)
class Record:
    """One (problem, kernel, target) scored once.

    ``score`` is in seconds, lower is better, over the benchmark cases as ``ranking_by`` says; None unless every case
    passed and was timed. ``usage``, ``system`` and ``isolation`` are plain JSON values.
    """

    id: str                              # 32 hex digits, made by the judge
    created: str                         # ISO 8601, UTC
    problem: str
    kernel: str                          # "<language>/<variant>[NAME=VALUE]" or "<file name>@<digest>" of a submission
    digest: str                          # content address of what ran
    backend: str
    target: str                          # arch
    gpu: str                             # label of the target
    device: str                          # the driver's name for the device, "" if none
    mode: Mode
    status: Status
    evidence: Evidence = Evidence.MEASURED
    message: str = ""
    score: float | None = None
    ranking_by: str = "geom"
    protocol: str = ""                   # name/version of the timing protocol, "" if nothing was timed
    seed: int = 0                        # base of the seeds of all cases: what `run --seed` takes
    seconds: float = 0.0                 # wall time of the whole job
    cases: Sequence[CaseResult] = ()
    usage: Sequence[Mapping[str, Any]] = ()   # one mapping per device function (backends.base.KernelUsage)
    compile: Mapping[str, Any] = field(default_factory=dict)  # command, version, seconds, cached, diagnostics[]
    system: Mapping[str, Any] = field(default_factory=dict)   # driver, torch, python, cpu, clocks, cache state …
    isolation: str = "process"           # strongest isolation that was in force
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.score is not None and self.status is not Status.PASSED:
            raise ValueError(f"{self.status}: a score belongs to a passing record and to no other")
        if self.unjudged and self.status in (Status.PASSED, Status.UNAVAILABLE):
            raise ValueError(f"{self.status}: not with {len(self.unjudged)} cases left to judge")

    @property
    def unjudged(self) -> Sequence[str]:
        """Names of the cases that were still to be judged when the run ended; none in a complete record."""
        return tuple(self.system.get("cases_unjudged") or ())

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; keys are the field names."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """The inverse of ``to_json``.

        Raises ``ValueError`` for another schema or a broken invariant, ``KeyError``/``TypeError`` for missing fields.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(f"record schema {data.get('schema')!r}, this program reads {SCHEMA}")
        fields = dict(data)
        fields["cases"] = tuple(_case_result(entry) for entry in data["cases"])
        fields["usage"] = tuple(data["usage"])
        for name, kind in (("mode", Mode), ("status", Status), ("evidence", Evidence)):
            fields[name] = kind(data[name])
        return cls(**fields)


def _case_result(data: Mapping[str, Any]) -> CaseResult:
    fields = dict(data)
    fields["case"] = Case(**data["case"])
    fields["status"] = Status(data["status"])
    fields["stats"] = Stats(**data["stats"]) if data["stats"] else None
    for name in ("findings", "counters"):
        fields[name] = tuple(data.get(name, ()))
    fields["peers"] = {name: Stats(**stats) for name, stats in data["peers"].items()}
    return CaseResult(**fields)


def worst(statuses: Sequence[Status]) -> Status:
    """The status a record takes from its cases; PASSED for none."""
    return max(statuses, key=SEVERITY.index, default=Status.PASSED)


def score(seconds: Sequence[float], ranking_by: str) -> float:
    """Combine per-case seconds: ``geom`` geometric mean, ``mean`` arithmetic mean, ``last`` the last one.

    Raises ``ValueError`` for no values, a value that is not positive, or an unknown rule.
    """
    if not seconds or not all(math.isfinite(s) and s > 0 for s in seconds):
        raise ValueError(f"cannot rank {list(seconds)}: every time must be finite and positive")
    match ranking_by:
        case "geom":
            return math.exp(math.fsum(math.log(s) for s in seconds) / len(seconds))
        case "mean":
            return math.fsum(seconds) / len(seconds)
        case "last":
            return seconds[-1]
    raise ValueError(f"unknown ranking rule {ranking_by!r}; there are geom, mean, last")


def dumps(record: Record) -> str:
    """One JSON line, keys in the order of the fields (a case keeps the order of its parameters), no NaN."""
    return json.dumps(record.to_json(), allow_nan=False)
