# SPDX-License-Identifier: MIT
"""Expressions of the pseudo-code as closures from the state to a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.emulator.isa import arithmetic, values
from tests.emulator.isa.pcode_env import Env, Function
from tests.emulator.isa.pcode_parser import Node
from tests.emulator.isa.values import Array, Value, Vector

Expression = Callable[[Env], Any]
_SOURCES = frozenset({"S0", "S1", "S2", "D0", "DATA", "DATA2"})


def is_lane(node: Node) -> bool:
    return bool(node[0] == "name" and node[1] in ("laneId", "laneID"))


def is_reversed(node: Node) -> bool:
    high, low = node[2], node[3]
    return high[0] == low[0] == "number" and int(high[1], 0) < int(low[1], 0)


def address_of(node: Node) -> Expression:
    value = expression(node)
    # Where the manual writes MEM[ADDR] it means the address with its offset, as it says elsewhere.
    bare = node == ("name", "ADDR")

    def run(env: Env) -> Array:
        found = env.functions["address"]() if bare and "address" in env.functions else value(env)
        return np.broadcast_to(values.extended(found, 64), env.lanes)
    return run


def limits_of(node: Node) -> Callable[[Env], tuple[Array, int]]:
    """First bit (may differ by lane) and number of bits."""
    if node[0] == "index":
        at = expression(node[2])
        return lambda env: (values.extended(at(env), 64), 1)
    first, second = expression(node[2]), expression(node[3])
    if node[0] == "part":
        return lambda env: (values.extended(first(env), 64), values.scalar(second(env)))

    def run(env: Env) -> tuple[Array, int]:
        high, low = values.extended(first(env), 64), values.extended(second(env), 64)
        counts = high.astype(np.int64) - low.astype(np.int64) + 1
        if (counts != counts[0]).any():
            raise ValueError("a slice whose width differs by lane")
        return low, int(counts[0])
    return run


def expression(node: Node) -> Expression:
    makers: dict[str, Callable[..., Expression]] = {
        "number": _number, "name": _name, "type": _typed, "index": _index, "slice": _slice, "part": _part,
        "cast": _cast, "call": _call, "unary": _unary, "binary": _binary, "choose": _choose, "concat": _concat}
    return makers[node[0]](*node[1:])


def _number(text: str) -> Expression:
    found = arithmetic.literal(text)
    return lambda env: found


def _name(name: str) -> Expression:
    if name in arithmetic.CONSTANTS:
        found = arithmetic.CONSTANTS[name]
        return lambda env: found
    return lambda env: env.names[name]


def _typed(inner: Node, kind: str, width: int) -> Expression:
    if inner[0] == "name" and inner[1] in arithmetic.CONSTANTS:
        found = arithmetic.CONSTANTS[inner[1]]
        return lambda env: arithmetic.cast(env, found, kind, width)
    if inner[0] == "index" and inner[1] in (("name", "MEM"), ("name", "LDS")):
        return _load_memory(inner, kind, width)
    value = expression(inner)
    root = inner
    while root[0] in ("slice", "index", "type"):
        root = root[1]
    source = kind == "F" and root[0] == "name" and root[1] in _SOURCES

    def run(env: Env) -> Value:
        found = value(env)
        if found.floating and kind in values.FLOATS:
            return arithmetic.cast(env, found, kind, width)
        if env.wide and found.width == arithmetic.WIDE:
            return arithmetic.cast(env, found, kind, width)      # saturates
        result = Value(kind, width, values.extended(found, width))
        return arithmetic.flush_source(env, result) if source else result
    return run


def _load_memory(place: Node, kind: str, width: int) -> Expression:
    address = address_of(place[2])

    def run(env: Env) -> Value:
        assert env.memory is not None
        assert env.active is not None
        return values.value(kind, width, env.memory.load(address(env), width, env.active))
    return run


def _index(inner: Node, at: Node) -> Expression:
    if inner in (("name", "MEM"), ("name", "LDS")):
        return _load_memory(("index", inner, at), "B", 32)
    where = expression(at)
    if inner[0] == "index" and inner[1] == ("name", "VGPR"):
        if is_lane(inner[2]):
            # A lane's own register named by an encoding field is one of the operands.
            name = "D0" if at in (("type", ("name", "VDST"), "U", 32), ("name", "VDST")) else "S0"
            return lambda env: env.names[name]
        lane = expression(inner[2])

        def register(env: Env) -> Value:
            assert env.registers is not None
            return env.registers(lane(env), where(env))
        return register
    if inner in (("name", "SGPR"), ("name", "HW_REGISTERS")):
        return lambda env: env.functions[inner[1]](where(env))
    value = expression(inner)

    def run(env: Env) -> Value:
        found, index = value(env), where(env)
        if isinstance(found, Vector):
            picked = found.elements[0]
            numbers = values.extended(index, 64)
            for i, element in enumerate(found.elements):
                if i:
                    picked = Value(element.kind, element.width,
                                   values.where(numbers == i, element.bits, picked.bits))
            return picked
        return _bits(found, values.extended(index, 64), 1)
    return run


def _bits(found: Value, start: Array, count: int) -> Value:
    if found.bits.dtype == object or count > 64:
        bits = (found.bits.astype(object) >> start.astype(object)) & values.mask(count)
        return values.value("U" if count == 1 else "B", count, bits)
    far = start >= np.uint64(64)
    bits = np.where(far, np.uint64(0), found.bits >> np.where(far, np.uint64(0), start))
    return Value("U" if count == 1 else found.kind if found.kind in "UI" else "B", count, values.array(bits, count))


def _slice(inner: Node, high: Node, low: Node) -> Expression:
    value = expression(inner)
    if is_reversed(("slice", inner, high, low)):
        return lambda env: arithmetic.reversed_bits(value(env))
    limits = limits_of(("slice", inner, high, low))
    return lambda env: _unsigned(_bits(value(env), *limits(env)))


def _unsigned(found: Value) -> Value:
    """Bits of a signed number are not signed."""
    return Value("U", found.width, found.bits) if found.kind == "I" else found


def _part(inner: Node, start: Node, count: Node) -> Expression:
    value, limits = expression(inner), limits_of(("part", inner, start, count))
    return lambda env: _unsigned(_bits(value(env), *limits(env)))


def _cast(kind: str, width: int, node: Node) -> Expression:
    value = expression(node)
    return lambda env: arithmetic.cast(env, value(env), kind, width)


def _concat(nodes: list[Node]) -> Expression:
    parts = [expression(n) for n in nodes]
    return lambda env: values.concatenate([p(env) for p in parts])


def _choose(condition: Node, yes: Node, no: Node) -> Expression:
    test, first, second = expression(condition), expression(yes), expression(no)

    def run(env: Env) -> Value:
        return arithmetic.choose(env, arithmetic.truth(test(env)), first(env), second(env))
    return run


def _unary(op: str, node: Node) -> Expression:
    value = expression(node)
    return lambda env: arithmetic.unary(env, op, value(env))


def _binary(op: str, left: Node, right: Node) -> Expression:
    a, b = expression(left), expression(right)
    if right[0] == "type" and right[1] == ("name", "DENORM"):
        return lambda env: arithmetic.is_denormal(env, a(env), right[3])
    return lambda env: arithmetic.binary(env, op, a(env), b(env))


def _call(name: str, nodes: list[Node]) -> Expression:
    arguments = [expression(n) for n in nodes]
    function = arithmetic.FUNCTIONS.get(name)

    def run(env: Env) -> Any:
        given = [a(env) for a in arguments]
        defined = env.names.get(name)
        if isinstance(defined, Function):
            return _apply(env, defined, given)
        if name in env.functions:
            return env.functions[name](*given)
        if function is None:
            raise NameError(f"the pseudo-code calls {name}, which is not known here")
        return function(env, *given)
    return run


def _apply(env: Env, function: Function, given: list[Value]) -> Value:
    names, dead, returned, active = env.names, env.dead, env.returned, env.active
    env.names = {**names, **dict(zip(function.parameters, given, strict=True))}
    env.dead, env.returned = None, None
    try:
        function.block(env, env.everything())
        assert env.returned is not None
        return env.returned
    finally:
        env.names, env.dead, env.returned, env.active = names, dead, returned, active
