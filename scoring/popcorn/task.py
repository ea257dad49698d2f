# SPDX-License-Identifier: MIT
"""GPU MODE's ``task.yml`` as plain data, every error listed with its path.

Imports the standard library only; PyYAML is loaded when a file is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from scoring.popcorn.cases import CaseValue, format_case, parse_case

RANKINGS = ("last", "mean", "geom")
SUBMISSION = "@SUBMISSION@"                  # as a file's source: the user's file goes here
TEMPLATES = ("CUDA", "Python", "Triton", "HIP", "CuteDSL")


class TaskError(ValueError):
    """A task.yml that cannot be used; ``errors`` lists all that is wrong, each as ``file: key path: message``."""

    def __init__(self, errors: Sequence[str]):
        super().__init__("\n".join(errors))
        self.errors = tuple(errors)


class TaskFile(NamedTuple):
    """A file to stage: ``source`` is relative to task.yml, or ``@SUBMISSION@``."""

    name: str
    source: str


@dataclass(frozen=True)
class Task:
    """A problem as its task.yml states it. Timeouts are seconds; cases are what an evaluator's reader makes of them."""

    path: Path
    files: tuple[TaskFile, ...]
    lang: str                                          # "py" | "cu"
    description: str
    tests: tuple[Mapping[str, CaseValue], ...]
    benchmarks: tuple[Mapping[str, CaseValue], ...]
    main: str = "eval.py"                              # config.main of a Python task
    templates: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    test_timeout: float = 180.0
    benchmark_timeout: float = 180.0
    ranked_timeout: float = 180.0
    ranking_by: str = "last"
    seed: int | None = None
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()                     # legal, but not what it looks like

    def timeout(self, mode: str) -> float:
        """Seconds an evaluator may take in ``mode``."""
        return {"test": self.test_timeout, "leaderboard": self.ranked_timeout}.get(mode, self.benchmark_timeout)

    def cases(self, mode: str) -> tuple[Mapping[str, CaseValue], ...]:
        """The cases an evaluator is given in ``mode``."""
        return self.tests if mode == "test" else self.benchmarks


def load_task(path: Path) -> Task:
    """Read a task.yml, or the one in the folder ``path``.

    Raises ``TaskError``.
    """
    path = path / "task.yml" if path.is_dir() else path
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError([f"{path}: cannot be read: {error}"]) from error
    return parse_task(text, path)


def parse_task(text: str, path: Path) -> Task:
    """The task that the YAML ``text`` describes; ``path`` is for messages and for what ``files`` are relative to.

    Raises ``TaskError``.
    """
    from scoring.popcorn import yaml

    try:
        data = yaml.parse(text)
    except yaml.YamlError as error:
        raise TaskError([f"{path}: not YAML: {error}"]) from error
    if not isinstance(data, dict):
        raise TaskError([f"{path}: a mapping of keys is expected, not {type(data).__name__}"])
    reader = _TaskReader(path, data)
    task = reader.read()
    if reader.errors:
        raise TaskError(reader.errors)
    return task


def load_small(path: Path, devices: Sequence[str]) -> dict[str, tuple[Mapping[str, CaseValue], ...]]:
    """The cases of a small.yml, by the device that is too slow for the task's; empty if there is no such file.

    It is a file of its own because GPU MODE's servers refuse a key of task.yml that they do not know.
    Raises ``TaskError``, also for a device that is none of ``devices``.
    """
    from scoring.popcorn import yaml

    try:
        data = yaml.parse(path.read_bytes().decode())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YamlError) as error:
        raise TaskError([f"{path}: cannot be read: {error}"]) from error
    if not isinstance(data, dict):
        raise TaskError([f"{path}: a mapping of devices to cases is expected, not {type(data).__name__}"])
    reader = _TaskReader(path, data)
    for key in data:
        if key not in devices:
            reader.error(_key(key), f"unknown device; there are {', '.join(devices)}")
    found = {key: reader.case_list(key) for key in data if key in devices}
    if reader.errors:
        raise TaskError(reader.errors)
    return found


