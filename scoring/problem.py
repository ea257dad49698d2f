# SPDX-License-Identifier: MIT
"""A problem: a folder with GPU MODE's interface, ours or the user's own checkout of somebody else's.

``task.yml`` is read at once (cheap: ``list`` needs nothing else); ``reference.py`` and its companions are imported,
torch with them, only when used. Their flat imports (``from task import …``, ``from utils import …``) resolve to the
files that ``task.yml`` lists, whatever else is called so, and leave no trace in ``sys.modules``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from scoring import popcorn
from scoring.model import Case


class ProblemError(Exception):
    """A problem folder is missing, incomplete or wrong; the message names the file and what to do."""


# Files that no submission gets to see; what several problems' diagnose.py share lies beside the folders: x_diagnose.py.
_JUDGES = ("reference", "eval", "binding", "mutants", "diagnose")
_SHARED = "_diagnose"


class Problem:
    """One problem folder. ``name`` is the folder's name; ``native`` says whether kernels can be bound to it."""

    def __init__(self, path: Path):
        self.path = path.resolve()
        self.name = self.path.name
        if not (self.path / "task.yml").is_file():
            raise ProblemError(f"{path}: no task.yml there; a problem is a folder with task.yml and reference.py")
        self.task = popcorn.load_task(self.path / "task.yml")
        self.tests = tuple(Case(_without_seed(case), "tests") for case in self.task.tests)
        self.benchmarks = tuple(Case(_without_seed(case), "benchmarks") for case in self.task.benchmarks)
        self._modules = ModuleSpace(self._files())

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.tests + self.benchmarks

    @property
    def ranking_by(self) -> str:
        return str(self.task.ranking_by)

    @property
    def native(self) -> bool:
        return (self.path / "kernel.h").is_file() and (self.path / "binding.py").is_file()

    @cached_property
    def reference(self) -> ModuleType:
        return self._load("reference")

    @cached_property
    def binding(self) -> ModuleType:
        return self._load("binding")

    @cached_property
    def mutants(self) -> ModuleType:
        return self._load("mutants")

    @cached_property
    def diagnose(self) -> ModuleType:
        return self._load("diagnose")

    @cached_property
    def utils(self) -> ModuleType:
        return self._load("utils")

    def generate(self, case: Case, seed: int, device: str, fp8: str | None = None) -> Any:
        """Fresh inputs. ``device`` and ``fp8`` are passed on where ``generate_input`` takes them.

        Raises ``ProblemError``, as the next three do, with the place in the problem's own files that failed.
        """
        function = self._function("generate_input")
        accepted = inspect.signature(function).parameters
        extra = {name: value for name, value in (("device", device), ("fp8", fp8)) if name in accepted}
        return self._call(function, **case.params, seed=seed, **extra)

    def expectations(self, data: Any) -> Sequence[Any] | None:
        """``expected(data)`` of a problem of ours, None for one that only has ``check_implementation``."""
        function = getattr(self.reference, "expected", None)
        return None if function is None else tuple(self._call(function, data))

    def check(self, data: Any, output: Any) -> tuple[bool, str]:
        """``check_implementation`` of the problem; old ones return only a string, empty for a pass."""
        answer = self._call(self._function("check_implementation"), data, output)
        if isinstance(answer, tuple):
            return bool(answer[0]), str(answer[1])
        return not answer, str(answer or "")

    def expected_output(self, data: Any) -> Any:
        """``ref_kernel(data)``, which tells shapes and dtypes of the outputs; the data may be modified."""
        return self._call(self._function("ref_kernel"), data)

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] | None = getattr(self.reference, name, None)
        if not callable(function):
            raise ProblemError(f"{self.reference.__file__}: defines no {name}(…), which the scorer calls")
        return function

    def _call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        with self._modules.installed():
            try:
                return function(*arguments, **keywords)
            except (Exception, SystemExit) as error:
                raise self._modules.failure(error, f"{function.__name__} failed") from error

    @property
    def staged(self) -> dict[str, Path]:
        """Modules a submission may import, by name: all of the problem's but the reference and what judges with it."""
        return {name: path for name, path in self._files().items()
                if name not in _JUDGES and not name.endswith(_SHARED)}

    def _files(self) -> dict[str, Path]:
        files = {
            Path(name).stem: (self.path / source).resolve()
            for name, source in self.task.files
            if name.endswith(".py") and source != popcorn.SUBMISSION
        }
        for name in ("task", "reference", "utils", "binding", "mutants", "diagnose"):
            if (self.path / f"{name}.py").is_file():
                files.setdefault(name, self.path / f"{name}.py")
        if "diagnose" in files:
            files.update({path.stem: path for path in self.path.parent.glob(f"*{_SHARED}.py")})
        return files

    def _load(self, name: str) -> ModuleType:
        module = self._modules.load(name)
        if module is None:
            raise ProblemError(f"{self.path}: no {name}.py (looked in the folder and at 'files' of task.yml)")
        return module


class ModuleSpace:
    """A few modules by name that exist only while they are wanted."""

    def __init__(self, files: dict[str, Path]):
        self.files = files
        self._loaded: dict[str, ModuleType] = {}

    def load(self, name: str) -> ModuleType | None:
        """The module called ``name``, imported once.

        Raises ``ProblemError`` with the place of the failure if the file cannot be imported.
        """
        if name in self._loaded:
            return self._loaded[name]
        path = self.files.get(name)
        if path is None or not path.is_file():
            return None
        with self.installed():
            try:
                return importlib.import_module(name)
            except (Exception, SystemExit) as error:
                raise self.failure(error, f"{name}.py cannot be imported", path) from error

    def failure(self, error: BaseException, what: str, path: Path | None = None) -> ProblemError:
        """What went wrong in one of the files, and on which line."""
        frames = traceback.extract_tb(error.__traceback__)
        ours = {str(file) for file in self.files.values()}
        places = [f"{frame.filename}:{frame.lineno}" for frame in frames if frame.filename in ours]
        if isinstance(error, SyntaxError) and error.filename:
            places.append(f"{error.filename}:{error.lineno}")
        where = places[-1] if places else str(path or next(iter(ours), "problem"))
        return ProblemError(f"{where}: {what}: {type(error).__name__}: {error}")

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make the modules importable by their flat names, shadowing others of that name for the time being."""
        shadowed = {name: sys.modules.pop(name) for name in self.files if name in sys.modules}
        sys.modules.update(self._loaded)
        finder = _Finder(self.files)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name in self.files:
                if name in sys.modules:
                    self._loaded[name] = sys.modules.pop(name)
            sys.modules.update(shadowed)


class _Finder:
    """Import hook for ``ModuleSpace``."""

    def __init__(self, files: dict[str, Path]):
        self.files = files

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        file = self.files.get(name)
        return importlib.util.spec_from_file_location(name, file) if file is not None and file.is_file() else None


def _without_seed(params: Any) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != "seed"}


def discover(root: Path) -> dict[str, Path]:
    """Problem folders below ``root`` by name."""
    return {path.parent.name: path.parent for path in sorted(root.glob("*/task.yml"))}
