# SPDX-License-Identifier: MIT
"""Which headers of a HIP source ``hipcc`` reads precompiled: HIP's runtime, where nothing before it could change what
it means, else those that the driver itself includes first.

A source's own include folders are left out of what is precompiled, so that programs share it; that is the same only
where no such folder has a name that a system's folder has too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from backends import _includes, _llvm, _precompiled
from backends._cache import Cache
from backends.toolchain import environment

_FOLDER = re.compile(r"(-I|-iquote|-isystem|-idirafter)(.*)")
# What is read or defined before the source, or goes to a compiler past the driver.
_EARLIER = re.compile(r"-include|-imacros|-Xclang|-Xpreprocessor|-Xarch|-Wp,|-x|-nostd|-fmodule|-ivfsoverlay|--sysroot")


def quicker(
    parts: _llvm.Llvm, step: Sequence[str], source: Path, own: Sequence[str], added: Sequence[str],
    device: Sequence[str],
) -> list[str] | None:
    """``step``, one of ``parts.steps``, with the headers precompiled; None where they are not there or might differ.

    The step's flags are ``added``, of the driver, and ``own``, of the command line; ``device`` are for device code.
    """
    folders, rest = _split(own)
    if any(map(_EARLIER.match, rest)):
        return None
    with contextlib.suppress(OSError):
        if _shadowed(folders, parts.folders()):
            return None
        leads = _includes.leads_with(source, folders, _llvm.RUNTIME)
        header = parts.headers / _llvm.RUNTIME if leads else parts.wrapper()
        command = parts.precompiling(step, [*added, *rest], device, header)
        if command is not None:
            found = _precompiled.find(command, parts.read_by_all(), environment(), Cache())
            return parts.reading(step, found) if found is not None else None
    return None


def _split(own: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Include folders, and the other flags."""
    folders, rest, words = list[Path](), list[str](), iter(own)
    for word in words:
        if match := _FOLDER.fullmatch(word):
            folders.append(Path(match[2] or next(words, "")))
        else:
            rest.append(word)
    return folders, rest


def _shadowed(folders: Sequence[Path], system: Sequence[Path]) -> bool:
    """Whether a header of the system's could be found in ``folders`` instead."""
    return any((other := place / entry.name).exists() and not other.samefile(entry)
               for folder in folders if folder.is_dir() for entry in folder.iterdir() for place in system)
