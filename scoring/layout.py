# SPDX-License-Identifier: MIT
"""How one call's tensors lie in an arena: inputs, outputs, and guard bands of random bytes around every one of them.

Pure placement first (``plan``), then ``SlotMemory``: the judge's view of an arena, which fills inputs, poisons outputs
and afterwards says what was written where it should not have been.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from scoring.arena import ALIGNMENT, Arena, TensorSpec, extent

GUARD = 4096            # bytes of guard before the first and after every tensor
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}     # by size, for bitwise comparison


@dataclass(frozen=True)
class Update:
    """A part of an input that a call rewrites in place, and the output whose value it must have afterwards."""

    tensor: str
    part: tuple[slice, ...]
    output: str


@dataclass(frozen=True)
class Plan:
    """Placement of all tensors of a slot, and how the worker turns them into arguments and ``data``."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    template: Any                                    # see scoring.contestants.build
    arguments: tuple[tuple[str, Any], ...] = ()      # (kind, value) in the order of the C prototype
    nbytes: int = 0
    fresh: tuple[str, ...] = ()                      # inputs that every link of a chain draws anew
    updated: tuple[Update, ...] = ()                 # parts of inputs that a call rewrites

    @property
    def sealed(self) -> tuple[int, int]:
        """Where the inputs begin and end, in bytes: they lie before all outputs."""
        if not self.inputs:
            return 0, 0
        return self.inputs[0].offset, max(spec.offset + spec.nbytes for spec in self.inputs)

    def message(self) -> dict[str, Any]:
        """The JSON part of a ``slot`` request."""
        tensors = [
            {"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "strides": list(t.strides), "offset": t.offset}
            for t in (*self.inputs, *self.outputs)
        ]
        return {
            "tensors": tensors,
            "outputs": [t.name for t in self.outputs],
            "arguments": [list(argument) for argument in self.arguments],
            "data": self.template,
            "sealed": list(self.sealed),
        }


class UnsupportedData(Exception):
    """``generate_input`` returned something that cannot be handed to another process as plain tensors and values."""


def describe(data: Any, outputs: Mapping[int, str] | None = None) -> tuple[Any, dict[str, torch.Tensor]]:
    """Template and named tensors of nested ``data``; position i of a top-level tuple becomes output ``outputs[i]``.

    Raises ``UnsupportedData`` for anything but tensors, plain values, tuples, lists and dicts with string keys.
    """
    tensors: dict[str, torch.Tensor] = {}

    def walk(value: Any, where: str) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized or value.is_meta:
                raise UnsupportedData(f"{where} is a {value.layout} tensor on {value.device}; it must be a plain one")
            name = where if where not in tensors else f"{where}#{len(tensors)}"     # a key may have dots in it
            tensors[name] = value.detach() if value.requires_grad else value
            return ["tensor", name]
        if isinstance(value, float) and not math.isfinite(value):
            return ["float", repr(value)]
        if value is None or isinstance(value, bool | int | float | str):
            return ["value", value]
        if isinstance(value, tuple | list):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return [kind, [walk(item, f"{where}.{index}") for index, item in enumerate(value)]]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return ["dict", {key: walk(item, f"{where}.{key}") for key, item in value.items()}]
        raise UnsupportedData(f"{where} is {type(value).__name__}; only tensors and plain values can be judged")

    if outputs and isinstance(data, tuple):
        items = [
            ["tensor", outputs[index]] if index in outputs else walk(item, f"data.{index}")
            for index, item in enumerate(data)
        ]
        return ["tuple", items], tensors
    return walk(data, "data"), tensors


def plan(
    tensors: Mapping[str, torch.Tensor],
    outputs: Mapping[str, tuple[Sequence[int], str]],
    template: Any,
    arguments: Sequence[tuple[str, Any]] = (),
    fresh: Sequence[str] = (),
    updated: Sequence[Update] = (),
) -> Plan:
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
    return Plan(
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

    def __init__(self, arena: Arena, layout: Plan, generator: torch.Generator):
        self.arena = arena
        self.layout = layout
        self.generator = generator
        self.private: dict[str, torch.Tensor] = {}
        self._poison: torch.Tensor | None = None     # state of the generator before the noise; None: all-ones bytes
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
        self._poison = None if nan else self.generator.get_state()
        for spec in self.layout.outputs:
            raw = self.arena.block[spec.offset : spec.offset + spec.nbytes]
            raw.fill_(0xFF) if nan else raw.copy_(self._noise(spec.nbytes))

    def poisoned(self) -> list[torch.Tensor]:
        """What the newest ``poison`` put into the outputs, made again: what a kernel never wrote still holds it."""
        noise = None
        if self._poison is not None:
            noise = torch.Generator(device=self.arena.block.device)
            noise.set_state(self._poison)
        again = []
        for spec in self.layout.outputs:
            raw = self._noise(spec.nbytes, noise) if noise else torch.full(
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

    def _noise(self, count: int, generator: torch.Generator | None = None) -> torch.Tensor:
        """``count`` random bytes, drawn eight at a time: a host's generator takes as long for one as for eight."""
        words = torch.empty(-(-count // 8), dtype=torch.int64, device=self.arena.block.device)
        return words.random_(-(1 << 63), None, generator=generator or self.generator).view(torch.uint8)[:count]


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


def _gaps(layout: Plan, nbytes: int) -> list[tuple[int, int]]:
    """Byte ranges that belong to no tensor."""
    spans, position = [], 0
    for spec in sorted((*layout.inputs, *layout.outputs), key=lambda t: t.offset):
        spans.append((position, spec.offset))
        position = spec.offset + spec.nbytes
    spans.append((position, nbytes))
    return [(begin, end) for begin, end in spans if end > begin]
