# SPDX-License-Identifier: MIT
"""Settings: flag > environment > ``config.yaml`` > default, each remembering where it came from.

The file is found by ``--config``, then ``WARPWAVE_CONFIG``, then ``./config.yaml``, then the one in the user's
configuration directory, then the checkout's. Every error of a file is reported at once, each with its path in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

import backends

ROOT = Path(__file__).resolve().parent.parent

# Environment variables that set something here, and what they set. (Those of toolchains, devices, torch and KernelBot
# are read where they are used; ``doctor`` shows them all.)
ENVIRONMENT = {
    "WARPWAVE_BACKEND": "backends",
    "WARPWAVE_CACHE_DIR": "paths.cache",
    "WARPWAVE_DB": "paths.database",
}


# What PyYAML's constructors let through besides YAMLError: `!!int ''`, dates out of range, very deep nesting.
_NOT_YAML = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class ConfigError(Exception):
    """The settings are wrong; one line per error, each with where it stands."""


def _backend(name: str) -> str:
    if name not in backends.names():
        raise ValueError(f"no such backend; there are: {', '.join(backends.names())}")
    return name


def _file_name(name: str) -> str:
    try:
        if name and b"\0" not in os.fsencode(name):
            return name
    except UnicodeEncodeError:
        pass
    raise ValueError("no file can be called so")


BackendName = Annotated[str, AfterValidator(_backend)]
FileName = Annotated[str, AfterValidator(_file_name)]
Seconds = Annotated[float, Field(gt=0, le=1e7)]      # no socket waits longer than a few years


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Timing(_Strict):
    """How to measure and how much; see ``scoring.timing``. ``auto``: graphs on a GPU, the host's clock without one."""

    protocol: Literal["auto", "graph_cold/1", "event_cold/1"] = "auto"
    min_rounds: int = Field(default=8, ge=1)
    max_rounds: int = Field(default=24, ge=1)
    precision: float = Field(default=0.01, gt=0)
    seconds: Seconds = 2.0


class Limits(_Strict):
    """Deadlines in seconds; ``case_gflop``: the largest case to run per backend, no entry for no limit."""

    load_seconds: Seconds = 300.0
    call_seconds: Seconds = 90.0
    job_seconds: Seconds = 3600.0
    case_gflop: dict[BackendName, Annotated[float, Field(ge=0)]] = {"cpu": 1.0}


class Paths(_Strict):
    """Folders and files; relative ones are relative to the file that names them."""

    problems: FileName = "problems"
    kernels: FileName = "kernels"
    peers: FileName = "benchmarks/peers"
    cache: FileName | None = None
    database: FileName | None = None
    report: FileName = "report.html"


class Competition(_Strict):
    """A leaderboard somebody may submit to; dates are ISO, in UTC."""

    leaderboard: str
    problem: str
    gpus: list[str]
    deadline: str | None = None


class Settings(_Strict):
    """Everything a run can be told."""

    problems: list[str] = ["*"]
    kernels: list[str] = ["*"]
    backends: list[str] = ["cpu", "cuda", "rocm"]
    gpus: dict[BackendName, list[str]] = {"cpu": ["CPU"], "cuda": ["H100", "L4"], "rocm": ["MI300"]}
    mode: Literal["test", "benchmark", "leaderboard"] = "benchmark"
    seed: int | None = None
    peers: bool = False
    timing: Timing = Timing()
    limits: Limits = Limits()
    paths: Paths = Paths()
    competitions: list[Competition] = []


@dataclass(frozen=True)
class Config:
    """Validated settings, the file they came from, and the origin of every leaf (``timing.seconds`` → ``default``)."""

    settings: Settings
    file: Path | None
    origins: Mapping[str, str]

    def path(self, name: str) -> Path:
        """A folder or file, resolved: against the file that sets it, a default against the checkout, else here."""
        value = _expand(Path(getattr(self.settings.paths, name)))
        if value.is_absolute():
            return value
        origin = self.origins[f"paths.{name}"]
        if origin == "default":
            return ROOT / value
        return (self.file.parent if self.file and origin == str(self.file) else Path.cwd()) / value

    @property
    def database(self) -> Path:
        """Where records go: the setting, else the user's state directory."""
        if self.settings.paths.database:
            return self.path("database")
        import platformdirs

        return Path(platformdirs.user_state_dir("warpwave")) / "leaderboard.db"

    @property
    def cache(self) -> Path:
        """Where binaries go: the setting, else the user's cache directory."""
        if self.settings.paths.cache:
            return self.path("cache")
        import platformdirs

        return Path(platformdirs.user_cache_dir("warpwave"))


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
    environment = os.environ if environment is None else environment
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
    for name, value in (flags or {}).items():
        if value is not None:
            _put(values, name, value)
            origins[name] = "flag"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise ConfigError("\n".join(_explain(entry, path, origins) for entry in errors)) from None
    known = {name: _origin(name, origins) for name in _leaves(settings.model_dump())}
    return Config(settings, path, known)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    try:
        values = yaml.safe_load(text)
    except (*_NOT_YAML, yaml.YAMLError) as error:
        summary = " ".join(str(error).split())
        raise ConfigError(f"{path}: not YAML: {summary or type(error).__name__}") from None
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


def _origin(name: str, origins: Mapping[str, str]) -> str:
    return origins.get(name, "default")


def _explain(entry: Any, path: Path | None, origins: Mapping[str, str]) -> str:
    dotted = ".".join(str(part) for part in entry["loc"])
    top = [name for name in origins if name == dotted or dotted.startswith(name + ".")]
    source = origins[top[0]] if top else str(path or "settings")
    message = str(entry["msg"]).removeprefix("Value error, ")
    if entry["type"] == "extra_forbidden":
        fields = _SECTIONS.get(str(entry["loc"][0]) if len(entry["loc"]) > 1 else "", Settings).model_fields
        message = f"unknown setting; there are: {', '.join(fields)}"
    return f"{source}: {dotted}: {message}"


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "timing": Timing, "limits": Limits, "paths": Paths, "competitions": Competition,
}
