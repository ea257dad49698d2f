# SPDX-License-Identifier: MIT
"""What runs beside the tensor cores in one loop: products, waits, exponentials and barriers in order. Pure.

A product is *under way* from its issue to the wait that covers it (wgmma, whose groups are counted), or to the first
instruction that touches its result (mma.sync, MFMA). An exponential issued meanwhile costs no time of its own. The
loop is walked twice, so that a product issued at its end may be waited for at the beginning of the next turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from backends.machine import units
from backends.machine.model import Instruction

_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")
_REGISTER = re.compile(r"\b([avR])(?:\[(\d+):(\d+)\]|(\d+))(?!\w)")
_SHAPE = re.compile(r"64x(\d+)x\d+")
_ORDER = 16            # events of a line above which products and exponentials that alternate are told as one


@dataclass(frozen=True)
class Event:
    """A run of equal things. ``kind``: product, exponential, wait, barrier, or mixed (products among the others).

    ``count`` products and ``exponentials``, of a mixed event with ``waits`` for loads among them; ``limit`` groups may
    stay under way behind a wait for wgmma.
    """

    kind: str
    count: int
    opcode: str = ""
    exponentials: int = 0
    limit: int | None = None
    waits: int = 0


@dataclass(frozen=True)
class Overlap:
    """``beside`` of the loop's ``exponentials`` stand where a product is under way; ``products`` in all.

    ``waits`` lists for every wait of wgmma how many groups it may leave and how many exponentials stand between the
    issue of what it waits for and itself.
    """

    events: tuple[Event, ...]
    products: int
    exponentials: int
    beside: int
    waits: tuple[tuple[int, int], ...] = ()


def overlap(code: Sequence[Instruction]) -> Overlap | None:
    """The overlap view of a loop's instructions in line; None where the loop has no products."""
    products = [instruction for instruction in code if instruction.unit == "tensor"]
    if not products:
        return None
    exponentials = [instruction for instruction in code if units.is_exponential(instruction.opcode)]
    grouped = any("GMMA" in product.base for product in products)
    beside, waits = _groups(code) if grouped else (_results(code), ())
    return Overlap(tuple(_events(code)), len(products), len(exponentials), beside, waits)


