# SPDX-License-Identifier: MIT
"""Settings: flag > environment > ``config.yaml`` > default, each remembering where it came from.

The file is found by ``--config``, then ``WARPWAVE_CONFIG``, then ``./config.yaml``, then the one in the user's
configuration directory, then the checkout's. Every error of a file is reported at once, each with its path in it.
``config.schema`` says what each setting may be; it is imported only when settings are validated (``load_config``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends._home import HOME
from scoring.config import frozen
from scoring.config.paths import PATHS, USERS, Locations, expand_home

if TYPE_CHECKING:
    from scoring.config.schema import Settings

# Environment variables that set something here, and what they set. (Those of toolchains, devices, torch and KernelBot
# are read where they are used; ``doctor`` shows them all.)
ENVIRONMENT = {
    "WARPWAVE_BACKEND": "backends",
    "WARPWAVE_CACHE_DIR": "paths.cache",
    "WARPWAVE_DB": "paths.database",
    "WARPWAVE_EMULATE": "emulate",
}

_SECTIONS = ("timing", "limits", "sandbox", "paths", "serve")

# The settings there are, by section; a test keeps them equal to ``config.schema``. So verbs that need only paths can
# refuse an unknown name without the seconds that pydantic takes.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "": ("problems", "kernels", "backends", "first_look", "gpus", "mode", "seed", "peers", "emulate", "checks",
         "schedule", "timing", "limits", "sandbox", "paths", "competitions", "serve"),
    "timing": ("protocol", "min_rounds", "max_rounds", "precision", "seconds", "processes", "gpu_processes", "calls",
               "warm"),
    "limits": ("load_seconds", "first_call_seconds", "call_seconds", "emulated_call_seconds", "job_seconds",
               "case_gflop", "reference_seconds"),
    "sandbox": ("isolation", "memory_gib", "scratch_gib", "processes"),
    "paths": ("problems", "kernels", "peers", "cache", "database", "report"),
    "competitions": ("leaderboard", "problem", "gpus", "deadline"),
    "serve": ("problems", "registration", "submissions_per_hour", "queued_per_person", "requests_per_second",
              "accounts_per_hour", "lease_seconds"),
}

# What the user typed to set something: what its errors are called by.
_FLAGS = {
    "backends": "--backend", "problems": "--problem", "kernels": "--kernel", "mode": "--mode", "seed": "--seed",
    "peers": "--peers", "timing.seconds": "--seconds", "timing.calls": "--calls", "timing.warm": "--warm",
    "emulate": "--emulate", "checks": "--checks", "schedule": "--schedule", "sandbox.isolation": "--isolation",
}


class ConfigError(Exception):
    """The settings are wrong; one line per error, each with where it stands."""


@dataclass(frozen=True)
class Config(Locations):
    """Validated settings, the file they came from, and the origin of every leaf (``timing.seconds`` → ``default``)."""

    settings: Settings


def find_config(flag: str | None, environment: Mapping[str, str]) -> Path | None:
    """The configuration file to read, None if there is none.

    Raises ``ConfigError`` for one that was asked for and is not there.
    """
    for origin, name in (("--config", flag), ("WARPWAVE_CONFIG", environment.get("WARPWAVE_CONFIG"))):
        if name:
            path = expand_home(Path(name))
            if not path.is_file():
                raise ConfigError(f"{origin}: no file {path}")
            return path.resolve()
    user = Path(environment.get("XDG_CONFIG_HOME") or expand_home(Path("~/.config"))) / "warpwave"
    for folder in (Path.cwd(), user, HOME):
        if (folder / "config.yaml").is_file():
            return (folder / "config.yaml").resolve()
    return None


def load_config(
    flags: Mapping[str, Any] | None = None, file: str | None = None, environment: Mapping[str, str] | None = None
) -> Config:
    """Settings from all four sources. ``flags`` maps dotted names to values; None values count as not given.

    A bundle's settings (``frozen``) are complete: they come from one file. Raises ``ConfigError`` listing every error
    with its source and path.
    """
    if file is not None and file.endswith(frozen.SUFFIX):
        try:
            return Config(*frozen.thaw(Path(file).resolve()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}") from None
    from pydantic import ValidationError

    from scoring.config.schema import Settings

    path, values, origins = _gather(flags or {}, file, os.environ if environment is None else environment)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise ConfigError("\n".join(_explain(entry, path, origins) for entry in errors)) from None
    known = {name: origins.get(name, "default") for name in _leaves(settings.model_dump())}
    paths = {name: value for name, value in settings.paths.model_dump().items() if value is not None}
    return Config(paths, path, known, settings)


def locate_files(file: str | None = None, environment: Mapping[str, str] | None = None) -> Locations:
    """Where things lie, for a verb that needs no other setting and has to answer at once: no other value is validated.

    Raises ``ConfigError`` as ``load_config`` does for wrong paths and for names that are no settings.
    """
    environment = os.environ if environment is None else environment
    path, values, origins = _gather({}, file, environment)
    given = values.get("paths", {})
    plain = isinstance(given, dict) and all(_plain(name, value) for name, value in given.items())
    if not plain or _unknown(values):
        return load_config(file=file, environment=environment)         # which says what is wrong
    return Locations({**PATHS, **{name: value for name, value in given.items() if value is not None}}, path, origins)


def _unknown(values: Mapping[str, Any]) -> bool:
    """Whether a name in ``values`` is no setting, or a section is no section."""
    for name, value in values.items():
        parts = value if name == "competitions" and isinstance(value, list) else [value]
        if name not in KNOWN[""]:
            return True
        if name in KNOWN and not all(isinstance(part, dict) and part.keys() <= set(KNOWN[name]) for part in parts):
            return True
    return False


def _plain(name: str, value: object) -> bool:
    """Whether a path is so ordinary that nothing needs to be validated."""
    if value is None:
        return name in USERS
    if name == "problems" and isinstance(value, list) and value:
        return all(_plain(name, each) for each in value)
    if not (name in (*PATHS, *USERS) and isinstance(value, str) and value.isprintable() and value != ""):
        return False
    return name != "kernels" or Path(value).name == name


def _gather(
    flags: Mapping[str, Any], file: str | None, environment: Mapping[str, str]
) -> tuple[Path | None, dict[str, Any], dict[str, str]]:
    """The file, the values of all sources laid over each other, and the origin of each value that is set."""
    path = find_config(file, environment)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if path is not None:
        values = _read(path)
        origins.update(dict.fromkeys(_leaves(values), str(path)))
    for variable, name in ENVIRONMENT.items():
        if environment.get(variable):
            raw = environment[variable]
            _put(values, name, [part.strip() for part in raw.split(",")] if name == "backends" else raw)
            origins[name] = f"${variable}"
    for name, value in flags.items():
        if value is not None:
            _put(values, name, value)
            origins[name] = "flag"
    return path, values, origins


def _read(path: Path) -> dict[str, Any]:
    from scoring.popcorn import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    try:
        values = yaml.parse(text)
    except yaml.YamlError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: the top level must be a mapping of settings")
    if words := [repr(key) for key in values if not isinstance(key, str)]:
        raise ConfigError(f"{path}: no setting is called {', '.join(words)}; unquoted yes, no, on and off are booleans")
    return values


def _put(values: dict[str, Any], dotted: str, value: Any) -> None:
    *folders, leaf = dotted.split(".")
    for folder in folders:
        inner = values.get(folder, {})
        if not isinstance(inner, dict):
            return                   # an error of the file, reported when it is validated
        values[folder] = dict(inner)
        values = values[folder]
    values[leaf] = value


def _leaves(values: Mapping[str, Any]) -> list[str]:
    """Dotted names of the settings in ``values``: a section's settings are leaves, whatever they hold."""
    names = []
    for key, value in values.items():
        section = key in _SECTIONS and isinstance(value, dict)
        names += [f"{key}.{inner}" for inner in value] if section else [key]
    return names


def _explain(entry: Any, path: Path | None, origins: Mapping[str, str]) -> str:
    from scoring.config.schema import SECTIONS, Settings

    dotted = ".".join(str(part) for part in entry["loc"])
    top = next((name for name in origins if name == dotted or dotted.startswith(name + ".")), "")
    message = str(entry["msg"]).removeprefix("Value error, ")
    if entry["type"] == "extra_forbidden":
        section = SECTIONS.get(str(entry["loc"][0]) if len(entry["loc"]) > 1 else "", Settings)
        message = f"unknown setting; there are: {', '.join(section.model_fields)}"
    if origins.get(top) == "flag" and top in _FLAGS:
        return f"{_FLAGS[top]}: {message}"
    return f"{origins[top] if top else path or 'settings'}: {dotted}: {message}"
