# SPDX-License-Identifier: MIT
"""Backends turn (kernel source, target) into a shared library with one compiler command.

Every backend is a file of this folder that defines ``BACKEND``; adding a vendor is adding a file. $WARPWAVE_BACKENDS
names further folders with such files, separated like those of PATH.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backends.base import Backend, GpuLabel
from backends.errors import UnknownBackend

if TYPE_CHECKING:
    from backends._process import Confined

VARIABLE = "WARPWAVE_BACKENDS"
_SUPPORT_FILES = {"__init__", "base", "errors", "source", "toolchain"}
__path__ += [str(Path(folder).absolute()) for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]


def names() -> list[str]:
    """Names of all backends, sorted: every file of this folder, or of one in $WARPWAVE_BACKENDS, that is not a support
    file.

    A support file is ``base``, ``errors``, ``source``, ``toolchain`` or any whose name starts with an underscore.
    """
    files = {path.stem for folder in __path__ for path in Path(folder).glob("*.py")}
    return sorted(name for name in files if name not in _SUPPORT_FILES and not name.startswith("_"))


def every() -> list[Backend]:
    """All backends by name, those that run on the host last."""
    return sorted(map(get, names()), key=lambda backend: backend.on_host)


def of_language(language: str) -> Backend:
    """The backend that compiles kernels of ``language``, a folder under kernels/. Raises ``KeyError``."""
    return {backend.language: backend for backend in every()}[language]


def suffixes() -> Mapping[str, str]:
    """Suffixes of kernel files by language."""
    return {backend.language: backend.suffix for backend in every()}


def labels() -> Mapping[str, GpuLabel]:
    """Every GPU label by its name: what leaderboards and settings may call a GPU."""
    return {gpu.label: gpu for backend in every() for gpu in backend.labels}


def use_cache(folder: Path) -> None:
    """Let this process keep binaries, and what compilers said about themselves, in ``folder``.

    $WARPWAVE_CACHE_DIR, where it is set, goes before it.
    """
    from backends import _cache

    _cache.use(folder)


def use_emulator(wanted: bool | None) -> None:
    """Whether this process runs GPU kernels on an emulated device: always, never, or None: where there is no real one.

    It goes before $WARPWAVE_EMULATE.
    """
    from backends import _emulated

    _emulated.use(wanted)


def use_prebuilt(folder: Path) -> None:
    """Let this process take libraries that another machine compiled from ``folder`` before it compiles anything."""
    from backends import _prebuilt

    _prebuilt.use(folder)


def confine(where: Confined | None) -> None:
    """Have the compilers of kernels run in ``where``, such as a sandbox; None: like any other program."""
    from backends import _process

    _process.confine(where)


def stop() -> None:
    """Kill all compilers that run for this process, so that nobody who was interrupted waits for them."""
    from backends import _process

    _process.stop()


def processors() -> int:
    """How many processors this process may use: those it is bound to, and no more than its control group's share."""
    from backends import _process

    return _process.processors()


def get(name: str) -> Backend:
    """The backend called ``name``.

    Raises ``UnknownBackend`` (a usage error) with the names that exist.
    """
    if name not in names():
        owner = next((backend.name for backend in every() if backend.language == name.lower()), "")
        raise UnknownBackend(name, names(), f"; {name.upper()} kernels are {owner}'s" if owner else "")
    backend = importlib.import_module(f"backends.{name}").BACKEND
    assert isinstance(backend, Backend)
    return backend
