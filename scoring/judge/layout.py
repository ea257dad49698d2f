# SPDX-License-Identifier: MIT
"""How one call's tensors lie in an arena: inputs, outputs, and guard bands of random bytes around every one of them.

``lay_out`` is pure placement. ``SlotMemory`` is the judge's view of an arena: it fills inputs, poisons outputs, and
tells afterwards what was written outside the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from scoring.ipc.arena import ALIGNMENT, Arena, TensorSpec, dtype_of, extent
from scoring.ipc.requests import ShareSlot
from scoring.ipc.template import Answer
from scoring.judge.seeds import Noise

GUARD = 4096            # bytes of guard before the first and after every tensor
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}     # by size, for bitwise comparison


@dataclass(frozen=True)
class Update:
    """A part of an input that a call rewrites in place, and the output whose value it must have afterwards."""

    tensor: str
    part: tuple[slice, ...]
    output: str


@dataclass(frozen=True)
class SlotLayout:
    """Placement of all tensors of a slot, and how the worker turns them into arguments and ``data``."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    template: Any                                    # see ipc.template.describe_data
    arguments: tuple[tuple[str, Any], ...] = ()      # (kind, value) in the order of the C prototype
    nbytes: int = 0
    fresh: tuple[str, ...] = ()                      # inputs that every link of a chain draws anew
    updated: tuple[Update, ...] = ()                 # parts of inputs that a call rewrites
    answer: Answer | None = None                     # of a contest's problem: what a call returns, with the outputs
    ranks: int = 0                                   # of a distributed task
    kind: str = ""                                   # of a contest's problem: shapes and plain values of its data

    @property
    def sealed(self) -> tuple[int, int]:
        """Where the inputs begin and end, in bytes: they lie before all outputs."""
        if not self.inputs:
            return 0, 0
        return self.inputs[0].offset, max(spec.offset + spec.nbytes for spec in self.inputs)

    def request(self, slot: str, arena: Mapping[str, Any] | None = None) -> ShareSlot:
        """How the worker hears of a slot laid out like this; ``arena`` where its memory is new."""
        tensors = tuple(
            {"name": t.name, "dtype": t.dtype, "width": dtype_of(t.dtype).itemsize, "shape": t.shape,
             "strides": t.strides, "offset": t.offset}
            for t in (*self.inputs, *self.outputs)
        )
        return ShareSlot(
            slot, tensors, tuple(t.name for t in self.outputs), self.arguments, self.template, self.sealed, arena,
            self.answer.form if self.answer is not None else None, self.ranks)


