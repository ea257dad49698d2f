# SPDX-License-Identifier: MIT
"""Assignments of the pseudo-code: to registers and variables, whole or in part, and to memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.emulator.isa import arithmetic, values
from tests.emulator.isa.pcode_env import Env, Mask
from tests.emulator.isa.pcode_parser import Node
from tests.emulator.isa.pcode_read import address_of, expression, is_lane, is_reversed, limits_of
from tests.emulator.isa.values import Array, Value, Vector

Store = Callable[[Env, Mask, Value], None]


def _merge(env: Env, mask: Mask, name: str, new: Value) -> None:
    old = env.names.get(name)
    if isinstance(old, Value) and not mask.all():
        width = max(old.width, new.width)
        new = Value(new.kind, width, values.where(mask, values.extended(new, width), values.extended(old, width)))
    env.names[name] = new


def store_to(target: Node) -> Store:
    """A function that writes a value to ``target`` in the lanes of a mask."""
    if target[0] == "name":
        return lambda env, mask, value: _merge(env, mask, target[1], value)
    if target[0] == "concat":
        return _store_concat(target[1])
    kind, width, place = ("", 0, target) if target[0] != "type" else (target[2], target[3], target[1])
    if place[0] == "index" and place[1][0] == "name" and place[1][1] in ("MEM", "LDS"):
        return _store_memory(place, kind, width)
    if place[0] == "index" and place[1][0] == "index" and place[1][1] == ("name", "VGPR"):
        if not is_lane(place[1][2]):
            return _store_register(place)
        place = ("name", "D0")
    return _store_bits(place, kind, width)


def _store_concat(parts: list[Node]) -> Store:
    stores = [(store_to(p), p[3]) for p in parts]

    def run(env: Env, mask: Mask, value: Value) -> None:
        at = 0
        for store, width in reversed(stores):
            bits = (value.bits.astype(object) >> at) & values.mask(width)
            store(env, mask, values.value("B", width, bits))
            at += width
    return run


def _store_memory(place: Node, kind: str, width: int) -> Store:
    address = address_of(place[2])

    def run(env: Env, mask: Mask, value: Value) -> None:
        size = width or min(value.width, 64)
        bits = arithmetic.cast(env, value, kind or "B", size).bits
        assert env.memory is not None
        env.memory.store(address(env), size, np.broadcast_to(bits, env.lanes), mask)
    return run


def _store_register(place: Node) -> Store:
    lane, index = expression(place[1][2]), expression(place[2])

    def run(env: Env, mask: Mask, value: Value) -> None:
        assert env.set_register is not None
        if mask.any():
            env.set_register(lane(env), index(env), value)
    return run


def _store_bits(place: Node, kind: str, width: int) -> Store:
    """Registers and variables, whole or in part: the name, and within it the bits."""
    spans: list[Node] = []
    while place[0] in ("index", "slice", "part", "type"):
        spans.append(place)
        inner = place[1]
        if inner[0] == "index" and inner[1][0] == "index" and inner[1][1] == ("name", "VGPR"):
            inner = ("name", "D0")
        place = inner
    name = place[1]
    parts = [s for s in spans if s[0] != "type"]
    typed = next((s for s in spans if s[0] == "type"), None)
    if len(parts) > 1:
        raise values_error(place)
    limits = limits_of(parts[0]) if parts else None

    def run(env: Env, mask: Mask, value: Value) -> None:
        old = env.names.get(name)
        if isinstance(old, Vector):
            assert limits is not None
            at = int(limits(env)[0][0])
            before = old.elements[at]
            cast = arithmetic.cast(env, value, kind or before.kind, width or before.width)
            elements = list(old.elements)
            elements[at] = Value(cast.kind, cast.width, values.where(mask, cast.bits, before.bits))
            env.names[name] = Vector(elements)
            return
        if limits is None:
            start, count = np.zeros(1, dtype=np.uint64), width
        else:
            start, count = limits(env)
        cast = arithmetic.cast(env, value, kind or value.kind, count if limits or width else value.width)
        total = max(old.width if old else 0, int(start.max()) + count, typed[3] if typed else 0, 1)
        before_bits = values.extended(old, total) if old else values.constant("B", total, 0).bits
        if reverse := (limits is not None and parts[0][0] == "slice" and is_reversed(parts[0])):
            raise values_error(reverse)
        if len(start) == 1:
            after = values.put(before_bits, total, int(start[0]), count, cast.bits)
        else:
            after = _scatter(before_bits, start, count, cast.bits)
        kept = (kind or (old.kind if old else "B")) if limits is None and old is None else (old.kind if old else "B")
        env.names[name] = Value(kept, total, values.where(mask, after, before_bits) if not mask.all() else after)
    return run


def values_error(what: object) -> ValueError:
    return ValueError(f"cannot write to {what!r}")


def _scatter(old: Array, start: Array, count: int, bits: Array) -> Array:
    """``count`` bits from a place that differs by lane; all within 64 bits."""
    ones = np.uint64(values.mask(count))
    return old.astype(np.uint64) & ~(ones << start) | (values.array(bits, count) << start)
