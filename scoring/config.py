# SPDX-License-Identifier: MIT
"""Settings: flag > environment > ``config.yaml`` > default, each remembering where it came from.

The file is found by ``--config``, then ``WARPWAVE_CONFIG``, then ``./config.yaml``, then the one in the user's
configuration directory, then the checkout's. Every error of a file is reported at once, each with its path in it.
What a setting may be says ``scoring.settings``, imported when settings are validated (``load``) and not before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scoring.settings import Settings

ROOT = Path(__file__).resolve().parent.parent

# Environment variables that set something here, and what they set. (Those of toolchains, devices, torch and KernelBot
# are read where they are used; ``doctor`` shows them all.)
ENVIRONMENT = {
    "WARPWAVE_BACKEND": "backends",
    "WARPWAVE_CACHE_DIR": "paths.cache",
    "WARPWAVE_DB": "paths.database",
    "WARPWAVE_EMULATE": "emulate",
}

# Where things lie by default, below the checkout. (The cache and the database lie in the user's own folders.)
PATHS = {"problems": "problems", "kernels": "kernels", "peers": "benchmarks/peers", "report": "report.html"}
_USERS = ("cache", "database")
_DATABASE = "leaderboard.db"
_SECTIONS = ("timing", "limits", "sandbox", "paths")

# What the user typed to set something: what its errors are called by.
_FLAGS = {
    "backends": "--backend", "problems": "--problem", "kernels": "--kernel", "mode": "--mode", "seed": "--seed",
    "peers": "--peers", "timing.seconds": "--seconds", "emulate": "--emulate", "checks": "--checks",
    "sandbox.isolation": "--isolation",
}


class ConfigError(Exception):
    """The settings are wrong; one line per error, each with where it stands."""


@dataclass(frozen=True)
class Locations:
    """Folders and files, each with where it was set. ``paths`` holds those that are set, defaults included."""

    paths: Mapping[str, str]
    file: Path | None
    origins: Mapping[str, str]

    def path(self, name: str) -> Path:
        """A folder or file, resolved: against the file that sets it, a default against the checkout, else here."""
        value = _expand(Path(self.paths[name]))
        if value.is_absolute():
            return value
        origin = self.origins.get(f"paths.{name}", "default")
        if origin == "default":
            return ROOT / value
        return (self.file.parent if self.file and origin == str(self.file) else Path.cwd()) / value

    @property
    def database(self) -> Path:
        """Where records go: the setting, else the user's state directory."""
        if "database" in self.paths:
            return self.path("database")
        from backends._cache import user_folder

        return user_folder("state") / _DATABASE

    @property
    def kept(self) -> Path:
        """Where records are read from: ``database``, but the user's own also where its folder cannot be written.

        Unless records have been kept in the folder that stands in for it since.
        """
        from backends._cache import usual_folder

        database = self.database
        if "database" not in self.paths and not database.is_file():
            with contextlib.suppress(RuntimeError, OSError):
                if (usual := usual_folder("state") / _DATABASE).is_file():
                    return usual
        return database

    @property
    def cache(self) -> Path:
        """Where binaries go: the setting, else the user's cache directory."""
        if "cache" in self.paths:
            return self.path("cache")
        from backends._cache import user_folder

        return user_folder("cache")


@dataclass(frozen=True)
class Config(Locations):
    """Validated settings, the file they came from, and the origin of every leaf (``timing.seconds`` → ``default``)."""

    settings: Settings


def find(flag: str | None, environment: Mapping[str, str]) -> Path | None:
    """The configuration file to read, None if there is none.

    Raises ``ConfigError`` for one that was asked for and is not there.
    """
    for origin, name in (("--config", flag), ("WARPWAVE_CONFIG", environment.get("WARPWAVE_CONFIG"))):
        if name:
            path = _expand(Path(name))
            if not path.is_file():
                raise ConfigError(f"{origin}: no file {path}")
            return path.resolve()
    user = Path(environment.get("XDG_CONFIG_HOME") or _expand(Path("~/.config"))) / "warpwave"
    for folder in (Path.cwd(), user, ROOT):
        if (folder / "config.yaml").is_file():
            return (folder / "config.yaml").resolve()
    return None


def _expand(path: Path) -> Path:
    """``~`` expanded where there is a home (a container's user may have none)."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def load(
    flags: Mapping[str, Any] | None = None, file: str | None = None, environment: Mapping[str, str] | None = None
) -> Config:
    """Settings from all four sources. ``flags`` maps dotted names to values; None values count as not given.

    Raises ``ConfigError`` listing every error with its source and path.
    """
    from pydantic import ValidationError

    from scoring.settings import Settings

    path, values, origins = _gather(flags or {}, file, os.environ if environment is None else environment)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise ConfigError("\n".join(_explain(entry, path, origins) for entry in errors)) from None
    known = {name: origins.get(name, "default") for name in _leaves(settings.model_dump())}
    paths = {name: value for name, value in settings.paths.model_dump().items() if value is not None}
    return Config(paths, path, known, settings)


def locate(file: str | None = None, environment: Mapping[str, str] | None = None) -> Locations:
    """Where things lie, for a verb that needs no other setting and has to answer at once: nothing else is validated.

    Raises ``ConfigError`` as ``load`` does if the paths are wrong.
    """
    environment = os.environ if environment is None else environment
    path, values, origins = _gather({}, file, environment)
    given = values.get("paths", {})
    if not isinstance(given, dict) or not all(_plain(name, value) for name, value in given.items()):
        return load(file=file, environment=environment)         # which says what is wrong
    return Locations({**PATHS, **{name: value for name, value in given.items() if value is not None}}, path, origins)


def _plain(name: str, value: object) -> bool:
    """Whether a path is so ordinary that nothing needs to be validated."""
    if value is None:
        return name in _USERS
    if not (name in (*PATHS, *_USERS) and isinstance(value, str) and value.isprintable() and value != ""):
        return False
    return name != "kernels" or Path(value).name == name


def _gather(
    flags: Mapping[str, Any], file: str | None, environment: Mapping[str, str]
) -> tuple[Path | None, dict[str, Any], dict[str, str]]:
    """The file, the values of all sources laid over each other, and the origin of each value that is set."""
    path = find(file, environment)
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
    from scoring import yamltext

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    try:
        values = yamltext.parse(text)
    except yamltext.YamlError as error:
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
    from scoring.settings import SECTIONS, Settings

    dotted = ".".join(str(part) for part in entry["loc"])
    top = next((name for name in origins if name == dotted or dotted.startswith(name + ".")), "")
    message = str(entry["msg"]).removeprefix("Value error, ")
    if entry["type"] == "extra_forbidden":
        section = SECTIONS.get(str(entry["loc"][0]) if len(entry["loc"]) > 1 else "", Settings)
        message = f"unknown setting; there are: {', '.join(section.model_fields)}"
    if origins.get(top) == "flag" and top in _FLAGS:
        return f"{_FLAGS[top]}: {message}"
    return f"{origins[top] if top else path or 'settings'}: {dotted}: {message}"