def lay_out(
    tensors: Mapping[str, torch.Tensor],
    outputs: Mapping[str, tuple[Sequence[int], str]],
    template: Any,
    arguments: Sequence[tuple[str, Any]] = (),
    fresh: Sequence[str] = (),
    updated: Sequence[Update] = (),
) -> SlotLayout:
    """Place input ``tensors`` (their strides kept) and row-major ``outputs`` with guards between all of them."""
    offset = GUARD
    specs: list[TensorSpec] = []

    def place(name: str, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> None:
        nonlocal offset
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        spec = TensorSpec(name, dtype, tuple(shape), tuple(strides), offset)
        specs.append(spec)
        offset += spec.nbytes + GUARD

    for name, tensor in tensors.items():
        dense = extent(tuple(tensor.shape), tensor.stride()) >= tensor.numel()      # not an expanded view
        strides = tensor.stride() if dense else row_major(tensor.shape)
        place(name, str(tensor.dtype).removeprefix("torch."), tensor.shape, strides)
    count = len(specs)
    for name, (shape, dtype) in outputs.items():
        place(name, dtype, shape, row_major(shape))
    return SlotLayout(
        tuple(specs[:count]), tuple(specs[count:]), template, tuple(arguments), offset, tuple(fresh), tuple(updated))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class SlotMemory:
    """The judge's side of one slot. ``inputs`` are private copies; the arena is what the worker can write."""

    def __init__(self, arena: Arena, layout: SlotLayout, noise: Noise):
        self.arena = arena
        self.layout = layout
        self.noise = noise
        self.private: dict[str, torch.Tensor] = {}
        self._poison: list[int] = []     # the number of each output's noise; none: all-ones bytes
        block = arena.block
        self._spans = _gaps(layout, block.numel())
        block.copy_(self._noise(block.numel()))
        self._guards = [block[begin:end].clone() for begin, end in self._spans]

    def fill(self, tensors: Mapping[str, torch.Tensor], seal: Callable[[torch.Tensor], None] | None = None) -> None:
        """Copy fresh inputs in; the tensors passed stay the judge's private truth.

        With ``seal``, which changes the bytes of all inputs in place, they are sealed before they are where the worker
        can read them.
        """
        self.private = dict(tensors)
        if seal is None:
            for spec in self.layout.inputs:
                spec.view(self.arena.block).copy_(tensors[spec.name])
            return
        begin, _end = self.layout.sealed
        region = self.sealed.clone()             # with the guards between the inputs
        for guard, (first, last) in zip(self._guards, self._spans, strict=True):
            if first >= begin and last <= begin + region.numel():
                region[first - begin : last - begin] = guard        # whatever the worker made of them
        for spec in self.layout.inputs:
            replace(spec, offset=spec.offset - begin).view(region).copy_(tensors[spec.name])
        seal(region)
        self.sealed.copy_(region)

    def refill(self) -> None:
        """Noise in place of all inputs, for a contestant that reads none."""
        self.sealed.copy_(self._noise(self.sealed.numel()))

    def poison(self, nan: bool) -> None:
        """Overwrite all outputs: with all-ones bytes (NaN in every float format) or with random bytes."""
        self._poison = [] if nan else [self.noise.next() for _output in self.layout.outputs]
        for index, spec in enumerate(self.layout.outputs):
            raw = self.arena.block[spec.offset : spec.offset + spec.nbytes]
            raw.fill_(0xFF) if nan else raw.copy_(self._noise(spec.nbytes, self._poison[index]))

    def poisoned(self) -> list[torch.Tensor]:
        """What the newest ``poison`` put into the outputs, made again: what a kernel never wrote still holds it."""
        again = []
        for index, spec in enumerate(self.layout.outputs):
            raw = self._noise(spec.nbytes, self._poison[index]) if self._poison else torch.full(
                (spec.nbytes,), 0xFF, dtype=torch.uint8, device=self.arena.block.device)
            again.append(TensorSpec(spec.name, spec.dtype, spec.shape, spec.strides, 0).view(raw))
        return again

    @property
    def sealed(self) -> torch.Tensor:
        """The bytes of all inputs, as the worker sees them."""
        begin, end = self.layout.sealed
        return self.arena.block[begin:end]

    def outputs(self) -> list[torch.Tensor]:
        """Private copies of the outputs."""
        return [spec.view(self.arena.block).clone() for spec in self.layout.outputs]

    def damage(self, inputs: bool = True) -> str:
        """What was written outside the outputs: a sentence, or "" if nothing was.

        ``inputs`` False leaves the inputs out (foreign problems whose data holds the output buffer).
        """
        flags = [(self.arena.block[begin:end] != expected).any()
                 for (begin, end), expected in zip(self._spans, self._guards, strict=True)]
        if inputs:
            flags += [self._changed(spec).any() for spec in self.layout.inputs]
            flags += [self._stale(update) for update in self.layout.updated]
        if not flags or not bool(torch.stack(flags).any()):      # one answer from the device for all questions
            return ""
        for (begin, end), expected in zip(self._spans, self._guards, strict=True):
            actual = self.arena.block[begin:end]
            if not torch.equal(actual, expected):
                changed = (actual != expected).nonzero().flatten() + begin
                first = int(changed[0])
                return f"{changed.numel()} guard bytes overwritten, the first {self._place(first)}"
        if inputs:
            for spec in self.layout.inputs:
                changed = self._changed(spec)
                if bool(changed.any()):
                    truth, actual = self.private[spec.name], spec.view(self.arena.block)
                    return f"input {spec.name} was modified: {_changes(actual, truth, changed)}"
            for update in self.layout.updated:
                if bool(self._stale(update)):
                    return (f"input {update.tensor} was not updated: the part that a call rewrites is not what output"
                            f" {update.output} holds")
        return ""

    def _changed(self, spec: TensorSpec) -> torch.Tensor:
        """Which elements of an input are not what they were (NaN equals itself), but for those a call may rewrite."""
        changed = _bits(spec.view(self.arena.block)) != _bits(self.private[spec.name])
        for update in self.layout.updated:
            if update.tensor == spec.name:
                changed[update.part] = False
        return changed

    def _stale(self, update: Update) -> torch.Tensor:
        """Whether the part of an input that a call rewrites differs from its output."""
        tensor, output = (
            next(spec for spec in specs if spec.name == name).view(self.arena.block)
            for specs, name in ((self.layout.inputs, update.tensor), (self.layout.outputs, update.output)))
        part = tensor[update.part]
        return (_bits(part) != _bits(output.reshape(part.shape))).any()

    def _place(self, offset: int) -> str:
        for spec in (*self.layout.inputs, *self.layout.outputs):
            if spec.offset - GUARD <= offset < spec.offset:
                return f"{spec.offset - offset} bytes before {spec.name}"
            if spec.offset + spec.nbytes <= offset < spec.offset + spec.nbytes + GUARD:
                return f"{offset - spec.offset - spec.nbytes} bytes after the end of {spec.name}"
        return f"at byte {offset}"

    def _noise(self, count: int, number: int | None = None) -> torch.Tensor:
        """``count`` random bytes: new ones, or those of a ``number``."""
        return self.noise.fill(count, self.arena.block.device, number or self.noise.next())


def equal_bits(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """Whether outputs of the same shapes and dtypes are the same bit by bit."""
    return all(torch.equal(_bits(x), _bits(y)) for x, y in zip(a, b, strict=True))


def _bits(x: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, so that NaN equals itself; complex numbers get one more dimension of two."""
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj())
    return x.view(_INTEGERS[x.element_size()])


def _changes(actual: torch.Tensor, truth: torch.Tensor, differ: torch.Tensor) -> str:
    """How many elements ``differ``, and which are the first and the last of them, with what they hold and held."""
    if actual.is_complex():
        differ = differ.any(-1)
    places = differ.nonzero()

    def told(place: torch.Tensor) -> str:
        cell = tuple(place.tolist())
        was, now = (f"{float(x[cell].real if x.is_complex() else x[cell]):.7g}" for x in (truth, actual))
        return f"{list(cell)} (was {was}, is {now})"

    count = f"{len(places)} of {actual.numel()} elements, the first {told(places[0])}"
    return count if len(places) == 1 else f"{count}, the last {list(places[-1].tolist())}"


def _gaps(layout: SlotLayout, nbytes: int) -> list[tuple[int, int]]:
    """Byte ranges that belong to no tensor."""
    spans, position = [], 0
    for spec in sorted((*layout.inputs, *layout.outputs), key=lambda t: t.offset):
        spans.append((position, spec.offset))
        position = spec.offset + spec.nbytes
    spans.append((position, nbytes))
    return [(begin, end) for begin, end in spans if end > begin]
