# SPDX-License-Identifier: MIT
"""What all problems share: expectations and how an output is compared with one, sampling, and the fp64 mathematics.

A reference does not return "the answer" but an ``Expectation``: values in high precision and, element by element, the
largest difference an honest kernel may show. A cheat has to get under that bound in every element, so bounds follow
from a rounding analysis (given where they are computed) and never from a mean, a cosine or a share of the elements.

Staged beside ``reference.py`` on a runner, so it imports nothing but torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

K_BLOCK = 128                 # columns of K that share one scale
N_BLOCK = 128                 # rows of B that share one scale
CHUNK = 1 << 24               # elements of one fp64 temporary (128 MiB); a handful live at a time

# Largest relative error of one conversion to nearest: 2^-p for a significand of p bits, the leading one included.
UNIT_ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


# ---- comparing ------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Mismatch:
    """Why an output was refused. ``kind`` is "shape", "dtype" or "numerical"; ``wrong`` counts elements."""

    kind: str
    message: str
    wrong: int = 0

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Expectation:
    """One output of a problem as it should be.

    ``values`` (fp32 or fp64) and ``bound`` (same shape; the allowed absolute difference) cover the whole output of
    ``shape`` if ``index`` is None; otherwise they cover ``output[index]``. ``dtype`` is what the output must have.
    ``values`` may hold infinities (then the output must hold the same ones) but never NaN.
    """

    name: str
    values: Tensor
    bound: Tensor
    dtype: torch.dtype
    shape: tuple[int, ...]
    index: tuple[Tensor, ...] | None = None

    @property
    def is_grid(self) -> bool:
        """Whether ``values`` is the whole output or rows crossed with columns of it (and not a list of rows)."""
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
    """Compare ``output`` with ``expectation``: (largest difference as a share of its bound, what is wrong or None).

    In this order: shape, dtype, the same NaN and infinities, then ``|difference| <= bound`` for every element. Written
    so that NaN compares as wrong. Raises ``ValueError`` if the expectation itself is not usable (NaN, or a bound that
    is not finite): a broken reference must not pass anything.
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
        finite = torch.isfinite(e)
        if bool(torch.isnan(e).any()) or not bool((torch.isfinite(b) & (b >= 0))[finite].all()):
            raise ValueError(f"{name}: the reference holds NaN or a bound that is not finite; the case is unusable")
        difference = torch.where(finite, (g - e).abs(), torch.where(g == e, 0.0, torch.inf))
        good = torch.where(finite, difference <= b, g == e)
        share = torch.where(difference == 0, 0.0, difference / b)        # x/0 = inf: a zero bound allows nothing
        report.add(start, good, torch.nan_to_num(share, nan=torch.inf), g, e, b)
    return report.largest, report.mismatch()


class _Report:
    """Collects what ``examine`` says about wrong elements over the chunks."""

    def __init__(self, expectation: Expectation):
        self.expectation = expectation
        self.largest = 0.0
        self.wrong = 0
        self.first: tuple[tuple[int, ...], float, float, float] | None = None
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
        if self.first is None:
            self.first = entry(int(bad.flatten().to(torch.uint8).argmax()))
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
        if not self.wrong or self.first is None or self.worst is None:
            return None
        total = self.expectation.values.numel()
        sampled = "" if self.expectation.index is None else " sampled"

        def text(what: str, entry: tuple[tuple[int, ...], float, float, float]) -> str:
            where, got, wanted, bound = entry
            return f"{what} {list(where)}: got {got:.7g}, expected {wanted:.7g} ± {bound:.3g}"

        message = (f"{self.expectation.name}: {self.wrong} of {total}{sampled} elements are wrong; "
                   f"{text('first', self.first)}; {text('worst', self.worst)}")
        if self.expectation.is_grid:
            low, high = self.expectation.locate(self.low), self.expectation.locate(self.high)
            box = ", ".join(f"{a}..{b}" for a, b in zip(low, high, strict=True))
            message += f"; all lie within [{box}]"
        return Mismatch("numerical", message, self.wrong)


def compare(expectation: Expectation, output: Any) -> Mismatch | None:
    """None if ``output`` is what ``expectation`` allows, else what is wrong with it. See ``examine``."""
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


def generator(seed: int, device: torch.device) -> torch.Generator:
    """A random generator of its own on ``device``: the global one is neither read nor advanced."""
    return torch.Generator(device=device).manual_seed(seed)


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


# ---- block-scaled GEMM ----------------------------------------------------------------------------------------------

