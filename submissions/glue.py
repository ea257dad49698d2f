# SPDX-License-Identifier: MIT
"""The Python around a C symbol in a packed file: argument-building code, and the call that ``kernel.h`` implies.

Outputs are the non-const pointers of the prototype, except those that binding.py updates in place (``UPDATED``).
All other arguments come from its ``arguments``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from submissions import template
from submissions.embed import EmbedError, embed

if TYPE_CHECKING:
    from backends.source import Signature

_OURS = ("workspace", "workspace_bytes", "queue")     # parameters that neither binding.py nor the data provides


@dataclass(frozen=True)
class Glue:
    """Embedded Python ``text`` and the pieces of ``custom_kernel`` that depend on the ABI."""

    text: str
    tensor: str       # name of a tensor argument, to ask for the device
    values: str       # the arguments of the call, in the order of the prototype, comma-separated
    argtypes: str     # their ctypes types
    result: str       # what custom_kernel returns, from data and the output values ``results``


def glue(binding: Path, signature: Signature, shown: Path) -> Glue:
    """The glue for the problem of ``binding``; ``shown`` is the name of that file in messages.

    Raises ``EmbedError`` if it cannot be embedded, ``OSError`` or ``UnicodeDecodeError`` if it cannot be read.
    """
    text = binding.read_text(encoding="utf-8")
    wanted = ["SYMBOL", "DATA_OUTPUTS", "outputs", "arguments", "workspace_bytes", "case_of"]
    own = _defines(text, "returned")
    part = embed(text, shown, [*wanted, "returned"] if own else wanted)
    clash = sorted(part.names & template.RESERVED)
    if clash:
        raise EmbedError(f"{shown}:1: defines {', '.join(clash)}, which a packed file uses itself; rename it there")
    imports = sorted(set(part.imports), key=lambda line: (line[:4] == "from", line))
    code = "\n\n\n".join(["\n".join(imports), part.text]).strip("\n")
    result = "returned(data, results)" if own else "results[0] if len(results) == 1 else results"
    values = _values(signature, updates=_defines(text, "UPDATED"))
    return Glue(code, _device_tensor(signature, shown), values, _argtypes(signature), result)


def _defines(text: str, function: str) -> bool:
    return re.search(rf"^def {function}\(", text, re.MULTILINE) is not None


def _device_tensor(signature: Signature, shown: Path) -> str:
    for param in signature.params:
        if param.is_pointer and param.ctype.startswith("const"):
            return param.name
    raise EmbedError(f"{shown}:1: the prototype has no const pointer to take the device from")


def _values(signature: Signature, updates: bool) -> str:
    def value(name: str, ctype: str) -> str:
        if name in _OURS:
            return {"workspace": "workspace", "queue": "None"}.get(name, "nbytes")
        if not ctype.endswith("*"):
            return f'inputs["{name}"]'
        if ctype.startswith("const"):
            return f'inputs["{name}"].data_ptr()'
        return f'{{**inputs,**out}}["{name}"].data_ptr()' if updates else f'out["{name}"].data_ptr()'

    return ", ".join(value(param.name, param.ctype) for param in signature.params)


def _argtypes(signature: Signature) -> str:
    return ", ".join(f"ctypes.{'c_void_p' if param.is_pointer else f'c_{param.kind}'}" for param in signature.params)
