# SPDX-License-Identifier: MIT
"""Where wrong elements lie: whole rows or columns, one tile or a grid of them, the tail of an axis, or anywhere.

Takes a mask and makes a sentence; knows nothing of problems. An answer is wrong in whole tiles even if some of its
elements happen to be right, so shapes are judged by how full they are (``FULL``), not by whether each element is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

TILES = (256, 128, 64, 32, 16, 8)
FULL = 0.85             # share of the elements of a shape that must be wrong for the shape to be named
_LISTED = 6             # indices that are listed one by one
_LOOKED_AT = 2048       # rows and columns that are searched for tiles


@dataclass(frozen=True)
class Where:
    """``text`` says where ``wrong`` of ``total`` elements lie; ``share`` of the box it names is wrong."""

    text: str
    wrong: int
    total: int
    share: float
    kind: str           # "all" | "box" | "tiles" | "scattered" | "none"


def locate(wrong: Tensor, axes: Sequence[str] = ()) -> Where:
    """Where ``wrong`` (bool, any shape) is true. ``axes`` names its dimensions in the singular ("row", "column")."""
    count, total = int(wrong.sum()), wrong.numel()
    if not count:
        return Where("nowhere", 0, total, 0.0, "none")
    if wrong.ndim == 0:
        return Where("the only element", 1, 1, 1.0, "all")
    names = tuple(axes) if len(axes) == wrong.ndim else default_axes(wrong.ndim)
    profiles = _profiles(wrong)
    hits = [profile.nonzero().flatten() for profile in profiles]
    box = 1
    for hit in hits:
        box *= len(hit)
    share = count / box
    phrases = [
        phrase for name, hit, size in zip(names, hits, wrong.shape, strict=True)
        if (phrase := describe(hit, size, name))
    ]
    if share < FULL and (tiles := _tiles(wrong, names, count)):
        return Where(tiles, count, total, share, "tiles")
    if not phrases:
        if share >= FULL:
            return Where("every element" if count == total else f"{_percent(share)} of the elements, all over", count,
                         total, share, "all")
        return Where(f"scattered: {_percent(share)} of the elements, all over", count, total, share, "scattered")
    place = " × ".join(phrases)
    if count == box and (count == 1 or wrong.ndim == 1):
        return Where(place, count, total, share, "box")
    if share >= FULL:
        what = "every element" if count == box else f"{_percent(share)} of the elements"
        return Where(f"{what} of {place}", count, total, share, "box")
    return Where(f"scattered: {_percent(share)} of the elements of {place}", count, total, share, "scattered")


def describe(hit: Tensor, size: int, name: str) -> str:
    """The sorted indices ``hit`` of an axis of ``size`` elements in words; "" if it is all of them."""
    count = len(hit)
    if count == size:
        return ""
    first, last = int(hit[0]), int(hit[-1])
    names = plural(name)
    if count == 1 and last < size - 1:
        return f"{name} {first}" + (" (the first)" if first == 0 else "")
    if last - first + 1 == count:
        return _range(first, last, size, name)
    if period := _period(hit, size):
        step, residues = period
        return f"{names} i with i % {step} {'==' if ',' not in residues and '..' not in residues else 'in'} {residues}"
    if count <= _LISTED:
        return f"{names} {', '.join(str(int(i)) for i in hit)}"
    for tile in TILES:
        if tile < size and (blocks := _whole_blocks(hit, size, tile)):
            shown = ", ".join(str(block) for block in blocks[:_LISTED]) + (", …" if len(blocks) > _LISTED else "")
            return f"{names} of {len(blocks)} of {-(-size // tile)} tiles of {tile} (tiles {shown})"
    return f"{count} of {size} {names} ({first}..{last})"


def plural(name: str) -> str:
    """``row`` rows, ``query`` queries, ``batch`` batches."""
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("ch", "x", "s")) else f"{name}s"


def default_axes(ndim: int) -> tuple[str, ...]:
    """Names of the axes of a tensor that nobody named."""
    if ndim <= 2:
        return ("element",) if ndim == 1 else ("row", "column")
    return tuple(f"index of axis {axis}" for axis in range(ndim))


def _range(first: int, last: int, size: int, name: str) -> str:
    names, count = plural(name), last - first + 1
    span = f"{first}..{last}" if count > 1 else str(first)
    if last == size - 1:
        for tile in TILES:
            if size % tile and first == (size - 1) // tile * tile and first:
                return (f"the last, ragged tile: {names if count > 1 else name} {span} "
                        f"({size} is no multiple of {tile})")
        what = f"the last {count} {names}" if count > 1 else f"the last {name}"
        return f"{what} ({span})"
    if first == 0:
        return f"the first {count} {names} ({span})"
    for tile in TILES:
        if count == tile and first % tile == 0:
            return f"{names} {span} (tile {first // tile} of {-(-size // tile)} tiles of {tile})"
    return f"{names} {span}"


def _period(hit: Tensor, size: int) -> tuple[int, str] | None:
    """(period, residues in words) if the indices are exactly those of some residues, over two periods at least."""
    step = 2
    while step <= min(256, size // 2):
        residues = torch.unique(hit % step)
        if len(residues) < step:
            every = torch.arange(size, device=hit.device)
            if int(torch.isin(every % step, residues).sum()) == len(hit):
                return step, _ranges(residues.tolist())
        step *= 2
    return None


def _ranges(values: Sequence[int]) -> str:
    """Sorted integers as ``0..3, 8``."""
    starts = [values[0], *(b for a, b in pairwise(values) if b != a + 1)]
    ends = [*(a for a, b in pairwise(values) if b != a + 1), values[-1]]
    parts = [f"{a}..{b}" if b > a else str(a) for a, b in zip(starts, ends, strict=True)]
    return ", ".join(parts[:_LISTED]) + (", …" if len(parts) > _LISTED else "")


def _whole_blocks(hit: Tensor, size: int, tile: int) -> list[int]:
    """The aligned blocks of ``tile`` that ``hit`` fills to the last index, or none if it fills another only partly."""
    blocks, counts = torch.unique(hit // tile, return_counts=True)
    full = (size - blocks * tile).clamp_max(tile)
    return [int(block) for block in blocks] if bool((counts == full).all()) else []


def _profiles(wrong: Tensor) -> list[Tensor]:
    """Per axis: how many elements of each slice are wrong."""
    if wrong.ndim == 1:
        return [wrong.to(torch.int32)]
    last = wrong.flatten(0, -2).sum(0, dtype=torch.float32)
    rows = wrong.sum(-1, dtype=torch.int32)
    others = [[other for other in range(rows.ndim) if other != axis] for axis in range(rows.ndim)]
    return [*(rows.sum(other) if other else rows for other in others), last]


def _tiles(wrong: Tensor, names: Sequence[str], count: int) -> str:
    """The largest tiles that are wrong as a whole, in words; "" if there are none, or if all of them are wrong."""
    if wrong.ndim < 2:
        return ""
    if wrong.ndim > 2:
        return _blocks_of_rows(wrong, names, count)
    top, left = (int(wrong.any(1 - axis).to(torch.uint8).argmax()) // 256 * 256 for axis in (0, 1))
    part = wrong[top : top + _LOOKED_AT, left : left + _LOOKED_AT]       # an aligned window from the first wrong row on
    found = _largest(part, TILES, TILES)
    if found is None:
        return ""
    grid, high, wide = found
    shown = "; ".join(
        f"[{top + i * high}..{min(len(wrong), top + (i + 1) * high) - 1}, "
        f"{left + j * wide}..{min(wrong.shape[1], left + (j + 1) * wide) - 1}]"
        for i, j in grid.nonzero()[:4].tolist())
    rows, columns = (torch.arange(size, device=grid.device) for size in grid.shape)
    board = (rows[:, None] + columns) % 2
    several = int(grid.sum()) > 1
    pattern = ", like the squares of one colour on a chessboard" if several and any(
        torch.equal(grid, board == colour) for colour in (0, 1)) else ""
    seen = "" if part.shape == wrong.shape else f" of those from [{top}, {left}] on that were looked at"
    return (f"whole tiles of {high}×{wide} ({plural(names[0])} × {plural(names[1])}): {int(grid.sum())} of "
            f"{grid.numel()}{seen}{pattern}, the first at {shown}")


def _blocks_of_rows(wrong: Tensor, names: Sequence[str], count: int) -> str:
    """Of three and more axes: blocks along the longest axis but the last, each batch and head by itself."""
    rows = wrong.any(-1)
    if count < FULL * int(rows.sum()) * wrong.shape[-1]:
        return ""
    along = max(range(rows.ndim), key=lambda axis: rows.shape[axis])
    found = _largest(rows.movedim(along, -1).flatten(0, -2), (1,), TILES)
    if found is None:
        return ""
    grid, _, wide = found
    others = "/".join(name for axis, name in enumerate(names[:-1]) if axis != along)
    return (f"whole blocks of {wide} {plural(names[along])}, each {others} by itself: "
            f"{int(grid.sum())} of {grid.numel()}")


def _largest(wrong: Tensor, heights: Sequence[int], widths: Sequence[int]) -> tuple[Tensor, int, int] | None:
    """(which tiles are hit, their height, their width) for the largest aligned tiles that are wrong as a whole."""
    rows, columns = wrong.shape
    low, narrow = min(heights), min(widths)
    base = _blocks(wrong.view(torch.uint8) if wrong.is_contiguous() else wrong.to(torch.uint8), low, narrow)
    count = int(base.sum())
    found: tuple[Tensor, int, int] | None = None
    for high in heights:
        for wide in widths:
            if high > 2 * rows or wide > 2 * columns or (found and high * wide <= found[1] * found[2]):
                continue
            hit = _blocks(base, high // low, wide // narrow) > 0
            tall, broad = (
                (size - torch.arange(number, device=hit.device) * side).clamp_max(side)
                for size, number, side in zip((rows, columns), hit.shape, (high, wide), strict=True))
            area = int(((tall[:, None] * broad) * hit).sum())
            if count >= FULL * area and int(hit.sum()) < hit.numel():
                found = hit, high, wide
    return found


def _blocks(counts: Tensor, high: int, wide: int) -> Tensor:
    """Sums over blocks of high × wide, ragged ones included."""
    if high == wide == 1:
        return counts.to(torch.int32)
    rows, columns = counts.shape
    if columns % wide or rows % high:
        counts = torch.nn.functional.pad(counts, (0, -columns % wide, 0, -rows % high))
    parts = counts.reshape(counts.shape[0] // high, high, counts.shape[1] // wide, wide)
    return parts.sum((1, 3), dtype=torch.int32)


def _percent(share: float) -> str:
    """A share that is neither rounded to all nor to nothing."""
    if share > 0.995:
        return f"{share:.2%}" if share < 0.9999 else "nearly all"
    return f"{share:.1%}" if share >= 0.001 else f"{100 * share:.1g}%"
