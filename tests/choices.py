# SPDX-License-Identifier: MIT
"""What a command chooses for its whole process: cache, prebuilt libraries, emulator, the compilers' sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backends import _cache, _emulated, _prebuilt, _process


@contextmanager
def as_before() -> Iterator[None]:
    """Whatever is chosen within ends with it."""
    chosen: list[list[Any]] = [_cache._chosen, _prebuilt._chosen, _emulated._chosen, _process._confined]
    before = [list(each) for each in chosen]
    try:
        yield
    finally:
        for each, was in zip(chosen, before, strict=True):
            each[:] = was
