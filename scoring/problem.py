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

from scoring.entry_points import EntryPoints, entry_points
from scoring.ipc import absent
from scoring.ipc.emulator import EMULATED
from scoring.popcorn.task import SUBMISSION, load_small, load_task
from scoring.record import Case


class ProblemError(Exception):
    """A problem folder is missing, incomplete or wrong; the message names the file and what to do."""


class ProblemNeeds(ProblemError):
    """A problem folder needs a package or a GPU that is not here."""


MAX_RANKS = 64
# Files that no submission gets to see; what several problems' diagnose.py share lies beside the folders: x_diagnose.py.
_JUDGES = ("reference", "eval", "binding", "mutants", "diagnose")
_SHARED = "_diagnose"
_USUAL = ("task", "reference", "utils")          # modules that a contest's folder brings itself
SLOW = ("cpu", EMULATED)         # devices that may have benchmark cases of their own, as limits.case_gflop calls them


class Problem:
    """One problem folder. ``name`` is the folder's name; ``native`` says whether kernels can be bound to it."""

    def __init__(self, path: Path):
        self.path = path.resolve()
        self.name = self.path.name
        if not (self.path / "task.yml").is_file():
            raise ProblemError(f"{path}: no task.yml there; a problem is a folder with task.yml and reference.py")
        self.task = load_task(self.path / "task.yml")
        self.tests = tuple(Case(_without_seed(case), "tests") for case in self.task.tests)
        self.benchmarks = tuple(Case(_without_seed(case), "benchmarks") for case in self.task.benchmarks)
        self.ranks_have_gpus = False             # of a distributed task: where its ranks run, one on each
        self.stand_in: Any = None                # ipc.stand_in.StandIn, where the folder's files may not ask for a GPU
        self._modules = ModuleSpace(self._files(), self._surroundings)

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.tests + self.benchmarks

    @cached_property
    def small(self) -> dict[str, tuple[Case, ...]]:
        """Benchmark cases for slow devices, by what ``limits.case_gflop`` of the settings calls the device.

        Raises ``TaskError`` for a small.yml that cannot be used.
        """
        return {device: tuple(Case(_without_seed(case), "small") for case in cases)
                for device, cases in load_small(self.path / "small.yml", SLOW).items()}

    @property
    def ranking_by(self) -> str:
        return str(self.task.ranking_by)

    def without_gpu(self) -> None:
        """From now on ``cuda`` in the folder's files means the CPU; ``stand_in.used`` says whether they ask for it.

        Not of a problem with a binding, whose ``generate_input`` is told its device.
        """
        if not self.native and self.stand_in is None:
            from scoring.ipc.stand_in import StandIn

            self.stand_in = StandIn()

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Around every line of the folder's Python that runs here."""
        if self.stand_in is None:
            yield
            return
        from scoring.ipc.stand_in import standing_in

        with standing_in(self.stand_in):
            yield

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the folder's own modules: objects of their classes may be part of the data."""
        return tuple(self._files())

    @property
    def native(self) -> bool:
        """Whether kernels can be bound. Raises ``ProblemError`` if one of the two files that this takes is missing."""
        header, binding = ((self.path / name).is_file() for name in ("kernel.h", "binding.py"))
        if header and not binding:
            raise ProblemError(f"{self.path}: kernel.h is there and no binding.py, which says what its arguments are")
        return header and binding

    @property
    def seed_bits(self) -> int:
        """Bits of a seed for ``generate_input``: ours take 63, others' generators perhaps 31."""
        return 63 if self.native else 31

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

    @cached_property
    def entry_points(self) -> EntryPoints | None:
        """Of a contest with several functions per submission; None of the usual ``custom_kernel(data)``."""
        evaluator = self._files().get(Path(self.task.main).stem)
        if self.native or evaluator is None or not evaluator.is_file():
            return None
        keys = [name for case in self.task.tests[:1] for name in case]
        try:
            return entry_points(self.reference, evaluator.read_text(encoding="utf-8"), keys)
        except (SyntaxError, UnicodeDecodeError) as error:
            raise ProblemError(f"{evaluator}: cannot be read: {error}") from error

    def ranks(self, case: Case) -> int:
        """Processes of a distributed task's case; 0 of any other."""
        world = case.params.get("world_size")
        if not self.task.multi_gpu and "rank" not in inspect.signature(self._generator()).parameters:
            return 0
        if not isinstance(world, int) or not 1 <= world <= MAX_RANKS:
            raise ProblemError(f"{self.path}: case {case.name}: world_size must be 1 to {MAX_RANKS}, not {world!r}")
        return world

    def _generator(self) -> Callable[..., Any]:
        return self.entry_points.generate if self.entry_points else self._function("generate_input")

    def generate(
        self, case: Case, seed: int, device: str, fp8: str | None = None, rank: int | None = None,
    ) -> Any:
        """Fresh inputs. ``device``, ``fp8`` and ``rank`` are passed on where ``generate_input`` takes them.

        Raises ``ProblemError``, as the next three do, with the place in the problem's own files that failed.
        """
        function = self._generator()
        accepted = inspect.signature(function).parameters
        extra = {name: value for name, value in (("device", device), ("fp8", fp8), ("rank", rank), ("seed", seed))
                 if name in accepted or (name == "seed" and not self.entry_points)}
        if self.entry_points:
            extra |= self.entry_points.fixed
        return self.call(function, **case.params, **extra)

    def expectations(self, data: Any) -> Sequence[Any] | None:
        """``expected(data)`` of a problem of ours, None for one that only has ``check_implementation``."""
        function = getattr(self.reference, "expected", None)
        return None if function is None else tuple(self.call(function, data))

    def check(self, data: Any, output: Any) -> tuple[bool, str]:
        """``check_implementation`` of the problem; old ones return only a string, empty for a pass."""
        check = self.entry_points.check if self.entry_points else self._function("check_implementation")
        answer = self.call(check, data, output)
        if isinstance(answer, tuple):
            return bool(answer[0]), str(answer[1])
        return not answer, str(answer or "")

    def expected_output(self, data: Any) -> Any:
        """``ref_kernel(data)``, which tells shapes and dtypes of the outputs; the data may be modified."""
        return self.call(self.entry_points.expected if self.entry_points else self._function("ref_kernel"), data)

    def bound(self, name: str, *arguments: Any) -> Any:
        """A function of binding.py, called. Raises ``ProblemError`` with the place where it failed."""
        return self.call(getattr(self.binding, name), *arguments)

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] | None = getattr(self.reference, name, None)
        if not callable(function):
            raise ProblemError(f"{self.reference.__file__}:1: defines no {name}(…), which the scorer calls")
        return function

    def installed(self) -> contextlib.AbstractContextManager[None]:
        """Where the folder's modules can be imported by their flat names."""
        return self._modules.installed()

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """A function of one of the problem's files. Raises ``ProblemError`` with the place where it failed."""
        with self._modules.installed(), self._surroundings():
            try:
                return function(*arguments, **keywords)
            except (Exception, SystemExit) as error:
                if getattr(error, "passes", False):      # of the judge's own, raised below the folder's code
                    raise
                code = getattr(function, "__code__", None)
                place = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None
                raise self._modules.failure(
                    error, f"{getattr(function, '__name__', function)} failed", place) from error

    @property
    def staged(self) -> dict[str, Path]:
        """Modules a submission may import, by name: all of the problem's but the reference and what judges with it.

        A contest's runner lays all files beside the submission, and classes of its data may be the reference's.
        """
        judges = _JUDGES if self.native else ("eval",)
        return {name: path for name, path in self._files().items()
                if name not in judges and not name.endswith(_SHARED)}

    def _files(self) -> dict[str, Path]:
        files = {
            Path(name).stem: self._python(source)
            for name, source in self.task.files
            if name.endswith(".py") and source != SUBMISSION
        }
        for name in ("task", "reference", "utils", "binding", "mutants", "diagnose"):
            if (self.path / f"{name}.py").is_file():
                files.setdefault(name, self.path / f"{name}.py")
        if "diagnose" in files:
            files.update({path.stem: path for path in self.path.parent.glob(f"*{_SHARED}.py")})
        return files

    def _python(self, source: str) -> Path:
        """A file of the task, which a worker may get to read: links followed, it must still be a Python file.

        Raises ``ProblemError``.
        """
        path = (self.path / source).resolve()
        if path.suffix != ".py":
            raise ProblemError(f"{self.path}/task.yml: 'files' names {source}, which is {path}, no Python file")
        return path

    def _load(self, name: str) -> ModuleType:
        module = self._modules.load(name)
        if module is None:
            raise ProblemError(f"{self.path}: no {name}.py (looked in the folder and at 'files' of task.yml)")
        return module


