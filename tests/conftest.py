# SPDX-License-Identifier: MIT
"""Options of all tests.

``--backend NAME`` (repeatable) runs the tests that belong to a backend, and those that belong to none. ``--require
NAME`` turns every skip of a test that belongs to it into a failure: a machine that should have a GPU must not pass by
skipping. A test belongs to a backend by a parameter that is its name, by a marker (``toolchain("cuda")``,
``device("rocm")``) or by its folder (``tests/kernels/hip``).
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import backends
from tests import choices

# Tensors here are small: a second thread costs more than it brings, most of all where tests share their cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Every worker collects all tests, and their objects stay: a fifth of that time went to looking for garbage among them.
# Afterwards nobody looks among them again (pytest_collection_finish).
gc.set_threshold(50_000)

# Files come whole to a worker (--dist loadfile), but for these: their tests share no costly fixture.
_DIVIDED = ("tests/test_matrix.py", "tests/test_workbench.py")
# What takes long must not be begun last.
_LONG = (
    "tests/test_matrix.py", "tests/redteam/", "tests/test_workbench.py", "tests/kernels/cuda/",
    "tests/scoring/verbs/", "tests/scoring/serve/", "tests/test_vendor.py", "tests/test_flavours.py",
    "tests/scoring/judge/", "tests/scoring/test_cli.py", "tests/scoring/test_spoilt.py", "tests/scoring/remote/",
    "tests/scoring/sandbox/", "tests/scoring/test_signals.py", "tests/machine/")
_FOLDERS = {"tests/kernels/cuda/": "cuda", "tests/kernels/hip/": "rocm", "tests/kernels/cpu/": "cpu"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("warpwave")
    group.addoption("--backend", action="append", metavar="NAME", help="only tests of this backend, or of none")
    group.addoption("--require", action="append", metavar="NAME", help="a skipped test of this backend is a failure")


def pytest_configure(config: pytest.Config) -> None:
    for option in ("backend", "require"):
        for name in config.getoption(option) or ():
            if name not in backends.names():
                raise pytest.UsageError(f"--{option} {name}: there are {', '.join(backends.names())}")


def belongs_to(item: pytest.Item) -> set[str]:
    """The backends a test belongs to; empty for one that is about none."""
    names = set(backends.names())
    found = {name for folder, name in _FOLDERS.items() if item.nodeid.startswith(folder)}
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        found |= {value for value in callspec.params.values() if isinstance(value, str) and value in names}
    for marker in ("toolchain", "device"):
        for mark in item.iter_markers(marker):
            found |= set(mark.args) & names
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """``-n auto``: twice the cores, since judgements and sandboxes wait as much as they compute."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) * 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadfile``, with the files of ``_DIVIDED`` in parts: a test of one backend and problem each."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Divided(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            return f"{file}::{'-'.join(test.split('-')[:2])}" if file in _DIVIDED else file

    return Divided(config, log)


def leave_to_the_sweep(items: list[pytest.Item]) -> None:
    """``sampled(n)``: n parameter sets of a test, spread over all of them, are for `make test`; the others are slow."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in functions.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        step = -(-len(cases) // marker.args[0])
        for number, item in enumerate(cases):
            if number % step:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    gc.freeze()
    atexit.register(gc.unfreeze)         # extensions complain of what is left when Python ends


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_to_the_sweep(items)
    items.sort(key=lambda item: next((at for at, name in enumerate(_LONG) if item.nodeid.startswith(name)), len(_LONG)))
    wanted = set(config.getoption("backend") or ())
    if not wanted:
        return
    others = [item for item in items if (owners := belongs_to(item)) and not owners & wanted]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """A test that calls a command leaves its worker the cache it found: in another one, all later tests would build
    both emulators and their kernels once more."""
    with choices.as_before():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    missing = belongs_to(item) & set(item.config.getoption("require") or ())
    if report.skipped and missing and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"--require {', '.join(sorted(missing))}: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The red team's two figures, whichever processes judged its files."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    told = [value for report in reports for name, value in getattr(report, "user_properties", ())
            if name == "redteam" and report.when == "call"]
    if not told:
        return
    text = []
    for kind, bad, label in (("cheat", "rewarded", "cheats rewarded"), ("honest", "rejected", "honest rejected")):
        run = [outcome for who, outcome in told if who == kind and outcome != "not run"]
        text.append(f"{label}: {run.count(bad)} of {len(run)}")
    left = sum(outcome == "not run" for _who, outcome in told)
    terminalreporter.write_line("red team: " + " · ".join(text) + (f" · not run: {left}" if left else ""))
