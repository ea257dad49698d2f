# SPDX-License-Identifier: MIT
"""``schema``: the JSON Schema of a record, made from the dataclasses that records are written from."""

from __future__ import annotations

import argparse
import json
from typing import Any

from scoring.record import SCHEMA, ExitCode, Record


def run(options: argparse.Namespace) -> int:
    print(json.dumps(record_schema(), indent=None if options.json else 2))
    return ExitCode.OK


def record_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what ``--json`` and ``--records`` write: every key is there, and no other."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Record).json_schema(mode="serialization")
    for entry in (schema, *schema.get("$defs", {}).values()):
        if "properties" in entry:
            entry["additionalProperties"] = False
            entry["required"] = list(entry["properties"])
    schema["properties"]["schema"]["const"] = SCHEMA
    return {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "warpwave record",
            "description": "One kernel on one target, judged once. Units: seconds, bytes, FLOP."}
