# SPDX-License-Identifier: MIT
"""The state that a program of pseudo-code runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tests.emulator.isa.values import Array, Value, constant

Mask = Array
_BY_MODE = 255


class Memory(Protocol):
    def load(self, address: Array, width: int, mask: Mask) -> Array: ...
    def store(self, address: Array, width: int, bits: Array, mask: Mask) -> None: ...


@dataclass
class Env:
    """``names``: registers and variables. ``mode``: the MODE register. ``wide``: integer results keep all their bits
    and saturate when they are written (the CLAMP of integer instructions). ``functions``: calls that need more than
    their arguments, such as address calculations."""

    names: dict[str, Any]
    lanes: int
    mode: int = 0x3F0
    wide: bool = False
    memory: Memory | None = None
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    registers: Callable[[Value, Value], Value] | None = None
    set_register: Callable[[Value, Value, Value], None] | None = None
    dead: Mask | None = None
    active: Mask | None = None
    returned: Value | None = None

    def __post_init__(self) -> None:
        self.names["ROUND_MODE"] = constant("U", 8, _BY_MODE)

    @property
    def rounding(self) -> int | None:
        """What the program set for itself, over MODE."""
        forced = int(self.names["ROUND_MODE"].bits[0])
        return None if forced == _BY_MODE else forced

    def everything(self) -> Mask:
        return np.ones(self.lanes, dtype=bool)


@dataclass
class Function:
    parameters: list[str]
    block: Callable[[Env, Mask], None]
