# SPDX-License-Identifier: MIT
"""What ``tune`` has measured, as a file: Kernel Tuner's cache format 1.0.0, with our records beside its fields.

Kernel Tuner names a combination by its values, which must be numbers; times are in milliseconds. Its readers and plots
take the file as it is. ``record`` and ``source`` are ours: they let a later ``tune`` go on where one has ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scoring.output.tuning import Tuning
from scoring.record import Record, Status

_NUMBER = re.compile(r"\d+")
_FAILED = {Status.COMPILE_ERROR: "CompilationFailedConfig"}


class CacheError(Exception):
    """The file is no such cache, is one of another kernel, or cannot hold what it should; a user can act on it."""


def document(tuning: Tuning, tunables: Mapping[str, Sequence[str]], source: str) -> dict[str, Any]:
    """The file's content. ``source`` is the digest of the kernel's source, which the results belong to.

    Raises ``CacheError`` for values that are no natural numbers.
    """
    first = tuning.variants[0]
    names = sorted(first.values)
    values = {name: list(tunables.get(name, (first.values[name],))) for name in names}
    if wrong := [f"{name}={value}" for name in names for value in values[name] if not _NUMBER.fullmatch(value)]:
        raise CacheError(f"{', '.join(wrong)}: Kernel Tuner's cache takes natural numbers alone; leave --cache out")
    return {
        "schema_version": "1.0.0", "device_name": first.record.device or first.record.gpu,
        "kernel_name": f"{first.record.problem}/{first.record.kernel.partition('[')[0]}", "problem_size": [],
        "tune_params_keys": names, "tune_params": {name: [int(value) for value in values[name]] for name in names},
        "objective": "time", "source": source,
        "cache": {key(variant.values): _entry(tuning, index) for index, variant in enumerate(tuning.variants)},
    }


def key(values: Mapping[str, str]) -> str:
    """``64,2``: the values in the order of the names."""
    return ",".join(values[name] for name in sorted(values))


def values_of(record: Record) -> dict[str, str]:
    """The values that a record's kernel was built with: ``cpu/tuned[A=1,B=2]``."""
    inside = record.kernel.partition("[")[2].removesuffix("]")
    pairs = (pair.partition("=") for pair in inside.split(",") if pair)
    return {name: value for name, _, value in pairs}


def _entry(tuning: Tuning, index: int) -> dict[str, Any]:
    variant, score = tuning.variants[index], tuning.score(index)
    record = variant.record
    failed = _FAILED.get(record.status, "RuntimeFailedConfig")
    return {
        **{name: int(value) for name, value in variant.values.items()},
        "time": failed if score is None else score * 1e3,
        "times": [result.stats.median * 1e3 for result in variant.timed.values() if result.stats is not None],
        "compile_time": float(record.compile.get("seconds") or 0.0) * 1e3, "verification_time": 0.0,
        "benchmark_time": record.seconds * 1e3, "strategy_time": 0.0, "framework_time": 0.0,
        "timestamp": record.created, "record": record.to_json(),
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")
    part.replace(path)


def read(path: Path, kernel: str, device: str, source: str) -> dict[str, Record]:
    """Judged records by ``key``; none where there is no file yet. Those of another source are not taken.

    ``kernel`` and ``device`` are as in ``document``. Raises ``CacheError`` for a file of another kernel or device.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
        theirs = content["kernel_name"], content["device_name"]
        entries = {name: entry["record"] for name, entry in content["cache"].items() if "record" in entry}
        found = {name: Record.from_json(record) for name, record in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CacheError(f"{path} is no cache of tune's: {error}") from error
    if theirs != (kernel, device):
        raise CacheError(f"{path} is of {' on '.join(theirs)}, not of {kernel} on {device}; name another file")
    judged = {name: record for name, record in found.items()
              if record.status not in (Status.UNAVAILABLE, Status.INCOMPLETE)}
    return judged if content.get("source") == source else {}
