# SPDX-License-Identifier: MIT
"""What all problems share: expectations, how an output is compared with one, and how inputs are drawn.

A reference returns an ``Expectation``: values in high precision and, for each element, the largest difference that an
honest kernel may show. Bounds follow from a rounding analysis (given where they are computed), never from a mean, a
cosine or a share of the elements. So a cheat must stay within the bound in every element.

Staged beside ``reference.py`` on a runner, so it imports nothing but torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SHOWN = 10                    # wrong elements that a mismatch lists
# How torch keeps the state of its CPU generator (mt19937): 24 bytes, then 624 words of 32 bits in 64.
_FIRST, _WORDS = 24, 624
CHUNK = 1 << 24               # elements of one fp64 temporary (128 MiB); a handful live at a time


# ---- comparing ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Mismatch:
    """Why an output was refused. ``kind`` is "shape", "dtype" or "numerical"; ``wrong`` counts elements.

    ``elements`` holds the first of them, each as (index, got, expected, bound).
    """

    kind: str
    message: str
    wrong: int = 0
    elements: tuple[tuple[tuple[int, ...], float, float, float], ...] = ()

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Expectation:
    """One output of a problem as it should be.

    ``values`` (fp32 or fp64) and ``bound`` (same shape; the allowed absolute difference) cover the whole output of
    ``shape`` if ``index`` is None; otherwise they cover ``output[index]``. ``dtype`` is what the output must have.
    ``values`` may hold infinities (then the output must hold the same ones) but never NaN. Where several answers are
    right, ``values`` is the middle between the least and the largest, and ``width`` (same shape, a part of ``bound``)
    how far it is from both: no error yet, so shares of the bound count from there.
    """

    name: str
    values: Tensor
    bound: Tensor
    dtype: torch.dtype
    shape: tuple[int, ...]
    index: tuple[Tensor, ...] | None = None
    width: Tensor | None = None

    @property
    def is_grid(self) -> bool:
        """Whether ``values`` is the whole output, or rows crossed with columns of it (not a list of rows)."""
        return self.index is None or self.index[0].ndim > 1

    def rounded(self, out: Tensor | None = None) -> Tensor:
        """The expected output itself, in its dtype and full shape; zeros (or ``out``) where nothing was sampled."""
        if self.index is None:
            return self.values.to(self.dtype)
        full = torch.zeros(self.shape, dtype=self.dtype, device=self.values.device) if out is None else out
        full[self.index] = self.values.to(self.dtype)
        return full

    def locate(self, position: Sequence[int]) -> tuple[int, ...]:
        """Where in the full output the element at ``position`` of ``values`` lies."""
        if self.index is None:
            return tuple(position)
        grids = torch.broadcast_tensors(*self.index)
        lead = grids[0].ndim
        return tuple(int(grid[tuple(position[:lead])]) for grid in grids) + tuple(position[lead:])


def examine(expectation: Expectation, output: Any) -> tuple[float, Mismatch | None]:
    """Compare ``output`` with ``expectation``: (largest error as a share of what is allowed, what is wrong or None).

    The error is the difference beyond ``width``, and what is allowed is the bound beyond it. In this order: shape,
    dtype, the same NaN and infinities, then ``|difference| <= bound`` for every element. NaN compares as wrong. Raises
    ``ValueError`` if the expectation itself is not usable (NaN, or a bound that is not finite), because a broken
    reference must not pass anything.
    """
    name = expectation.name
    if not isinstance(output, Tensor):
        return float("inf"), Mismatch("shape", f"{name}: expected a tensor, got {type(output).__name__}")
    if tuple(output.shape) != expectation.shape:
        return float("inf"), Mismatch(
            "shape", f"{name}: expected shape {list(expectation.shape)}, got {list(output.shape)}")
    if output.dtype != expectation.dtype:
        return float("inf"), Mismatch("dtype", f"{name}: expected {expectation.dtype}, got {output.dtype}")

    values, bound = expectation.values, expectation.bound
    got = output if expectation.index is None else output[tuple(i.to(output.device) for i in expectation.index)]
    rows = max(1, CHUNK // max(1, values[:1].numel()))
    report = _Report(expectation)
    for start in range(0, values.shape[0], rows):
        part = slice(start, start + rows)
        g, e = got[part].to(device=values.device, dtype=torch.float64), values[part].double()
        b = bound[part].double()
        w = None if expectation.width is None else expectation.width[part].double()
        largest = _largest_share(g, e, b, w)
        if largest is not None:
            report.largest = max(report.largest, largest)
            continue
        finite = torch.isfinite(e)
        if bool(torch.isnan(e).any()) or not bool((torch.isfinite(b) & (b >= 0))[finite].all()):
            raise ValueError(f"{name}: the reference holds NaN or a bound that is not finite; the case is unusable")
        difference = torch.where(finite, (g - e).abs(), torch.where(g == e, 0.0, torch.inf))
        good = torch.where(finite, difference <= b, g == e)
        share = _share(difference, b, w)
        report.add(start, good, torch.nan_to_num(share, nan=torch.inf), g, e, b)
    return report.largest, report.mismatch()


def _share(difference: Tensor, b: Tensor, w: Tensor | None) -> Tensor:
    """The error as a share of what is allowed; may write into ``difference``. x/0 = inf: nothing is allowed."""
    if w is not None:
        difference, b = difference.sub_(w).clamp_min_(0.0), b - w
    return torch.where(difference == 0, 0.0, difference.div_(b))


def _largest_share(g: Tensor, e: Tensor, b: Tensor, w: Tensor | None) -> float | None:
    """The largest error as a share of what is allowed if all is finite and within bounds, in few steps and with one
    question to the device; None if anything is not, NaN included, since no comparison with NaN is true.
    """
    if not g.numel():
        return None
    difference = (g - e).abs_()
    good = ((difference <= b) & (b < torch.inf)).all()
    found = torch.stack([good.double(), _share(difference, b, w).max()]).tolist()
    return float(found[1]) if found[0] else None


class _Report:
    """Collects the wrong elements that ``examine`` finds in the chunks."""

    def __init__(self, expectation: Expectation):
        self.expectation = expectation
        self.largest = 0.0
        self.wrong = 0
        self.elements: list[tuple[tuple[int, ...], float, float, float]] = []
        self.worst: tuple[tuple[int, ...], float, float, float] | None = None
        self.low: list[int] = []
        self.high: list[int] = []

    def add(self, start: int, good: Tensor, share: Tensor, g: Tensor, e: Tensor, b: Tensor) -> None:
        largest = float(share.max()) if share.numel() else 0.0
        if bool(good.all()):
            self.largest = max(self.largest, largest)
            return

        def entry(flat: int) -> tuple[tuple[int, ...], float, float, float]:
            where = [int(i) for i in torch.unravel_index(torch.tensor(flat), good.shape)]
            cells = tuple(where)
            where[0] += start
            return self.expectation.locate(where), float(g[cells]), float(e[cells]), float(b[cells])

        bad = ~good
        self.wrong += int(bad.sum())
        if len(self.elements) < SHOWN:
            found = bad.flatten().nonzero().flatten()[: SHOWN - len(self.elements)]
            self.elements += [entry(int(flat)) for flat in found]
        share = torch.where(good, 0.0, share.clamp_min(1.0))
        if self.worst is None or largest > self.largest:
            self.worst = entry(int(share.flatten().argmax()))
        self.largest = max(self.largest, largest, float(share.max()))
        for dim in range(good.ndim):
            hit = bad.flatten(0, dim - 1) if dim else bad[None]
            hit = hit.any(0).reshape(good.shape[dim], -1).any(1).nonzero()
            low, high = int(hit[0]) + (start if dim == 0 else 0), int(hit[-1]) + (start if dim == 0 else 0)
            if len(self.low) <= dim:
                self.low.append(low)
                self.high.append(high)
            self.low[dim], self.high[dim] = min(self.low[dim], low), max(self.high[dim], high)

    def mismatch(self) -> Mismatch | None:
        if not self.wrong or self.worst is None:
            return None
        total = self.expectation.values.numel()
        sampled = "" if self.expectation.index is None else " sampled"

        def text(what: str, entry: tuple[tuple[int, ...], float, float, float]) -> str:
            where, got, wanted, bound = entry
            return f"{what} {list(where)}: got {got:.7g}, expected {wanted:.7g} ± {bound:.3g}"

        message = (f"{self.expectation.name}: {self.wrong} of {total}{sampled} elements are wrong; "
                   f"{text('first', self.elements[0])}; {text('worst', self.worst)}")
        if self.expectation.is_grid:
            low, high = self.expectation.locate(self.low), self.expectation.locate(self.high)
            box = ", ".join(f"{a}..{b}" for a, b in zip(low, high, strict=True))
            message += f"; all lie within [{box}]"
        return Mismatch("numerical", message, self.wrong, tuple(self.elements))


def compare(expectation: Expectation, output: Any) -> Mismatch | None:
    """None if ``expectation`` allows ``output``, else what is wrong with it. See ``examine``."""
    return examine(expectation, output)[1]


def check_outputs(expectations: Sequence[Expectation], outputs: Any) -> tuple[bool, str]:
    """(passed, message) for the outputs of ``custom_kernel``: one tensor, or a tuple in the order of expectations."""
    if isinstance(outputs, Tensor):
        outputs = (outputs,)
    if not isinstance(outputs, (tuple, list)) or len(outputs) != len(expectations):
        names = ", ".join(expectation.name for expectation in expectations)
        got = f"{len(outputs)} values" if isinstance(outputs, (tuple, list)) else type(outputs).__name__
        return False, f"expected ({names}), got {got}"
    results = [examine(expectation, output) for expectation, output in zip(expectations, outputs, strict=True)]
    wrong = [str(mismatch) for _, mismatch in results if mismatch is not None]
    if wrong:
        return False, "; ".join(wrong)
    shares = zip(expectations, results, strict=True)
    return True, "; ".join(f"{e.name}: largest error {share:.2f} of its bound" for e, (share, _) in shares)


# ---- wrong answers --------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Mutant:
    """A wrong answer that the check must refuse.

    Either the reference of ``transform_data(case, data)``, rounded to the output dtypes, or
    ``transform_outputs(case, data, outputs)`` of the right outputs. Neither modifies its arguments.
    ``applies(case)`` is False where the mutant would be a right answer.
    """

    summary: str
    transform_data: Callable[[Mapping[str, Any], Any], Any] | None = None
    transform_outputs: Callable[[Mapping[str, Any], Any, tuple[Tensor, ...]], tuple[Tensor, ...]] | None = None
    applies: Callable[[Mapping[str, Any]], bool] = lambda case: True


# ---- inputs ---------------------------------------------------------------------------------------------------------

def default_device(device: Any = None) -> torch.device:
    """``device``, or the first GPU if there is one, or the CPU."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def default_fp8(fp8: str | None = None) -> torch.dtype:
    """The torch dtype of ``"e4m3fn"`` or ``"e4m3fnuz"``; None means what this torch's GPUs multiply."""
    name = fp8 or ("e4m3fnuz" if torch.version.hip else "e4m3fn")
    try:
        return {"e4m3fn": torch.float8_e4m3fn, "e4m3fnuz": torch.float8_e4m3fnuz}[name]
    except KeyError:
        raise ValueError(f"unknown fp8 flavour {name!r}; there are e4m3fn, e4m3fnuz") from None


