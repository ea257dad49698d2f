# SPDX-License-Identifier: MIT
"""What a wrong output looks like beside the right one: scaled, shifted, transposed, permuted, rounded, never written.

Knows nothing of problems: an ``Output`` is what came out and what should have. Every statement is tried on a sample of
the wrong elements and made only if nearly all of them (``FIT``) obey it within the bound the right answer has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

FIT = 0.98              # share of the wrong elements a statement has to explain
FEWEST = 8              # wrong elements below which anything fits
SAMPLE = 2048           # wrong elements a statement is tried on
_SIDE = 64              # rows and columns of a sample of whole rows
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FACTORS = {
    -1.0: "the sign is flipped", 2.0: "doubled", 0.5: "halved", 4.0: "e4m3fn codes made of e4m3fnuz ones are, for one",
    0.25: "e4m3fnuz codes read as e4m3fn are, for one", 1 / math.log(2): "log2(e): base 2 in place of e",
    math.log(2): "ln 2: base e in place of 2"}


@dataclass(frozen=True)
class Output:
    """An output beside what it should be. ``got``, ``values``, ``bound`` and ``wrong`` have one shape."""

    name: str
    got: Tensor
    values: Tensor
    bound: Tensor
    wrong: Tensor
    count: int                       # of wrong elements
    axes: tuple[str, ...] = ()
    grid: bool = True                # neighbours here are neighbours in the output: nothing was sampled

    @cached_property
    def positions(self) -> Tensor:
        """Flat positions of up to ``SAMPLE`` wrong elements, evenly or at random over all of them, sorted."""
        flat = self.wrong.flatten()
        if self.count > 1 << 18:
            rng = torch.Generator(device=flat.device).manual_seed(1)
            drawn = torch.randint(0, len(flat), (1 << 18,), generator=rng, device=flat.device)
            found = drawn[flat[drawn]]
            if len(found) >= SAMPLE:
                return found[:SAMPLE].sort().values
        found = flat.nonzero().squeeze(1)
        if len(found) <= SAMPLE:
            return found
        return found[torch.linspace(0, len(found) - 1, SAMPLE, dtype=torch.float64, device=flat.device).long()]

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(got, expected, bound) at flat positions, fp64."""
        return take(self.got, positions), take(self.values, positions), take(self.bound, positions)

    @cached_property
    def sample(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.at(self.positions)


def take(x: Tensor, flat: Tensor) -> Tensor:
    """Elements of ``x`` at flat positions in fp64; torch cannot gather every dtype, so bytes are."""
    dense = x.contiguous().flatten()
    if dense.dtype == torch.bool or dense.is_complex():
        return dense[flat].to(torch.float64)
    return dense.view(_BITS[x.element_size()])[flat].view(x.dtype).to(torch.float64)


def close(got: Tensor, wanted: Tensor, bound: Tensor) -> Tensor:
    """Elementwise within the bound; infinities must be the same, NaN is never close."""
    return torch.where(torch.isfinite(wanted), (got - wanted).abs() <= bound, got == wanted)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise equality of memory."""
    return a.contiguous().view(_BITS[a.element_size()]) == b.contiguous().view(_BITS[b.element_size()])


def relations(output: Output, previous: Tensor | None = None) -> Iterator[tuple[str, str]]:
    """(kind, sentence) for what holds of the wrong elements, the simplest first; usually one or none. ``previous`` is
    the ``trace`` of an earlier answer.
    """
    if output.count < FEWEST:
        return
    got, wanted, _ = output.sample
    if previous is not None and output.grid and _is_stale(output, previous):
        yield "stale", "the wrong elements are those of the previous call: computed once and kept"
        return
    if _fits(got == 0):
        yield "zero", "zero where it is wrong: not computed, or cleared afterwards"
        return
    if len(torch.unique(got.nan_to_num(0.0))) < 4 or not bool(torch.isfinite(got).double().mean() >= FIT):
        return
    if torch.equal(got, wanted):
        return
    for test in (_steps, _factor, _offset, _elsewhere, _row_factors, _column_factors, _rows_moved):
        found = test(output)
        if found is not None:
            yield found
            return


def trace(x: Tensor) -> Tensor:
    """Some elements of ``x`` by which it is known again: a copy of few bytes."""
    return x.contiguous().flatten().view(_BITS[x.element_size()] if x.element_size() <= 8 else x.dtype)[_traced(x)]


def _traced(x: Tensor) -> Tensor:
    count = min(x.numel(), 2 * SAMPLE)
    return torch.linspace(0, x.numel() - 1, count, dtype=torch.float64, device=x.device).long()


def _is_stale(output: Output, previous: Tensor) -> bool:
    now = trace(output.got)
    wrong = output.wrong.flatten()[_traced(output.got)]
    if now.shape != previous.shape or now.dtype != previous.dtype:
        return False
    return _fits((now == previous)[wrong]) and len(torch.unique(now[wrong])) > 1


def take_raw(x: Tensor, flat: Tensor) -> Tensor:
    """The bits of elements at flat positions."""
    return x.contiguous().flatten().view(_BITS[x.element_size()])[flat]


def _fits(good: Tensor) -> bool:
    return len(good) >= FEWEST and float(good.double().mean()) >= FIT


def _significant(wanted: Tensor, bound: Tensor) -> Tensor:
    """Elements large enough for a ratio to mean something."""
    return torch.isfinite(wanted) & (wanted.abs() > 8 * bound) & (wanted != 0)


def _ratio_fits(got: Tensor, wanted: Tensor, bound: Tensor, factor: Any) -> Tensor:
    """Whether got = factor · wanted to the precision an honest answer has, or one more rounding."""
    good: Tensor = (got - factor * wanted).abs() <= bound * abs(factor) * 1.5 + got.abs() * 2.0**-8
    return good


def _factor(output: Output) -> tuple[str, str] | None:
    got, wanted, bound = output.sample
    use = _significant(wanted, bound) & torch.isfinite(got)
    if int(use.sum()) < max(FEWEST, len(got) // 2):
        return None
    got, wanted, bound = got[use], wanted[use], bound[use]
    factor = float((got / wanted).median())
    if factor == 0 or not math.isfinite(factor) or len(torch.unique(wanted)) < 4:
        return None
    if not _fits(_ratio_fits(got, wanted, bound, factor)):
        return None
    if abs(factor + 1) < 0.01 and bool((got > 0).all()) and output.count < 0.9 * output.wrong.numel():
        return "magnitude", "the sign is lost: every wrong element is the magnitude of what it should be"
    return "factor", f"every wrong element is {_named(factor)} times what it should be"


def _named(factor: float) -> str:
    for value, meaning in _FACTORS.items():
        if abs(factor - value) <= 0.004 * abs(value):
            return f"{value:.6g} ({meaning})"
    power = math.log2(abs(factor))
    if abs(power - round(power)) < 0.006:
        return f"{factor:.5g} (about {'-' if factor < 0 else ''}2^{round(power)})"
    for value in (64, 96, 128, 192, 256, 576):
        for exponent, meaning in ((0.5, f"sqrt({value})"), (-0.5, f"1/sqrt({value})")):
            if abs(factor - value**exponent) <= 0.004 * value**exponent:
                return f"{factor:.5g} (about {meaning})"
    return f"{factor:.5g}"


def _offset(output: Output) -> tuple[str, str] | None:
    """The same amount too large everywhere, as a logarithm is whose sum misses a factor."""
    got, wanted, bound = output.sample
    use = torch.isfinite(wanted) & torch.isfinite(got)
    got, wanted, bound = got[use], wanted[use], bound[use]
    if len(got) < FEWEST or float(wanted.std()) <= 8 * float(bound.median()):
        return None
    amount = float((got - wanted).median())
    if amount and _fits((got - wanted - amount).abs() <= bound + 2.0**-8 * abs(amount)):
        known = {math.log(2): "ln 2", -math.log(2): "-ln 2"}
        name = next((f" ({text})" for value, text in known.items() if abs(amount - value) < 2e-3), "")
        return "offset", f"every wrong element is too large by the same {amount:.5g}{name}"
    return None


def _steps(output: Output) -> tuple[str, str] | None:
    """Off by one step of the output's own format: rounded the wrong way."""
    if not output.got.dtype.is_floating_point or output.got.element_size() not in (2, 4):
        return None
    kind = _BITS[output.got.element_size()]
    places = output.positions
    right = take(output.values, places).to(output.got.dtype)
    left = take_raw(output.got, places).to(torch.int64)
    steps = (left - right.view(kind).to(torch.int64)).abs()
    if not _fits(steps <= 1):
        return None
    got, wanted, _ = output.sample
    truncated = float((got.abs() <= wanted.abs()).double().mean()) >= FIT
    name = str(output.got.dtype).removeprefix("torch.")
    return "rounding", f"every wrong element is one step of {name} off" + (
        ": rounded towards zero (cut off) where it should be to nearest" if truncated else ": rounded the wrong way")


def _elsewhere(output: Output) -> tuple[str, str] | None:
    """Right values in wrong places: another memory order, a neighbour's place, swapped neighbours."""
    if not output.grid or output.values.ndim == 0:
        return None
    shape, places = output.values.shape, output.positions
    got = output.sample[0]
    for order in itertools.permutations(range(len(shape))) if 1 < len(shape) <= 4 else ():
        if list(order) == sorted(order):
            continue
        # got[place] is what belongs to the cell whose place is the same when axes are stored in ``order``
        cells = _unravel(places, [shape[axis] for axis in order])
        target = _ravel([cells[order.index(axis)] for axis in range(len(shape))], shape)
        if _moved(output, got, target, torch.ones_like(places, dtype=torch.bool)):
            words = ", ".join((output.axes[axis] if output.axes else f"axis {axis}") for axis in order)
            return "transposed", f"stored in another order: transposed, as if its axes were [{words}]"
    cells = _unravel(places, shape)
    for axis, size in reversed(list(enumerate(shape))):
        name = output.axes[axis] if output.axes else f"axis {axis}"
        for step in (1, 2, 4, 8, 16, 32, 64, 128):
            for words, index in (
                (f"the {name} {step} further on", cells[axis] + step),
                (f"the {name} {step} before", cells[axis] - step), (f"{name} i ^ {step}", cells[axis] ^ step),
            ):
                inside = (index >= 0) & (index < size)
                target = _ravel([*cells[:axis], index.clamp(0, size - 1), *cells[axis + 1 :]], shape)
                if _moved(output, got, target, inside):
                    return "shifted", f"in the wrong place: each wrong element is what belongs to {words}"
    return None


def _moved(output: Output, got: Tensor, target: Tensor, inside: Tensor) -> bool:
    if int(inside.sum()) < max(FEWEST, len(got) // 2):
        return False
    _, wanted, bound = output.at(target)
    return _fits(close(got, wanted, bound)[inside])


def _unravel(places: Tensor, shape: Sequence[int]) -> list[Tensor]:
    return list(torch.unravel_index(places, tuple(shape)))


def _ravel(cells: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    flat = torch.zeros_like(cells[0])
    for cell, size in zip(cells, shape, strict=True):
        flat = flat * size + cell
    return flat


def _rows(output: Output, across: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None:
    """(row numbers, got, expected, bound, wrong) of up to 64 lines that hold wrong elements, 64 elements of each."""
    if output.values.ndim < 2 or not output.grid:
        return None
    width = output.values.shape[-1]
    height = output.values.numel() // width
    lines = torch.unique(output.positions % width if across else output.positions // width)
    length = height if across else width
    if length < FEWEST or len(lines) < 2:
        return None
    lines = lines[torch.linspace(0, len(lines) - 1, min(_SIDE, len(lines)), device=lines.device).long()]
    along = torch.unique(torch.linspace(0, length - 1, min(_SIDE, length), device=lines.device).long())
    flat = along[None, :] * width + lines[:, None] if across else lines[:, None] * width + along[None, :]
    got, wanted, bound = (part.reshape(flat.shape) for part in output.at(flat.flatten()))
    return lines, got, wanted, bound, output.wrong.flatten()[flat]


def _line_factors(output: Output, across: bool) -> str:
    """The factors in words if each line is off by one of its own, else ""."""
    found = _rows(output, across)
    if found is None:
        return ""
    lines, got, wanted, bound, wrong = found
    use = _significant(wanted, bound) & torch.isfinite(got)
    enough = use.sum(1) >= FEWEST
    if int(enough.sum()) < 2 or int(enough.sum()) < len(lines) // 2:
        return ""
    lines, got, wanted, bound, use = lines[enough], got[enough], wanted[enough], bound[enough], use[enough]
    factors = torch.where(use, got / wanted, torch.nan).nanmedian(1).values
    if bool((factors == 0).any()) or not _fits(_ratio_fits(got, wanted, bound, factors[:, None])[use]):
        return ""
    if not bool(wrong[enough][use].any()):
        return ""
    first = list(zip(lines.tolist(), factors.tolist(), strict=True))[:4]
    shown = ", ".join(f"{line}: {factor:.4g}" for line, factor in first)
    exact = (factors.abs().log2() - factors.abs().log2().round()).abs() < 0.006
    if bool((factors.abs() - 1).abs().max() < 0.01):
        return f"its sign flipped or not ({shown}, …)"
    powers = "powers of two, " if bool(exact.all()) else ""
    return f"a factor of its own ({powers}{shown}, …)"


def _row_factors(output: Output) -> tuple[str, str] | None:
    words = _line_factors(output, across=False)
    name = "/".join(output.axes[:-1]) if len(output.axes) > 2 else output.axes[0] if output.axes else "row"
    return ("row_factors", f"each {name} has {words}: a scale per {name} is missing or wrong") if words else None


def _column_factors(output: Output) -> tuple[str, str] | None:
    words = _line_factors(output, across=True)
    name = output.axes[-1] if output.axes else "column"
    return ("column_factors", f"each {name} has {words}: a scale per {name} is missing or wrong") if words else None


def _rows_moved(output: Output) -> tuple[str, str] | None:
    """Whole rows in the places of others."""
    found = _rows(output, across=False)
    if found is None or output.values.shape[-1] < FEWEST:
        return None
    lines, got, _, _, wrong = found
    lines, got = lines[wrong.any(1)][:FEWEST], got[wrong.any(1)][:FEWEST]
    width = output.values.shape[-1]
    height = output.values.numel() // width
    along = torch.unique(torch.linspace(0, width - 1, min(_SIDE, width), device=lines.device).long())
    every = torch.arange(min(height, 1 << 15), device=lines.device)
    flat = (every[:, None] * width + along).flatten()
    _, wanted, bound = (part.reshape(len(every), -1) for part in output.at(flat))
    moves: list[tuple[int, int]] = []
    for line, row in zip(lines.tolist(), got, strict=True):
        share = close(row[None, :], wanted, bound).double().mean(1)
        best = int(share.argmax())
        if float(share[best]) < FIT or best == line:
            return None
        moves.append((line, best))
    if len(moves) < 2 or len({source for _, source in moves}) < 2:
        return None
    names = output.axes[0] if output.values.ndim == 2 and output.axes else "row"
    shown = ", ".join(f"{line} holds {source}" for line, source in moves[:4])
    kinds = {a ^ b for a, b in moves}
    rule = f": {names} i holds {names} i ^ {kinds.pop()}" if len(kinds) == 1 else ""
    return "rows_permuted", f"{names}s are permuted ({shown}, …){rule}"


def values(output: Output, unwritten: Tensor | None = None) -> tuple[list[str], dict[str, Any]]:
    """What the wrong elements are made of: (sentences, counts): NaN, infinities, zeros, a constant, never written."""
    wrong, got = output.wrong, output.got
    lines, counts = [], {}
    real = got if got.dtype.is_floating_point and got.element_size() > 1 else got.to(torch.float32)
    kinds = (("NaN", torch.isnan(real)), ("infinite", torch.isinf(real)), ("exactly zero", real == 0))
    for kind, mask in kinds:
        number = int(torch.count_nonzero(mask & wrong))
        counts[kind] = number
    if unwritten is not None:
        counts["never written"] = int(torch.count_nonzero(unwritten & wrong))
    told = [f"{number} {kind}" for kind, number in counts.items() if number and kind != "never written"]
    if told:
        lines.append(f"of the {output.count} wrong: {', '.join(told)}")
    first, wanted, _ = output.sample
    if output.count > 1 and len(torch.unique(first)) == 1 and float(first[0]) != 0:
        lines.append(f"all wrong elements are the same number, {float(first[0]):.7g}")
    lost = torch.isinf(wanted) & torch.isfinite(first)
    if bool(lost.any()):
        lines.append(f"{'all' if bool(lost.all()) else 'some'} of the wrong elements should be infinite "
                     f"and are not ({float(first[lost][0]):.7g})")
    if got.dtype.is_floating_point:
        tiny = torch.finfo(got.dtype).tiny
        if bool(((first == 0) & (wanted != 0) & (wanted.abs() < tiny)).double().mean() >= FIT):
            lines.append("every wrong element should be a subnormal number and is zero: flushed")
    return lines, counts