def dequantise(x: Tensor, scale: Tensor) -> Tensor:
    """fp64 [rows, k] = fp8 x [rows, k] times scale [rows, k/128] (fp32), one scale per row and block of 128 columns."""
    rows, k = x.shape
    blocks = x.to(torch.float64).reshape(rows, k // K_BLOCK, K_BLOCK)
    return blocks.mul_(scale.double()[:, :, None]).reshape(rows, k)


def block_scaled_product(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, index: tuple[Tensor, ...] | None,
) -> tuple[Tensor, Tensor]:
    """(values, magnitude) of the dequantised product, both fp32: sum_k a·b and sum_k |a|·|b|, scales included.

    a fp8 [m, k], b fp8 [n, k] (any strides), a_scale fp32 [m, k/128], b_scale fp32 [ceil(n/128), k/128]. ``index``
    is (rows [r, 1], columns [c]) or None for all. Computed in fp64 in chunks; stored in fp32, whose rounding (2^-24)
    is far below every bound that uses them.
    """
    m, k = a.shape
    device = a.device
    rows = torch.arange(m, device=device) if index is None else index[0].flatten().to(device)
    columns = torch.arange(b.shape[0], device=device) if index is None else index[1].flatten().to(device)
    values = torch.empty(len(rows), len(columns), device=device)
    magnitude = torch.empty_like(values)
    step = max(1, 2 * CHUNK // k)
    for c in range(0, len(columns), step):
        column = columns[c : c + step]
        b_part = dequantise(_take(b, column), b_scale[column // N_BLOCK])
        b_size = b_part.abs()
        for r in range(0, len(rows), step):
            row = rows[r : r + step]
            a_part = dequantise(_take(a, row), a_scale[row])
            values[r : r + step, c : c + step] = a_part @ b_part.T
            magnitude[r : r + step, c : c + step] = a_part.abs_() @ b_size.T
    return values, magnitude


def _take(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of an fp8 matrix: torch gathers bytes on every device, fp8 not on all."""
    return x.view(torch.uint8).index_select(0, rows).view(x.dtype)


def sample_matrix(m: int, n: int, sample: int, seed: int, device: torch.device) -> tuple[Tensor, ...] | None:
    """Index (rows [r, 1], columns [c]) of about ``sample`` rows and 8·``sample`` columns; None if that is all."""
    rng = torch.Generator().manual_seed(seed)
    rows = sample_positions(m, sample, 64, rng)
    columns = sample_positions(n, 8 * sample, N_BLOCK, rng)
    if len(rows) == m and len(columns) == n:
        return None
    return rows[:, None].to(device), columns.to(device)


# ---- attention ------------------------------------------------------------------------------------------------------

def attention_rows(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """(o [r, dv], spread [r, dv], lse [r]) in fp64 for query rows that see a prefix of the keys.

    q [r, d], k [s, d], v [s, dv] of any float dtype; ``visible`` [r] counts the keys each row sees. ``spread`` is
    sqrt(sum_j p_j^2 v_j^2): the standard deviation of o, in units of the roundoff, if every p_j is rounded
    independently. A row that sees no key has o = 0, spread = 0 and lse = -inf.
    """
    k, v = k.double(), v.double()
    squares = v.square()
    o = torch.empty(len(q), v.shape[1], dtype=torch.float64, device=q.device)
    spread = torch.empty_like(o)
    lse = torch.empty(len(q), dtype=torch.float64, device=q.device)
    keys = torch.arange(len(k), device=q.device)
    step = max(1, CHUNK // max(1, len(k)))
    for r in range(0, len(q), step):
        part = slice(r, r + step)
        p = (q[part].double() @ k.T).mul_(scale)
        p.masked_fill_(keys[None, :] >= visible[part, None], -torch.inf)
        top = p.amax(1, keepdim=True) if len(k) else p.new_full((len(p), 1), -torch.inf)
        top = torch.where(torch.isinf(top), 0.0, top)
        p.sub_(top).exp_()
        total = p.sum(1, keepdim=True)
        lse[part] = (top + total.log()).squeeze(1)
        p.div_(torch.where(total == 0, 1.0, total))
        o[part] = p @ v
        spread[part] = (p.square_() @ squares).sqrt_()
    return o, spread, lse


def attention_bounds(o: Tensor, spread: Tensor, lse: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(bound of o, bound of lse) for an attention kernel that multiplies in ``dtype`` and accumulates in fp32.

    With u the unit roundoff of ``dtype`` (bf16 2^-8, fp16 2^-11):

    * 2u·|o|: the output is rounded once to nearest (u·|o|); the other half is for sums and reciprocals in fp32 and for
      a systematic error of P against its row sum, as when P is rounded towards zero but its sum is not.
    * 5u·spread: P is rounded to ``dtype`` before it meets V. The errors are independent, at most u·p_j each, with a
      standard deviation of 0.42u·p_j (uniform within half a unit, significands log-uniform), so their sum has one of
      0.42u·spread. 5u is twelve of those; the largest of 3·10^7 elements reaches about six.
    * 2^-22: fp32 and exponential approximations where o itself cancels, and P below fp16's range. Nothing for a row
      that sees no key: it must be exactly 0.
    * lse ± 2^-10: sums and products are fp32, so an honest kernel is within about 1e-5 (a score of 40 carries
      40·2^-24·(a few), exp2 and log2 approximations about 2^-21); a row sum of P rounded to bf16 stays inside as well.
      A kernel that leaves out 64 of 16384 equal keys is off by 2^-8, four times the bound.
    """
    u = UNIT_ROUNDOFF[dtype]
    seen = torch.isfinite(lse)
    o_bound = (2 * u * o.abs() + 5 * u * spread + 2.0**-22) * seen.unsqueeze(-1)
    return o_bound, torch.full_like(lse, 2.0**-10)


# ---- paged decoding -------------------------------------------------------------------------------------------------

def decode_lengths(batch: int, sk: int, lens: str) -> list[int]:
    """Cached tokens of the requests of a batch, before a seed permutes them; the longest is ``sk``.

    ``uniform``: all sk. ``ragged``: spread evenly from sk/batch to sk, page edges avoided. ``mixed``: ragged with 0, 1
    and the sizes around a page (63, 64, 65) among them, as many as the batch has room for. A function of the case
    alone, so that the work of a case can be counted without its data.
    """
    if lens == "uniform":
        return [sk] * batch
    if lens not in ("ragged", "mixed"):
        raise ValueError(f"unknown lens {lens!r}; there are uniform, ragged, mixed")
    ragged = [max(1, sk * (r + 1) // batch - r * 37 % 61) for r in range(batch - 1)] + [sk]
    if lens == "ragged":
        return ragged
    edges = [length for length in (0, 1, 64, 63, 65) if length <= sk][: batch - 1]
    return edges + ragged[len(edges):]
