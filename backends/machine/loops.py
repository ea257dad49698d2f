# SPDX-License-Identifier: MIT
"""Loops of a function: basic blocks, dominators, natural loops. Pure.

A block that polls a barrier lies out of line in what nvcc makes: it is entered from a loop and jumps back into it. So
loops come from the flow of control, not from branches to lower addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backends.machine.model import Instruction

_POLL = 24             # instructions; a loop that waits for a barrier and does nothing else is shorter
_GAP = 1024            # bytes; what lies further away was moved out of line
_ENDS = ("EXIT", "RET", "s_endpgm", "s_setpc_b64", "KILL", "BRX", "JMX", "BRXU", "JMXU", "BPT")
_WORK = ("tensor", "fp32", "fp16", "fp64", "special", "conversion", "tma", "buffer", "global", "shared")


@dataclass(frozen=True)
class Loop:
    """One natural loop. ``start`` and ``end`` are addresses of the first and behind the last instruction in line.

    ``code`` holds the instructions by address, then those that lie out of line. ``depth`` is 1 for a loop in no other;
    ``innermost`` loops contain no loop but such that poll a barrier.
    """

    start: int
    end: int
    depth: int
    innermost: bool
    polls: bool                # waits for a barrier and does nothing else
    code: tuple[Instruction, ...]


@dataclass
class _Block:
    first: int                 # indices of instructions
    last: int
    successors: list[int]


def loops(code: Sequence[Instruction]) -> list[Loop]:
    """All loops of a function by address."""
    blocks = _blocks(code)
    bodies = _natural(blocks)
    found = []
    for head, body in sorted(bodies.items()):
        inside = [other for other, inner in bodies.items() if other != head and inner < body]
        around = sum(1 for other, outer in bodies.items() if other != head and body < outer)
        instructions = _instructions(code, blocks, body)
        busy = [other for other in inside if not _polls(_instructions(code, blocks, bodies[other]))]
        inline = _in_line(instructions)
        aside = [each for each in instructions if not inline[0].address <= each.address <= inline[-1].address]
        busy = [other for other in inside if not _polls(_instructions(code, blocks, bodies[other]))]
        found.append(Loop(
            inline[0].address, inline[-1].address + _size(code, inline[-1]), around + 1, not busy,
            _polls(instructions), (*inline, *aside)))
    return sorted(found, key=lambda loop: (loop.start, -loop.end))


def _in_line(code: Sequence[Instruction]) -> list[Instruction]:
    """The largest run of a loop's instructions with no wide gap in it."""
    runs: list[list[Instruction]] = []
    for instruction in code:
        if runs and instruction.address - runs[-1][-1].address <= _GAP:
            runs[-1].append(instruction)
        else:
            runs.append([instruction])
    return max(runs, key=len)


def _size(code: Sequence[Instruction], instruction: Instruction) -> int:
    """Bytes up to the next instruction of the function; of the last one four."""
    following = (each.address for each in code if each.address > instruction.address)
    return min(following, default=instruction.address + 4) - instruction.address


def innermost(code: Sequence[Instruction]) -> list[Loop]:
    """The innermost loops that do work."""
    return [loop for loop in loops(code) if loop.innermost and not loop.polls]


def _polls(code: Sequence[Instruction]) -> bool:
    return (len(code) <= _POLL and any(i.unit == "wait" for i in code) and
            not any(i.unit in _WORK for i in code))


def _instructions(
    code: Sequence[Instruction], blocks: Sequence[_Block], body: Iterable[int]
) -> tuple[Instruction, ...]:
    return tuple(code[at] for block in sorted(body) for at in range(blocks[block].first, blocks[block].last + 1))


def _blocks(code: Sequence[Instruction]) -> list[_Block]:
    index = {instruction.address: at for at, instruction in enumerate(code)}
    joins = _joins(code)
    starts = {0}
    for at, instruction in enumerate(code):
        if instruction.target is not None and instruction.base != "BSSY":
            starts.add(index.get(instruction.target, 0))
        if instruction.target is not None or at in joins or instruction.base in _ENDS:
            starts.add(at + 1)
    starts |= {index[target] for target in joins.values() if target in index}
    firsts = sorted(at for at in starts if at < len(code))
    number = {at: block for block, at in enumerate(firsts)}
    blocks = []
    for block, first in enumerate(firsts):
        last = firsts[block + 1] - 1 if block + 1 < len(firsts) else len(code) - 1
        end = code[last]
        to = [index[end.target]] if end.target is not None and end.base != "BSSY" and end.target in index else []
        if last in joins and joins[last] in index:
            to.append(index[joins[last]])
        elif _falls_through(end) and last + 1 < len(code):
            to.append(last + 1)
        blocks.append(_Block(first, last, sorted({number[at] for at in to})))
    return blocks


def _falls_through(end: Instruction) -> bool:
    if end.base in _ENDS:
        return end.guarded
    if end.base in ("BRA", "JMP", "s_branch"):
        # BRA.U UP0, label and BRA.DIV UR4, label are conditional without a guard
        return end.guarded or end.opcode.startswith(("BRA.U", "BRA.DIV", "BRA.CONV"))
    return True


def _joins(code: Sequence[Instruction]) -> dict[int, int]:
    """Where each BSYNC goes on: the target of the last BSSY before it on the same barrier register."""
    targets: dict[str, int] = {}
    found = {}
    for at, instruction in enumerate(code):
        if instruction.base in ("BSSY", "BSYNC"):
            register = instruction.text.partition(instruction.opcode)[2].strip().partition(",")[0].strip()
            if instruction.base == "BSSY" and instruction.target is not None:
                targets[register] = instruction.target
            elif instruction.base == "BSYNC" and register in targets:
                found[at] = targets[register]
    return found


def _natural(blocks: Sequence[_Block]) -> Mapping[int, frozenset[int]]:
    """Blocks of every natural loop by its head; loops with one head count as one."""
    order = _postorder(blocks)
    rank = {block: at for at, block in enumerate(order)}
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for successor in blocks[block].successors:
            before[successor].append(block)
    idom = _dominators(order, rank, before)
    bodies: dict[int, set[int]] = {}
    for block in order:
        for head in blocks[block].successors:
            if _dominates(idom, head, block):
                body = bodies.setdefault(head, {head})
                waiting = [block]
                while waiting:
                    at = waiting.pop()
                    if at not in body:
                        body.add(at)
                        waiting += before[at]
    return {head: frozenset(body) for head, body in bodies.items()}


def _postorder(blocks: Sequence[_Block]) -> list[int]:
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(blocks[0].successors))] if blocks else []
    while stack:
        block, rest = stack[-1]
        for successor in rest:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(blocks[successor].successors)))
                break
        else:
            order.append(block)
            stack.pop()
    return order


def _dominators(order: Sequence[int], rank: Mapping[int, int], before: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Immediate dominators by Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm"."""
    idom = {0: 0}
    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            known = [other for other in before[block] if other in idom]
            if block == 0 or not known:
                continue
            new = known[0]
            for other in known[1:]:
                while new != other:
                    while rank[new] < rank[other]:
                        new = idom[new]
                    while rank[other] < rank[new]:
                        other = idom[other]
            if idom.get(block) != new:
                idom[block] = new
                changed = True
    return idom


def _dominates(idom: Mapping[int, int], head: int, block: int) -> bool:
    while block not in (head, 0):
        block = idom[block]
    return block == head
