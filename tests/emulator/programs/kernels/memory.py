# SPDX-License-Identifier: MIT
"""Where data goes: gathers, scatters, transposes, windows, atomics, random numbers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.programs.program import Expected, Launch, ceil_div, integers, normal, poisoned, program


@triton.jit
def embedding_kernel(table, ids, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = at < columns
    source = tl.load(ids + row)
    tl.store(out + row * columns + at, tl.load(table + source * columns + at, mask=live), mask=live)


@program("embedding_lookup")
def embedding(generator):
    words, columns, count = 50, 200, 17
    table, ids = normal(generator, words, columns, dtype=torch.bfloat16), integers(
        generator, 0, words, count, dtype=torch.int64)
    return Launch(embedding_kernel, (count,), {"table": table, "ids": ids, "columns": columns,
                                               "out": poisoned(count, columns, dtype=torch.bfloat16)},
                  {"out": Expected(table[ids])}, {"BLOCK": 256})


@triton.jit
def permute_kernel(x, sources, targets, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    source = tl.load(sources + at, mask=live, other=0)
    target = tl.load(targets + at, mask=live, other=0)
    tl.store(out + target, tl.load(x + source, mask=live), mask=live)


@program("gather_scatter", buffer_ops=True)
@program("gather_scatter_global", buffer_ops=False)
def gather_scatter(generator, buffer_ops):
    n = 700
    x = normal(generator, n)
    sources, targets = (torch.randperm(n, generator=generator) for _ in range(2))
    wanted = torch.empty_like(x)
    wanted[targets] = x[sources]
    return Launch(permute_kernel, (ceil_div(n, 256),),
                  {"x": x, "sources": sources.int(), "targets": targets, "out": poisoned(n), "n": n},
                  {"out": Expected(wanted)}, {"BLOCK": 256}, buffer_ops=buffer_ops)


@triton.jit
def gather_kernel(x, index, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), AXIS))


@program("gather_along_rows", axis=1)
@program("gather_along_columns", axis=0)
def gather(generator, axis):
    rows, columns = 32, 128
    x, index = normal(generator, rows, columns), integers(generator, 0, (rows, columns)[axis], rows, columns)
    return Launch(gather_kernel, (1,), {"x": x, "index": index, "out": poisoned(rows, columns)},
                  {"out": Expected(x.gather(axis, index.long()))}, {"ROWS": rows, "COLUMNS": columns, "AXIS": axis})


@triton.jit
def transpose_kernel(x, out, rows, columns, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    v = tl.load(x + i[:, None] * columns + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < columns))
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(v), mask=(j[:, None] < columns) & (i[None, :] < rows))


@program("transpose_f32", dtype=torch.float32)
@program("transpose_i8", dtype=torch.int8)
@program("transpose_f16", dtype=torch.float16, options={"num_warps": 8})
def transpose(generator, dtype, options=None):
    rows, columns, tile = 100, 70, 64
    x = integers(generator, -100, 100, rows, columns, dtype=dtype)
    return Launch(transpose_kernel, (2, 2), {"x": x, "out": poisoned(columns, rows, dtype=dtype), "rows": rows,
                                             "columns": columns},
                  {"out": Expected(x.T.contiguous())}, {"TILE": tile}, options or {})


@triton.jit
def depthwise_kernel(x, weight, out, length, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for tap in tl.static_range(TAPS):
        source = at + tap - TAPS + 1
        v = tl.load(x + channel * length + source, mask=(source >= 0) & (source < length), other=0.0)
        total += v * tl.load(weight + channel * TAPS + tap)
    tl.store(out + channel * length + at, total, mask=at < length)


@program("causal_depthwise_conv1d")
def depthwise(generator):
    channels, length, taps = 5, 300, 4
    x, weight = normal(generator, channels, length), normal(generator, channels, taps)
    wanted = torch.nn.functional.conv1d(torch.nn.functional.pad(x, (taps - 1, 0)).double()[None],
                                        weight.double()[:, None], groups=channels)[0]
    return Launch(depthwise_kernel, (channels, 3), {"x": x, "weight": weight, "out": poisoned(channels, length),
                                                    "length": length},
                  {"out": Expected(wanted.float(), rtol=1e-5, atol=1e-5)}, {"TAPS": taps, "BLOCK": 128})


@triton.jit
def described_copy_kernel(x, out, rows, columns, TILE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [TILE, TILE])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [TILE, TILE])
    i, j = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    target.store([i, j], source.load([i, j]))


@program("tensor_descriptor_copy")
def described_copy(generator):
    rows, columns, tile = 50, 72, 32
    x = normal(generator, rows, columns)
    return Launch(described_copy_kernel, (2, 3), {"x": x, "out": poisoned(rows, columns), "rows": rows,
                                                  "columns": columns}, {"out": Expected(x)}, {"TILE": tile})


@triton.jit
def histogram_kernel(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS, mask=at < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@program("histogram")
def histogram(generator):
    n, bins = 1500, 64
    x = integers(generator, 0, bins, n)
    return Launch(histogram_kernel, (3,), {"x": x, "out": torch.zeros(bins, dtype=torch.int32), "n": n},
                  {"out": Expected(x.bincount(minlength=bins).int())}, {"BINS": bins, "BLOCK": 512})


@triton.jit
def atomics_kernel(x, where, added, most, least, both, any_, other, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    v = tl.load(x + at, mask=live, other=0)
    slot = tl.load(where + at, mask=live, other=0)
    tl.atomic_add(added + slot, v, mask=live)
    tl.atomic_max(most + slot, v, mask=live)
    tl.atomic_min(least + slot, v, mask=live)
    tl.atomic_and(both + slot, v, mask=live)
    tl.atomic_or(any_ + slot, v, mask=live)
    tl.atomic_xor(other + slot, v, mask=live)


@program("atomics_i32", dtype=torch.int32)
@program("atomics_i64", dtype=torch.int64)
@program("atomics_i32_flat", dtype=torch.int32, buffer_ops=False)
def atomics(generator, dtype, buffer_ops=True):
    n, slots, limit = 1000, 13, torch.iinfo(dtype)
    # Not negative: where lanes of a wave meet in a slot, Triton 3.9 combines them by the unsigned maximum and minimum.
    x, where = integers(generator, 0, 2**30, n, dtype=dtype), integers(generator, 0, slots, n)
    starts = {"added": 0, "most": limit.min, "least": limit.max, "both": -1, "any_": 0, "other": 0}
    wanted = {name: torch.full((slots,), start, dtype=dtype) for name, start in starts.items()}
    targets = {name: value.clone() for name, value in wanted.items()}
    for value, slot in zip(x, where.tolist(), strict=True):
        wanted["added"][slot] += value
        wanted["most"][slot] = torch.maximum(wanted["most"][slot], value)
        wanted["least"][slot] = torch.minimum(wanted["least"][slot], value)
        wanted["both"][slot] &= value
        wanted["any_"][slot] |= value
        wanted["other"][slot] ^= value
    return Launch(atomics_kernel, (4,), {"x": x, "where": where, **targets, "n": n},
                  {name: Expected(value) for name, value in wanted.items()}, {"BLOCK": 256}, buffer_ops=buffer_ops)


@triton.jit
def atomic_add_kernel(x, where, out, most, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    v = tl.load(x + at, mask=live, other=0.0)
    slot = tl.load(where + at, mask=live, other=0)
    tl.atomic_add(out + slot, v, mask=live)
    if x.dtype.element_ty == tl.float32:
        tl.atomic_max(most + slot, v, mask=live)


@program("atomic_add_f32", dtype=torch.float32)
@program("atomic_add_f32_flat", dtype=torch.float32, buffer_ops=False)
@program("atomic_add_f64", dtype=torch.float64)
@program("atomic_add_f16", dtype=torch.float16)
@program("atomic_add_bf16", dtype=torch.bfloat16)
def atomic_add(generator, dtype, buffer_ops=True):
    n, slots = 500, 20
    x, where = integers(generator, -3, 4, n, dtype=dtype), integers(generator, 0, slots, n)   # sums are exact
    wanted = torch.zeros(slots, dtype=torch.float64).index_add(0, where.long(), x.double()).to(dtype)
    most = torch.full((slots,), -float("inf"), dtype=dtype)
    high = most.clone()
    if dtype is torch.float32:
        high = high.scatter_reduce(0, where.long(), x, "amax")
    return Launch(atomic_add_kernel, (2,), {"x": x, "where": where, "out": torch.zeros(slots, dtype=dtype),
                                            "most": most, "n": n},
                  {"out": Expected(wanted), "most": Expected(high)}, {"BLOCK": 256}, buffer_ops=buffer_ops)


@triton.jit
def locked_kernel(lock, counter, seen):
    block = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    value = tl.load(counter, volatile=True)
    tl.store(counter, value + block)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
    tl.store(seen + block, 1)


@program("atomic_cas_lock")
def locked(generator):
    blocks = 9
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.full((1,), 5, dtype=torch.int32)
    return Launch(locked_kernel, (blocks,), {"lock": lock, "counter": counter,
                                             "seen": poisoned(blocks, dtype=torch.int32)},
                  {"lock": Expected(torch.zeros(1, dtype=torch.int32)),
                   "counter": Expected(torch.full((1,), 5 + sum(range(blocks)), dtype=torch.int32)),
                   "seen": Expected(torch.ones(blocks, dtype=torch.int32))})


@triton.jit
def random_kernel(out, words, seed, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(out + at, tl.rand(seed, at), mask=live)
    tl.store(words + at, tl.randint(seed, at), mask=live)


@triton.jit
def dropout_kernel(x, out, probability, seed, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    kept = tl.rand(seed, at) > probability
    v = tl.load(x + at, mask=live)
    tl.store(out + at, tl.where(kept, v / (1 - probability), 0.0), mask=live)


def philox(seed: int, n: int) -> torch.Tensor:
    """First word of Philox4x32-10 for counters (i, 0, 0, 0), i < n (Salmon et al., SC 2011), as int64."""
    mask = 2**32 - 1
    c = [torch.arange(n, dtype=torch.int64), *(torch.zeros(n, dtype=torch.int64) for _ in range(3))]
    key = [seed & mask, seed >> 32]

    def product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
        low = a * (b & 0xFFFF)                      # 48 bits
        high = a * (b >> 16) + (low >> 16)
        return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)

    for _ in range(10):
        (high0, low0), (high1, low1) = product(c[0], 0xD2511F53), product(c[2], 0xCD9E8D57)
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[0]


def uniform(words: torch.Tensor) -> torch.Tensor:
    """The number in [0, 1) that Triton makes of a 32-bit word."""
    signed = words.to(torch.int32)
    return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10


@program("philox_rand")
def rand(generator):
    n, seed = 900, 1234
    words = philox(seed, n)
    return Launch(random_kernel, (4,), {"out": poisoned(n), "words": poisoned(n, dtype=torch.int32), "seed": seed,
                                        "n": n},
                  {"out": Expected(uniform(words)), "words": Expected(words.to(torch.int32))}, {"BLOCK": 256})


@program("dropout")
def dropout(generator):
    n, seed, probability = 1000, 77, 0.25
    x = normal(generator, n)
    kept = uniform(philox(seed, n)) > probability
    return Launch(dropout_kernel, (4,), {"x": x, "out": poisoned(n), "probability": probability, "seed": seed, "n": n},
                  {"out": Expected(torch.where(kept, x / (1 - probability), 0.0), rtol=3e-7)}, {"BLOCK": 256})
