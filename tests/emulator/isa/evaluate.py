# SPDX-License-Identifier: MIT
"""Run the program of an instruction on given operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.emulator.isa import values
from tests.emulator.isa.pcode import Env, compiled
from tests.emulator.isa.values import Array, Value, Vector, value

MODE = 0x3F0            # as a compute kernel starts: all denormals kept, nearest even, IEEE and DX10_CLAMP on
_ENCODING = {"OPSEL": 4, "OPSEL_HI": 3, "SDWA_SRC0_SEL": 3, "SRC0": 32, "VDST": 32}


def environment(names: Mapping[str, Any], lanes: int, mode: int = MODE, wide: bool = False) -> Env:
    """With the encoding's fields zero where nothing else is given."""
    found: dict[str, Any] = {name: value("U", width, np.zeros(1, np.uint64)) for name, width in _ENCODING.items()}
    found["WAVE_MODE.IEEE"] = value("U", 1, np.array([mode >> 9 & 1]))
    found["laneId"] = value("U", 32, np.arange(lanes) % 64)
    found.update(names)
    sources = [found.get(f"S{i}") for i in range(3)]
    if None not in sources:
        found["S"] = Vector([s for s in sources if isinstance(s, Value)])
    return Env(found, lanes, mode, wide)


def run(program: str, mode: int = MODE, wide: bool = False, **names: tuple[str, int, Any] | Value) -> Env:
    """``S0=("B", 32, [1, 2])``: kind, width, one number a lane. The results are in the environment's names."""
    given = {k: v if isinstance(v, Value) else value(v[0], v[1], _exact(v[2])) for k, v in names.items()}
    lanes = max((len(v.bits) for v in given.values()), default=1)
    env = environment(given, lanes, mode, wide)
    compiled(program).run(env)
    return env


def _exact(numbers: Any) -> Array:
    return np.array([int(n) for n in np.atleast_1d(np.asarray(numbers, dtype=object))], dtype=object)


def result(env: Env, name: str = "D0", width: int = 32) -> list[int]:
    bits = values.extended(env.names[name], width)
    return [int(b) for b in np.broadcast_to(bits, env.lanes)]
