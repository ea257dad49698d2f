# SPDX-License-Identifier: MIT
"""Parser of the pseudo-code that AMD's ISA manuals give for each instruction.

The text comes from the ``tinygrad`` wheel at run time; none of it is kept here. A program becomes nested tuples whose
first element names the node, so that the compiler (``pcode.py``) is one function per node.

Statements: ``("assign", [targets], op, value)``, ``("if", [(condition, block)], else_block)``,
``("for", name, first, last, block)``, ``("declare", name, kind, width, count)``, ``("return", value)``, ``("break",)``,
``("expression", value)``, ``("lambda", name, parameters, block)``.
Expressions: ``("number", text)``, ``("name", text)``, ``("type", value, kind, width)``, ``("index", value, index)``,
``("slice", value, high, low)``, ``("part", value, start, width)``, ``("cast", kind, width, value)``,
``("call", name, arguments)``, ``("unary", op, value)``, ``("binary", op, left, right)``,
``("choose", condition, yes, no)``, ``("concat", values)``.
"""

from __future__ import annotations

import re
from typing import Any

Node = tuple[Any, ...]

_TOKEN = re.compile(r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<text>"[^"]*")
  | (?P<cast>\d+'(?:BF|[UIFB])(?=\())
  | (?P<kind>\d+'(?:BF|[UIFB]))
  | (?P<number>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:U|F)?
             | 0x[0-9a-fA-F]+(?:ULL|LL|U)?
             | \d+\.\d+F?
             | \d+(?:ULL|LL|U)?)
  | (?P<type>\.(?:bf|fp|[uifb])\d+\b)
  | (?P<name>(?:WAVE_MODE|WAVE_STATUS|INST)\.[A-Z_]+|[A-Za-z_]\w*)
  | (?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+:|\+=|-=|[-+*/%&|^~!<>=?:;,(){}\[\]])
""", re.VERBOSE)

# Loosest first. The manual follows C, except that a test for equality of flags binds as loosely as in C too.
_LEVELS = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"],
           ["*", "/", "%"]]
_STOPS = {"endif", "endfor", "else", "elsif"}


class PcodeError(ValueError):
    """The text is not pseudo-code that this parser knows."""


def tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise PcodeError(f"no token at {text[at:at + 20]!r}")
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match.group()))
        at = match.end()
    return found


def parse(text: str) -> list[Node]:
    """The statements of one instruction."""
    parser = _Parser(tokens(text))
    block = parser.block()
    if parser.at != len(parser.tokens):
        raise PcodeError(f"left over: {parser.tokens[parser.at:parser.at + 4]}")
    return block


def _type(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"\.(bf|fp|[uifb])(\d+)", text)
    assert match
    kind, width = match.group(1), int(match.group(2))
    if (kind, width) == ("bf", 8):
        return "BF8", 8
    return {"bf": "BF", "fp": "FP8"}.get(kind, kind.upper()), width


class _Parser:
    def __init__(self, found: list[tuple[str, str]]) -> None:
        self.tokens, self.at = found, 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end"

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][1]

    def accept(self, text: str) -> bool:
        if self.peek() == text and self.kind() != "text":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise PcodeError(f"expected {text!r}, found {self.tokens[self.at:self.at + 4]}")

    def block(self) -> list[Node]:
        statements: list[Node] = []
        while self.at < len(self.tokens) and self.peek() not in _STOPS and self.peek() != ")":
            if not self.accept(";"):
                statements.append(self.statement())
        return statements

    def statement(self) -> Node:
        if self.accept("if"):
            branches = [(self.expression(), self._then())]
            while self.accept("elsif"):
                branches.append((self.expression(), self._then()))
            other = self.block() if self.accept("else") else []
            self.expect("endif")
            return ("if", branches, other)
        if self.accept("for"):
            name = self.next()
            self.expect("in")
            first = self.expression()
            self.expect(":")
            last = self.expression()
            self.expect("do")
            block = self.block()
            self.expect("endfor")
            return ("for", name, first, last, block)
        if self.accept("declare"):
            return self._declare()
        if self.accept("return"):
            return ("return", self.expression())
        if self.accept("break"):
            return ("break",)
        if self.kind() == "text":
            return ("expression", ("number", self.next() and "0"))
        return self._assignment()

    def _then(self) -> list[Node]:
        self.expect("then")
        return self.block()

    def _declare(self) -> Node:
        name = self.next()
        self.expect(":")
        width, kind = self.next().split("'")
        count = 0
        if self.accept("["):
            count = int(self.next())
            self.expect("]")
        return ("declare", name, kind, int(width), count)

    def _assignment(self) -> Node:
        left = self.expression()
        if self.peek() in ("+=", "-="):
            op = self.next()[0]
            return ("assign", [left], "=", ("binary", op, left, self.expression()))
        targets = [left]
        value: Node | None = None
        while self.accept("="):
            if self.accept("lambda"):
                return self._lambda(left)
            value = self.expression()
            targets.append(value)
        if value is None:
            return ("expression", left)
        return ("assign", targets[:-1], "=", value)

    def _lambda(self, left: Node) -> Node:
        self.expect("(")
        names = [self.next()]
        while self.accept(","):
            names.append(self.next())
        self.expect(")")
        self.expect("(")
        block = self.block()
        self.expect(")")
        if len(block) == 1 and block[0][0] == "expression":
            block = [("return", block[0][1])]
        return ("lambda", left[1], names, block)

    def expression(self) -> Node:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        yes = self.expression()
        self.expect(":")
        return ("choose", condition, yes, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            op = self.next()
            left = ("binary", op, left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        if self.peek() in ("-", "!", "~", "+"):
            return ("unary", self.next(), self.unary())
        left = self.postfix()
        if self.accept("**"):
            return ("binary", "**", left, self.unary())
        return left

    def postfix(self) -> Node:
        node = self.atom()
        while True:
            if self.kind() == "type":
                node = ("type", node, *_type(self.next()))
            elif self.accept("["):
                first = self.expression()
                if self.accept(":"):
                    node = ("slice", node, first, self.expression())
                elif self.accept("+:"):
                    node = ("part", node, first, self.expression())
                else:
                    node = ("index", node, first)
                self.expect("]")
            else:
                return node

    def atom(self) -> Node:
        kind = self.kind()
        if kind == "cast":
            width, name = self.next().split("'")
            self.expect("(")
            value = self.expression()
            self.expect(")")
            return ("cast", name, int(width), value)
        if kind == "number":
            return ("number", self.next())
        if self.accept("("):
            value = self.expression()
            self.expect(")")
            return value
        if self.accept("{"):
            values = [self.expression()]
            while self.accept(","):
                values.append(self.expression())
            self.expect("}")
            return ("concat", values)
        if kind != "name":
            raise PcodeError(f"expected a value, found {self.tokens[self.at:self.at + 4]}")
        name = self.next()
        if self.accept("("):
            arguments = [] if self.peek() == ")" else [self.expression()]
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
            return ("call", name, arguments)
        return ("name", name)
