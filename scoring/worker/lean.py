# SPDX-License-Identifier: MIT
"""torch without its rules for tensors that have no memory, a quarter of its import, until Python code may want them.

A worker that runs libraries alone on the CPU or an emulated GPU, as all those that calibrate there, never does.
``complete`` is for the moment before anybody's Python code runs, and before more of torch is used than tensors: its
profiler imports parts that want the rules.
"""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType
from typing import Any

RULES = "torch._meta_registrations"      # torch imports it last of all, for what it registers


class Later(ModuleType):
    """Stands where a module will be; whoever looks into it gets the module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):        # Python's import asks for these
            raise AttributeError(name)
        complete()
        return getattr(sys.modules[self.__name__], name)


def leave_out() -> None:
    """To be called before torch is imported; later it does nothing."""
    if "torch" not in sys.modules:
        sys.modules[RULES] = Later(RULES)


def complete() -> None:
    """Have torch as anybody else has it. Raises what its import raises."""
    if isinstance(sys.modules.get(RULES), Later):
        del sys.modules[RULES]
        collects = gc.isenabled()
        gc.disable()
        try:
            importlib.import_module(RULES)
        finally:
            gc.freeze()                  # as of all that is imported: nothing of it is ever garbage
            if collects:
                gc.enable()