def missing(error: BaseException) -> str:
    """What is not here that an ``error`` says it needs: a package or a GPU; "" for any other error."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return absent.package(error.name.split(".")[0])
    from scoring.ipc.stand_in import needs_gpu

    return needs_gpu(error)


class ModuleSpace:
    """A few modules by name that exist only while they are wanted."""

    def __init__(
        self, files: dict[str, Path],
        around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ):
        self.files, self._around = files, around
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
        with self.installed(), self._around():
            try:
                return importlib.import_module(name)
            except (Exception, SystemExit) as error:
                raise self.failure(error, f"{name}.py cannot be imported", path) from error

    def failure(self, error: BaseException, what: str, path: Path | str | None = None) -> ProblemError:
        """What went wrong in one of the files, and on which line; at ``path`` if no line of theirs was reached."""
        frames = traceback.extract_tb(error.__traceback__)
        ours = {str(file) for file in self.files.values()}
        places = [f"{frame.filename}:{frame.lineno}" for frame in frames if frame.filename in ours]
        if isinstance(error, SyntaxError) and error.filename:
            places.append(f"{error.filename}:{error.lineno}")
        where = places[-1] if places else str(path or next(iter(ours), "problem"))
        own = error.name if isinstance(error, ModuleNotFoundError) else None
        if own in self.files or own in _USUAL:           # no package is meant
            file = self.files.get(own or "", Path(f"{own}.py"))
            return ProblemError(f"{where}: {what}: it imports {own}, and {file} is not there")
        if needed := missing(error):
            return ProblemNeeds(f"{where}: needs {needed}")
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


def discover(*roots: Path) -> dict[str, Path]:
    """Problem folders below ``roots`` by name, in name order; the first root that has a name wins."""
    found = {path.parent.name: path.parent for root in reversed(roots) for path in root.glob("*/task.yml")}
    return dict(sorted(found.items()))
