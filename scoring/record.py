# SPDX-License-Identifier: MIT
"""What a run produces: statuses, statistics and records. Standard library only; every output reads these.

Units: seconds, bytes, FLOP. A ``Record`` is one (problem, kernel, target) scored once; it is plain data and survives a
round trip through JSON (``to_json``/``from_json``), ``schema`` naming its version.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

SCHEMA = 3          # 1 kept ``Facts`` in ``system``; 2 timed in one process
WIDE = 0.10         # of the time: an interval wider than this is marked
STAND_IN = "on CPU: correctness only"         # of a record in which cuda meant the CPU
RANKS_ON_GPUS = "a GPU for every rank: correctness only"      # of a record of a distributed task
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


class Outcome(StrEnum):
    """What a race shows of a rival beside the kernel."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference shown"
    NOT_RESOLVED = "not resolved"        # modelled times, closer together than the model can tell apart


class Evidence(StrEnum):
    """How a time came about. The two never rank together."""

    MEASURED = "measured"
    MODELLED = "modelled"


@dataclass(frozen=True)
class Case:
    """One line of a problem's cases: the keyword arguments of ``generate_input`` but the seed."""

    params: Mapping[str, int | str | list[int]]
    group: str = "tests"                 # "tests" | "benchmarks" | "small": benchmarks for slow devices

    @property
    def name(self) -> str:
        """``key=value,…``; the items of a list are joined by plus signs, which no pattern of ``--case`` reads."""
        return ",".join(f"{key}={'+'.join(map(str, value)) if isinstance(value, list) else value}"
                        for key, value in self.params.items())


