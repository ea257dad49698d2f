# SPDX-License-Identifier: MIT
"""Settings that one machine has validated, for another that has no pydantic: written and read as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from scoring.config.paths import Locations
    from scoring.config.schema import Settings

SCHEMA = 1
SUFFIX = ".frozen.json"      # of such a file
_FILE = "file"       # as an origin: the file that the settings were read from
SECTIONS = ("timing", "limits", "sandbox", "paths")


class Section(SimpleNamespace):
    """Settings as attributes; iterating gives names and values, as of a section of ``schema``."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(vars(self).items())


def freeze(config: Locations, settings: Settings, paths: Mapping[str, str]) -> str:
    """All settings as JSON, with ``paths`` in place of this machine's."""
    values = settings.model_dump(mode="json")
    values["paths"] = {**dict.fromkeys(values["paths"]), **paths}
    origins = {name: _FILE if origin == str(config.file) else origin for name, origin in config.origins.items()}
    origins |= {f"paths.{name}": _FILE for name in paths}
    return json.dumps({"schema": SCHEMA, "settings": values, "origins": origins}, indent=1) + "\n"


def thaw(path: Path) -> tuple[dict[str, str], Path, dict[str, str], Settings]:
    """(paths, file, origins, settings) of a file that ``freeze`` made. Raises ``ValueError`` for any other file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "settings" not in document:
        raise ValueError("not the settings of a bundle")
    values = document["settings"]
    for name in SECTIONS:
        values[name] = Section(**values[name])
    values["competitions"] = [Section(**entry) for entry in values["competitions"]]
    paths = {name: value for name, value in values["paths"] if value is not None}
    origins = {name: str(path) if origin == _FILE else origin for name, origin in document["origins"].items()}
    return paths, path, origins, cast("Settings", Section(**values))
