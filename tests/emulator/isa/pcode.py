# SPDX-License-Identifier: MIT
"""Compiler of the manual's pseudo-code (``pcode_parser``) to closures that work on all lanes at once.

Lanes that take different branches are told apart by masks, as on the machine itself. A program is compiled once; each
run gets an ``Env`` that holds the operands before and the results after.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tests.emulator.isa import arithmetic, values
from tests.emulator.isa.pcode_env import Env, Function, Mask, Memory
from tests.emulator.isa.pcode_parser import Node, parse
from tests.emulator.isa.pcode_read import expression
from tests.emulator.isa.pcode_store import store_to
from tests.emulator.isa.values import Value, Vector, constant

Statement = Callable[[Env, Mask], None]
__all__ = ["Env", "Memory", "Program", "compiled"]


@dataclass
class Program:
    text: str
    block: Statement

    def run(self, env: Env, active: Mask | None = None) -> None:
        """``active``: the lanes that take part; the results of others are left alone."""
        self.block(env, env.everything() if active is None else active)


@functools.cache
def compiled(text: str) -> Program:
    return Program(text, _block(parse(text)))


def _live(env: Env, mask: Mask) -> Mask:
    return mask if env.dead is None else mask & ~env.dead


def _block(statements: list[Node]) -> Statement:
    steps = [_statement(s) for s in statements]

    def run(env: Env, mask: Mask) -> None:
        for step in steps:
            live = _live(env, mask)
            if env.dead is not None and not live.any():
                return
            env.active = live
            step(env, live)
    return run


def _statement(node: Node) -> Statement:
    makers: dict[str, Callable[..., Statement]] = {
        "assign": _assign, "if": _if, "for": _for, "declare": _declare, "return": _return, "break": _break,
        "lambda": _lambda, "expression": _evaluate}
    return makers[node[0]](*node[1:])


def _evaluate(node: Node) -> Statement:
    value = expression(node)

    def run(env: Env, mask: Mask) -> None:
        value(env)
    return run


def _lambda(name: str, parameters: list[str], block: list[Node]) -> Statement:
    function = Function(parameters, _block(block))

    def run(env: Env, mask: Mask) -> None:
        env.names[name] = function
    return run


def _declare(name: str, kind: str, width: int, count: int) -> Statement:
    def run(env: Env, mask: Mask) -> None:
        if name not in env.names:
            zero = constant(kind, width, 0)
            env.names[name] = Vector([zero] * count) if count else zero
    return run


def _break() -> Statement:
    def run(env: Env, mask: Mask) -> None:
        env.dead = mask if env.dead is None else env.dead | mask
    return run


def _return(node: Node) -> Statement:
    value = expression(node)

    def run(env: Env, mask: Mask) -> None:
        found = value(env)
        if env.returned is not None:
            width = max(found.width, env.returned.width)
            found = Value(found.kind, width, values.where(mask, values.extended(found, width),
                                                          values.extended(env.returned, width)))
        env.returned = found
        env.dead = mask if env.dead is None else env.dead | mask
    return run


def _if(branches: list[tuple[Node, list[Node]]], other: list[Node]) -> Statement:
    steps = [(expression(condition), _block(block)) for condition, block in branches]
    last = _block(other)

    def run(env: Env, mask: Mask) -> None:
        rest = mask
        for condition, block in steps:
            env.active = rest
            true = arithmetic.truth(condition(env))
            taken = rest & true
            if taken.any():
                block(env, taken)
            rest = rest & ~true
            if not rest.any():
                return
        last(env, rest)
    return run


def _for(name: str, first: Node, final: Node, block: list[Node]) -> Statement:
    low, high, body = expression(first), expression(final), _block(block)

    def run(env: Env, mask: Mask) -> None:
        outer = env.dead
        start, stop = low(env), values.scalar(high(env))
        for i in range(values.scalar(start), stop + 1):
            env.names[name] = constant(start.kind, 32, i)
            live = _live(env, mask)
            if not live.any():
                break
            body(env, live)
        env.dead = outer
    return run


def _assign(targets: list[Node], op: str, node: Node) -> Statement:
    value = expression(node)
    stores = [store_to(t) for t in reversed(targets)]

    def run(env: Env, mask: Mask) -> None:
        found = value(env)
        for store in stores:
            store(env, mask, found)
    return run