@dataclass(frozen=True)
class Stats:
    """Statistics of the samples of one case, in seconds per call.

    ``mean, std, err, best, worst`` as GPU MODE reports them (sample standard deviation, err = std / sqrt(runs));
    ``median`` is what the project ranks by. Of several ``processes``, whose medians these are, it is their median, and
    [``ci_low``, ``ci_high``] is where that of a further judgement lies at 95 %. Of a single one (no ``processes``) it
    is the median of the samples with its bootstrap interval, which knows nothing of other processes.
    ``best`` and ``worst`` are minimum and maximum. Older records have no ``p10``, ``p90`` and ``samples``.
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
    p10: float | None = None
    p90: float | None = None
    samples: Sequence[float] = ()
    processes: Sequence[float] = ()

    @property
    def wide(self) -> bool:
        """Whether the interval is wider than a tenth of the time."""
        return self.ci_high - self.ci_low > WIDE * self.median

    def __post_init__(self) -> None:
        values = [getattr(self, name) for name in ("median", "mean", "best", "worst", "ci_low", "ci_high")]
        if self.runs < 1 or not all(math.isfinite(v) and v > 0 for v in values):
            raise ValueError(f"a time must be finite and positive: {self}")


@dataclass(frozen=True)
class Rival:
    """Another contestant in the rounds of a case: a build of ``--against``, or a peer.

    ``ratio`` is the median over rounds, then over processes, of its time divided by the kernel's in the same round, so
    above 1 where it is slower. [``ratio_low``, ``ratio_high``] is its interval at 95 %, by what differs between
    processes; of a single process, between its rounds.
    """

    name: str
    digest: str = ""                     # content address of what ran; "" of a peer
    peer: bool = False
    status: Status = Status.PASSED       # of its checks in this case; any other has no time
    message: str = ""                    # why it has no time
    stats: Stats | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    outcome: Outcome | None = None       # None where nothing can be said
    same_bits: bool | None = None        # whether its outputs equal the kernel's bit by bit; None: not compared

    def __post_init__(self) -> None:
        if self.status is not Status.PASSED and (self.stats is not None or self.outcome is not None):
            raise ValueError(f"{self.name} {self.status}: a rival that failed has no time and no outcome")


@dataclass(frozen=True)
class Race:
    """The rounds of a case that the kernel shared with others. A rival is never ranked under the kernel's name."""

    rivals: Sequence[Rival]
    stats: Stats | None = None           # the kernel's own time in these rounds, by the clock that times the rivals
    seed: int = 0                        # the order of every round is shuffled by it
    order: Sequence[Sequence[int]] = ()  # of every round: 0 is the kernel, n is rivals[n - 1] of those that have a time
    cold: bool | None = None             # inputs of more than 2.2 times the last-level cache; None: nothing is cached
    note: str = ""                       # what keeps the ratios from meaning what they seem to
    rounds: Sequence[int] = ()           # how many of the rounds each process ran, in their order


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
    findings: Sequence[Mapping[str, Any]] = ()  # of an emulated device's checks in the call that failed; of sanitizers
    counters: Sequence[Mapping[str, Any]] = ()  # what an emulated device counted, one mapping per launch of one call
    race: Race | None = None             # with what it shared its rounds
    calls: Stats | None = None           # of single calls, by the worker's clock, where they were asked for
    warm: Stats | None = None            # of calls that repeat one slot, by the same clock; never ranked
    wrong: Sequence[Mapping[str, Any]] = ()     # the first wrong elements: output, index, got, expected, bound

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
class Facts:
    """What decides how a record is read, beside its verdict and its cases."""

    cases_unjudged: tuple[str, ...] = ()     # names of the cases that were left when the run ended
    cases_skipped: tuple[str, ...] = ()      # names of the cases that are too large for this device
    cases_skipped_why: str = ""
    problem_broken: str = ""                 # what is wrong with the problem's own files
    repeat: tuple[str, ...] = ()             # arguments of ``python -m scoring`` that run it again
    predictable: bool = False                # the seed was given, so the code under test may have known its inputs
    resumed: int = 0                         # how often the run was ended early and gone on with
    emulated: bool = False                   # on an emulated device
    stand_in: str = ""                       # why nothing was timed: cuda meant the CPU, or the task is distributed
    checks: str = ""                         # the emulated device's checks, or compute-sanitizer's tools
    peaks: Mapping[str, float] = field(default_factory=dict)    # of the target: FLOP/s by type, and "bytes" per second
    peaks_source: str = ""
    llc_bytes: int = 0                       # last-level cache of the target
    isolation_reasons: tuple[str, ...] = ()  # why the sandbox is not stronger
    host: str = ""                           # the machine that it was brought from; "": judged here
    device_lock: str = ""                    # why the judge was not alone on the GPU
    flags: tuple[str, ...] = ()              # compiler flags that the kernel itself asks for
    step: str = ""                           # its place in a series: "4b tiles of 96 keys"
    expect: tuple[str, ...] = ()             # "CASEGLOB LOW-HIGHUNIT@GPU": somebody's expectation, no requirement

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        """Of the JSON of ``asdict``. Raises ``TypeError`` for unknown names."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        return cls(**values)


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
    facts: Facts = field(default_factory=Facts)
    system: Mapping[str, Any] = field(default_factory=dict)   # for people: driver, torch, python, platform …
    isolation: str = "process"           # strongest isolation that was in force
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.score is not None and self.status is not Status.PASSED:
            raise ValueError(f"{self.status}: a score belongs to a passing record and to no other")
        if self.unjudged and self.status in (Status.PASSED, Status.UNAVAILABLE):
            raise ValueError(f"{self.status}: not with {len(self.unjudged)} cases left to judge")

    @property
    def ranked(self) -> Sequence[CaseResult]:
        """The timed cases that make the score: the small ones on a device that has them, else all."""
        timed = [result for result in self.cases if result.stats is not None]
        return [result for result in timed if result.case.group == "small"] or timed

    @property
    def unjudged(self) -> Sequence[str]:
        """Names of the cases that were still to be judged when the run ended; none in a complete record."""
        return self.facts.cases_unjudged

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; keys are the field names."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """The inverse of ``to_json``; it reads older schemas, too.

        Raises ``ValueError`` for another schema or a broken invariant, ``KeyError``/``TypeError`` for missing fields.
        """
        if data.get("schema") not in range(1, SCHEMA + 1):
            raise ValueError(f"record schema {data.get('schema')!r}, this program reads 1 to {SCHEMA}")
        fields = {**data, "schema": SCHEMA}
        if data["schema"] == 1:
            names = {each.name for each in dataclasses.fields(Facts)}
            fields["facts"] = {name: value for name, value in data["system"].items() if name in names}
            fields["system"] = {name: value for name, value in data["system"].items() if name not in names}
        fields["facts"] = Facts.from_json(fields["facts"])
        fields["cases"] = tuple(_case_result(entry) for entry in data["cases"])
        fields["usage"] = tuple(data["usage"])
        for name, kind in (("mode", Mode), ("status", Status), ("evidence", Evidence)):
            fields[name] = kind(data[name])
        return cls(**fields)


def _case_result(data: Mapping[str, Any]) -> CaseResult:
    fields = dict(data)
    fields["case"] = Case(**data["case"])
    fields["status"] = Status(data["status"])
    for name in ("stats", "calls", "warm"):
        fields[name] = _stats(data.get(name))
    for name in ("findings", "counters", "wrong"):
        fields[name] = tuple(data.get(name, ()))
    fields["peers"] = {name: _stats(stats) for name, stats in data["peers"].items()}
    fields["race"] = _race(data["race"]) if data.get("race") else None
    return CaseResult(**fields)


def _race(data: Mapping[str, Any]) -> Race:
    rivals = []
    for entry in data["rivals"]:
        stats, outcome = entry["stats"], entry["outcome"]
        rivals.append(Rival(**{
            **entry, "status": Status(entry["status"]), "stats": _stats(stats),
            "outcome": Outcome(outcome) if outcome else None}))
    order = tuple(tuple(turn) for turn in data["order"])
    return Race(**{**data, "rivals": tuple(rivals), "stats": _stats(data["stats"]), "order": order,
                   "rounds": tuple(data.get("rounds", ()))})


def _stats(data: Mapping[str, Any] | None) -> Stats | None:
    if not data:
        return None
    return Stats(**{**data, **{name: tuple(data.get(name, ())) for name in ("processes", "samples")}})


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