class _TaskReader:
    """Collects every error of one task.yml instead of stopping at the first."""

    def __init__(self, path: Path, data: dict[Any, Any]):
        self.path = path
        self.data = data
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def read(self) -> Task:
        known = {name for name in Task.__dataclass_fields__ if name not in ("path", "main", "warnings")} | {"config"}
        self.warnings += [f"{self.path}: {key}: unknown key, ignored"
                          for key in map(_key, self.data) if key not in known]
        lang = self.choice("lang", ("py", "cu"), "py")
        task = Task(
            self.path, self.files(), lang, self.text("description"), self.case_list("tests"),
            self.case_list("benchmarks"), self.main(lang), self.templates(), self.texts("libraries"),
            self.seconds("test_timeout"), self.seconds("benchmark_timeout"), self.seconds("ranked_timeout"),
            self.choice("ranking_by", RANKINGS, "last"), self.seed(), self.flag("multi_gpu"), self.texts("gpus"))
        for key, cases in (("tests", task.tests), ("benchmarks", task.benchmarks)):
            for index, case in enumerate(cases):
                if task.multi_gpu and "world_size" not in case:
                    self.error(f"{key}[{index}].world_size", "is required when multi_gpu is set")
        if task.ranking_by == "last" and len(task.benchmarks) > 1:
            self.warnings.append(f"{self.path}: ranking_by: `last` ranks the last of {len(task.benchmarks)} benchmarks")
        return replace(task, warnings=tuple(self.warnings))

    def error(self, where: str, message: str) -> None:
        self.errors.append(f"{self.path}: {where}: {message}")

    def get(self, key: str, kind: type, default: Any) -> Any:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.error(key, f"a {kind.__name__} is expected, not {_short(value)}")
            return default
        return value

    def text(self, key: str) -> str:
        value: str = self.get(key, str, "")
        if not value.strip() and not any(f": {key}: " in error for error in self.errors):
            self.error(key, "is required")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.get(key, list, [])
        for index, value in enumerate(values):
            if not isinstance(value, str):
                self.error(f"{key}[{index}]", f"a str is expected, not {_short(value)}")
        return tuple(value for value in values if isinstance(value, str))

    def choice(self, key: str, options: Sequence[str], default: str) -> str:
        value: str = self.get(key, str, default)
        if value not in options:
            self.error(key, f"is one of {', '.join(options)}, not {_short(value)}")
        return value

    def seconds(self, key: str) -> float:
        value = self.data.get(key, 180)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 86400:
            self.error(key, f"seconds above 0 and below a day are expected, not {_short(value)}")
            return 180.0
        return float(value)

    def seed(self) -> int | None:
        value: int | None = self.get("seed", int, None)
        return value

    def flag(self, key: str) -> bool:
        return bool(self.get(key, bool, False))

    def main(self, lang: str) -> str:
        config = self.get("config", dict, {})
        main = config.get("main", "eval.py")
        if lang == "py" and (not isinstance(main, str) or not _plain_name(main)):
            self.error("config.main", f"a file name is expected, not {_short(main)}")
        return main if isinstance(main, str) else ""

    def templates(self) -> dict[str, str]:
        found = self.get("templates", dict, {})
        for key, value in found.items():
            if key not in TEMPLATES:
                self.error(f"templates.{_key(key)}", f"unknown language; there are {', '.join(TEMPLATES)}")
            elif not isinstance(value, str):
                self.error(f"templates.{key}", f"a str is expected, not {_short(value)}")
        return {key: value for key, value in found.items() if key in TEMPLATES and isinstance(value, str)}

    def files(self) -> tuple[TaskFile, ...]:
        found: dict[str, TaskFile] = {}
        entries = self.get("files", list, [])
        for index, entry in enumerate(entries):
            where = f"files[{index}]"
            if not isinstance(entry, dict):
                self.error(where, f"a mapping with name and source is expected, not {_short(entry)}")
                continue
            name, source = entry.get("name"), entry.get("source")
            if not isinstance(name, str) or not _plain_name(name):
                self.error(f"{where}.name", f"a file name without a folder is expected, not {_short(name)}")
            elif name in found:
                self.error(f"{where}.name", f"{name} is listed twice")
            elif not isinstance(source, str) or not source or "\0" in source:
                self.error(f"{where}.source", f"a path or {SUBMISSION} is expected, not {_short(source)}")
            else:
                found[name] = TaskFile(name, source)
        if isinstance(entries, list) and SUBMISSION not in {file.source for file in found.values()}:
            self.error("files", f"no entry has the source {SUBMISSION}")
        return tuple(found.values())

    def case_list(self, key: str) -> tuple[Mapping[str, CaseValue], ...]:
        cases = []
        for index, entry in enumerate(self.get(key, list, [])):
            where = f"{key}[{index}]"
            if not isinstance(entry, dict) or not entry:
                self.error(where, f"a mapping of case keys is expected, not {_short(entry)}")
            else:
                cases.append(dict(self.case(where, entry)))
        if not cases and not any(f": {key}" in error for error in self.errors):
            self.error(key, "at least one case is required")
        return tuple(cases)

    def case(self, where: str, entry: Mapping[Any, object]) -> Iterator[tuple[str, CaseValue]]:
        """The entries as they come out of a case file."""
        for key, value in entry.items():
            here = f"{where}.{_key(key)}"
            try:
                ((name, read),) = parse_case(format_case({key: value})).items()
            except ValueError as error:     # CaseError, or an integer of thousands of digits
                self.error(here, str(error))
                continue
            if isinstance(value, bool):
                self.warnings.append(f"{self.path}: {here}: the boolean arrives as the word {read!r}, which is true")
            yield name, read


def _plain_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not any(char in name for char in "/\\\0")


def _key(key: object) -> str:
    return key if isinstance(key, str) and len(key) <= 60 else _short(key)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):     # an integer of thousands of digits, or nesting as deep
        return type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
