# SPDX-License-Identifier: MIT
"""torch, imported when a worker needs it: for Python code or a GPU.

Its import takes 2.5 s of processor time. A worker that runs libraries alone on the CPU or an emulated GPU, as all those
that calibrate there, never needs it: what it does with memory, it does by address (``ipc.arena.Memory``). ``complete``
is for the moment before anybody's Python code runs.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

LATER = "torch"


class Later(ModuleType):
    """Stands where a module will be; whoever looks into it gets the module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):        # Python's import asks for these
            raise AttributeError(name)
        complete()
        return getattr(sys.modules[self.__name__], name)


def leave_out() -> None:
    """To be called before torch is imported; later it does nothing."""
    if LATER not in sys.modules:
        sys.modules[LATER] = Later(LATER)


def complete() -> None:
    """Have torch as anybody else has it. Raises what its import raises."""
    later = sys.modules.get(LATER)
    if isinstance(later, Later):
        del sys.modules[LATER]
        collects = gc.isenabled()
        gc.disable()
        try:
            found = importlib.import_module(LATER)
        finally:
            gc.freeze()                  # as of all that is imported: nothing of it is ever garbage
            if collects:
                gc.enable()
        for module in list(sys.modules.values()):        # who has imported it already need not ask each time
            if getattr(module, "__dict__", {}).get(LATER) is later:     # None stands for what may not be imported
                setattr(module, LATER, found)


@cache
def version() -> ModuleType:
    """torch's own ``version.py``, without the rest: its version, and which vendor's GPUs it is built for.

    Raises ``ModuleNotFoundError`` where there is no torch.
    """
    found = importlib.machinery.PathFinder.find_spec("torch")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    spec = importlib.util.spec_from_file_location("version_of_torch", Path(found.origin).with_name("version.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