def _groups(code: Sequence[Instruction]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """By wgmma's groups: (exponentials beside one, (limit, exponentials since the issue) of every wait)."""
    pending: list[int] = []            # exponentials since the issue of each group, oldest first
    open_group = False
    beside, waits = 0, []
    for turn in range(2):
        for instruction in code:
            if "GMMA" in instruction.base:
                if not open_group:
                    pending.append(0)
                open_group = "gsb0" not in instruction.text
            elif match := _WAIT.search(instruction.text):
                limit = int(match[1], 16)
                done = pending[: len(pending) - limit]
                if turn:
                    waits.append((limit, max(done, default=0)))
                pending = pending[len(done):]
                open_group = open_group and bool(pending)
            elif units.is_exponential(instruction.opcode):
                beside += bool(turn and pending)
                pending = [count + 1 for count in pending]
    return beside, tuple(waits)


def _results(code: Sequence[Instruction]) -> int:
    """By registers: exponentials issued while the result of some product has not been touched."""
    waiting: list[set[tuple[str, int]]] = []
    beside = 0
    for turn in range(2):
        for instruction in code:
            if instruction.unit == "tensor":
                result = set(_first(instruction.text))       # adding to a result that is under way is no use of it
                waiting = [*(other for other in waiting if other.isdisjoint(result)), result]
            elif waiting:
                touched = _registers(instruction.text)
                waiting = [result for result in waiting if result.isdisjoint(touched)]
            if turn and waiting and units.is_exponential(instruction.opcode):
                beside += 1
    return beside


def _first(text: str) -> Iterator[tuple[str, int]]:
    """Registers of the first operand; four of an mma.sync, whose text names the first one alone."""
    match = _REGISTER.search(text)
    if match is None:
        return
    first = int(match[2] or match[4])
    last = int(match[3]) if match[3] else first + (3 if match[1] == "R" else 0)
    yield from ((match[1], number) for number in range(first, last + 1))


def _registers(text: str) -> set[tuple[str, int]]:
    return {(match[1], number) for match in _REGISTER.finditer(text)
            for number in range(int(match[2] or match[4]), int(match[3] or match[4]) + 1)}


def _events(code: Sequence[Instruction]) -> list[Event]:
    """In order; where they are many, what alternates is told as one: first without, then with waits for loads."""
    events = _merged(_plain(code))
    for over_waits in (False, True):
        if len(events) > _ORDER:
            events = _merged(_folded(events, over_waits))
    return events


def _plain(code: Sequence[Instruction]) -> Iterator[Event]:
    for instruction in code:
        if instruction.unit == "tensor":
            yield Event("product", 1, instruction.opcode)
        elif units.is_exponential(instruction.opcode):
            yield Event("exponential", 0, instruction.opcode, 1)
        elif match := _WAIT.search(instruction.text):
            yield Event("wait", 0, "wgmma", limit=int(match[1], 16))
        elif instruction.unit == "wait" and instruction.base in ("SYNCS", "s_waitcnt", "LDGDEPBAR", "DEPBAR"):
            if instruction.base != "LDGDEPBAR":
                yield Event("wait", 0, _waited(instruction))
        elif instruction.unit == "barrier" and instruction.base in ("BAR", "s_barrier", "UCGABAR_WAIT"):
            yield Event("barrier", 0, instruction.base)


def _waited(instruction: Instruction) -> str:
    if instruction.base == "s_waitcnt":
        return instruction.text.partition(" ")[2].strip()
    return "mbarrier" if instruction.base == "SYNCS" else "copies"


def _merged(events: Iterable[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if last and last.kind == event.kind and last.limit == event.limit and (
                event.kind == "mixed" or last.opcode == event.opcode):
            found[-1] = replace(last, count=last.count + event.count, waits=last.waits + event.waits,
                                exponentials=last.exponentials + event.exponentials)
        else:
            found.append(event)
    return found


def _folded(events: Sequence[Event], over_waits: bool) -> Iterator[Event]:
    """What alternates with products, as one event each: exponentials and, with ``over_waits``, waits for loads."""
    def folds(event: Event) -> bool:
        if event.kind == "wait":
            return over_waits and event.limit is None and event.opcode != "mbarrier"
        return event.kind in ("product", "exponential", "mixed")

    run: list[Event] = []
    for event in [*events, Event("end", 0)]:
        if folds(event):
            run.append(event)
            continue
        opcode = next((each.opcode for each in run if each.count), "")
        if len(run) > 2 and opcode and len({each.kind for each in run}) > 1:
            yield Event("mixed", sum(each.count for each in run), opcode, sum(each.exponentials for each in run),
                        waits=sum(each.kind == "wait" or each.waits for each in run))
        else:
            yield from run
        run = []
        if event.kind != "end":
            yield event


def line(view: Overlap) -> str:
    """The events on one line: ``8 HGMMA | wait: wgmma ≤ 1 | 112 EX2 | wait: wgmma ≤ 0 | …``."""
    return " | ".join(_repeated([_told(event) for event in view.events]))


def _repeated(words: Sequence[str]) -> Iterator[str]:
    """A pair that comes three times or more in a row, as ``5 × (1 HGMMA n8 | wait wgmma ≤ 0)``."""
    at = 0
    while at < len(words):
        pair, count = words[at : at + 2], 1
        while words[at + 2 * count : at + 2 * count + 2] == pair:
            count += 1
        if count >= 3 and len(pair) == 2:
            yield f"{count} × ({' | '.join(pair)})"
            at += 2 * count
        else:
            yield words[at]
            at += 1


def _told(event: Event) -> str:
    match event.kind:
        case "product":
            return f"{event.count} {_short(event.opcode)}"
        case "exponential":
            return f"{event.exponentials} {_short(event.opcode)}"
        case "mixed":
            among = [f"{number} {what}" for number, what in (
                (event.exponentials, "exponentials"), (event.waits, "waits for loads")) if number]
            return f"{event.count} {_short(event.opcode)} among {' and '.join(among)}"
        case "wait":
            return f"wait wgmma ≤ {event.limit}" if event.limit is not None else f"wait {event.opcode}"
    return event.opcode


def _short(opcode: str) -> str:
    """``HGMMA n64`` of ``HGMMA.64x64x16.F32.BF16``, ``MUFU.EX2``, and gfx9's mnemonics as they are."""
    shape = _SHAPE.search(opcode)
    base = opcode.partition(".")[0]
    return f"{base} n{shape[1]}" if shape else "MUFU.EX2" if base == "MUFU" else base


def summary(view: Overlap) -> str:
    """One sentence: how many exponentials stand beside products, and between issue and wait."""
    if not view.exponentials:
        return f"{view.products} products, no exponentials"
    text = f"{view.beside} of {view.exponentials} exponentials stand where a product is under way"
    if view.waits:
        text += "; between issue and wait: " + ", ".join(
            f"{count} (≤ {limit} {'group stays' if limit == 1 else 'groups stay'})" for limit, count in view.waits)
    return text
