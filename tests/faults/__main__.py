# SPDX-License-Identifier: MIT
"""Plants faults in a copy of the scorer, one at a time, and says which tests notice each.

    python -m tests.faults                    all of them: minutes of CPU time
    python -m tests.faults layout 'lse bound' those whose file or name contains one of the words
    python -m tests.faults --markdown FILE    also write the table

A fault that no test notices is a hole in the tests. Exits with 1 if there is one that ``EXPLAINED`` does not explain.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults import bounds, judge, packaging
from tests.faults.explained import EXPLAINED
from tests.faults.planting import Fault, stale

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("backends", "benchmarks", "examples", "kernels", "problems", "scoring", "submissions", "tests", "tools")
SECONDS = 900                 # that one fault may take
FAULTS = [fault for part in (bounds, judge, packaging) for group in part.GROUPS for fault in group.all()]


@dataclass(frozen=True)
class Outcome:
    """``noticed``: by what, "" if by nothing."""

    fault: Fault
    noticed: str
    seconds: float

    @property
    def explanation(self) -> str:
        return EXPLAINED.get((self.fault.file, self.fault.name), "")


def copied(folder: Path) -> Path:
    """A copy of the tree to plant faults in, and to run tests in.

    Its bytecode is valid for sources of one content: times of files are too coarse for faults.
    """
    for name in COPIED:
        unwanted = shutil.ignore_patterns("__pycache__", "build")
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted, symlinks=True)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder / path.name)
    for name in COPIED:
        compileall.compile_dir(folder / name, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    return folder


def failed(tree: Path, tests: Sequence[str]) -> str:
    """The first of ``tests`` that fails in ``tree``, "" if none does. In a child, which has torch already."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setpgid(0, 0)
        try:
            os.write(write, _run(tree, tests).encode()[:4000])
        except BaseException as error:  # noqa: BLE001  the child must end here, whatever it was
            os.write(write, f"{type(error).__name__} in the run".encode())
        os._exit(0)
    os.close(write)
    told = ""
    try:
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
        signal.alarm(SECONDS)
        with os.fdopen(read) as pipe:
            told = pipe.read()
    finally:
        signal.alarm(0)
        status = os.waitpid(child, 0)[1]
    return told if status == 0 else "a run that did not end"


def _run(tree: Path, tests: Sequence[str]) -> str:
    import pytest
    from hypothesis import Phase, settings

    settings.register_profile("faults", max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate),
                              database=None)       # nobody reads how a test failed
    settings.load_profile("faults")

    class Collector:
        first = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and not self.first:
                self.first = report.nodeid.removeprefix("tests/")

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed and not self.first:
                self.first = f"{report.nodeid.removeprefix('tests/')} (collection)"

    os.chdir(tree)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in (*COPIED, "conftest")]:
        del sys.modules[name]
    collector = Collector()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"       # of some seconds each
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-m", "not slow and not toolchain",
               "--rootdir", str(tree), "-W", "ignore::pytest.PytestAssertRewriteWarning",
               "-c", str(tree / "pyproject.toml")]
    code = pytest.main([*options, *tests], plugins=[collector])
    return collector.first or ("" if code == 0 else f"exit code {int(code)}")


def outcomes(tree: Path, faults: Iterable[Fault]) -> Iterable[Outcome]:
    """Each fault planted by itself: first the likely tests, then all of its.

    Raises ``RuntimeError`` if a test fails without any fault.
    """
    sound: set[tuple[str, ...]] = set()
    for fault in faults:
        path, began, noticed = tree / fault.file, time.monotonic(), ""
        source = path.read_text()
        for tests in (fault.likely, tuple(test for test in fault.tests if test not in fault.likely)):
            if noticed or not tests:
                continue
            if tests not in sound and (wrong := failed(tree, tests)):
                raise RuntimeError(f"{wrong} fails without any fault")
            sound.add(tests)
            path.write_text(fault.planted(source))
            noticed = failed(tree, tests)
            path.write_text(source)
        yield Outcome(fault, noticed, time.monotonic() - began)


def markdown(found: Sequence[Outcome]) -> str:
    """A table of all outcomes, by file."""
    lines = ["| file | fault | noticed by |", "|---|---|---|"]
    for outcome in found:
        by = f"`{outcome.noticed}`" if outcome.noticed else f"nothing: {outcome.explanation or 'not explained'}"
        lines.append(f"| {outcome.fault.file} | {outcome.fault.name} | {by.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.splitlines()[0])
    parser.add_argument("word", nargs="*", help="take faults whose file or name contains one of these")
    parser.add_argument("--markdown", type=Path, help="write the table of outcomes to this file")
    given = parser.parse_args(arguments)
    faults = [fault for fault in FAULTS
              if not given.word or any(word in f"{fault.file} {fault.name}" for word in given.word)]
    if not faults:
        sys.stderr.write("no fault has such a file or name\n")
        return 2
    if wrong := stale(ROOT, faults):
        sys.stderr.write("\n".join(wrong) + "\n")
        return 2
    import hypothesis  # noqa: F401  what most tests need is imported once
    import pytest  # noqa: F401
    import torch

    torch.set_num_threads(1)
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="warpwave-faults-") as folder:
        tree = copied(Path(folder))
        for outcome in outcomes(tree, faults):
            found.append(outcome)
            by = outcome.noticed or f"NOTHING {outcome.explanation and '(explained)'}"
            sys.stdout.write(f"{outcome.seconds:6.1f} s  {outcome.fault.file}: {outcome.fault.name}: {by}\n")
            sys.stdout.flush()
            if given.markdown:
                given.markdown.write_text(markdown(found))
    lost = [outcome for outcome in found if not outcome.noticed and not outcome.explanation]
    noticed = sum(bool(outcome.noticed) for outcome in found)
    sys.stdout.write(f"{len(found)} faults: {noticed} noticed, {len(found) - noticed - len(lost)} explained, "
                     f"{len(lost)} survived\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
