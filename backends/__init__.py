# SPDX-License-Identifier: MIT
"""Backends turn (kernel source, target) into a shared library with one compiler command.

Every backend is a file of this folder that defines ``BACKEND``; adding a vendor is adding a file.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from backends.base import Backend, UnknownBackend

_SUPPORT_FILES = {"__init__", "base", "source", "toolchain"}


def names() -> list[str]:
    """Names of all backends, sorted: every file of this folder that is not a support file.

    A support file is one of ``base``, ``source``, ``toolchain`` or any whose name starts with an underscore.
    """
    files = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in files if name not in _SUPPORT_FILES and not name.startswith("_"))


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
        raise UnknownBackend(name, names())
    backend = importlib.import_module(f"backends.{name}").BACKEND
    assert isinstance(backend, Backend)
    return backend