def reference_dtype(device: torch.device) -> torch.dtype:
    """What references compute in: fp64, or fp32 on a GPU that runs fp64 at 1/64 of its speed (compute capability x.y
    with y > 0, such as the L4: minutes per check otherwise) and whose fp32 products are really fp32.

    fp32 errs by a few 2^-24 of the sum of magnitudes. Every bound is at least 2^-12 of it, or of an absolute size (a
    log-sum-exp, 2^-10) that fp32 reaches within 1e-5; where a bound is 0 the value is 0 in any precision. Steep scores,
    of 250 and more, cost up to a fifth of a bound.
    """
    if device.type == "cuda" and torch.version.hip is None and torch.get_float32_matmul_precision() == "highest":
        return torch.float32 if torch.cuda.get_device_capability(device)[1] else torch.float64
    return torch.float64


def generator(seed: int, device: torch.device) -> torch.Generator:
    """A separate random generator on ``device``: the global one is neither read nor advanced.

    A CPU's generator takes 32 bits of a seed. Of a longer one (below 2^63) all its words are drawn by a hash, so that
    nobody finds the seed by trying all of them against a few values.
    """
    rng = torch.Generator(device=device).manual_seed(seed)
    if rng.device.type == "cpu" and seed >> 32:
        words = hashlib.shake_256(seed.to_bytes(8, "big")).digest(4 * _WORDS)
        state = rng.get_state()
        state[_FIRST : _FIRST + 8 * _WORDS].view(torch.int64).copy_(
            torch.frombuffer(bytearray(words), dtype=torch.uint32))
        rng.set_state(state)
    return rng


def sample_positions(total: int, count: int, tile: int, rng: torch.Generator) -> Tensor:
    """About ``count`` of the positions 0..total-1, sorted: both ends, both sides of the last tile's edge, random ones.

    Everything if ``total <= count``. ``rng`` is a CPU generator.
    """
    if total <= count:
        return torch.arange(total)
    edge = (total - 1) // tile * tile
    fixed = torch.tensor([0, min(1, total - 1), max(0, edge - 1), edge, total - 1])
    tail = edge + torch.randint(0, total - edge, (max(1, count // 4),), generator=rng)
    body = torch.randperm(total, generator=rng)[: max(1, count - count // 4 - len(fixed))]
    return torch.unique(torch.cat([fixed, tail, body]))
