# SPDX-License-Identifier: MIT
"""torch's profiler: its trace (Chrome's trace event format) as launches. It needs no permission and has no counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backends.errors import BackendError


def parse(trace: Path) -> list[dict[str, Any]]:
    """The kernels in the trace in the order of their start, as ``ncu.parse`` has them; counters are None.

    Raises ``BackendError`` for a file that is no trace.
    """
    try:
        events = json.loads(trace.read_bytes())["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackendError(f"{trace} is no trace of torch's profiler: {error}") from error
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])
    return [_launch(event) for event in kernels]


def _launch(event: dict[str, Any]) -> dict[str, Any]:
    facts = event.get("args", {})
    occupancy = facts.get("est. achieved occupancy %")
    return {
        "name": event["name"], "grid": _size(facts.get("grid")), "block": _size(facts.get("block")),
        "seconds": float(event["dur"]) * 1e-6, "tensor_active": None, "dram": None, "l2": None, "l2_hit": None,
        "occupancy": occupancy / 100 if occupancy is not None else None, "bank_conflicts": None,
        "conflict_fraction": None, "stalls": [],
    }


def _size(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else ""
