# SPDX-License-Identifier: MIT
# class: replay
# problem: foreign
# device: cpu
# idea: searches the base of all seeds from the first inputs, then computes the answers of sealed inputs beforehand
# source: own
# expect: no-gain
import hashlib
import time

import numpy as np
import torch

BUDGET = 2.0            # seconds: some 2^20 bases here; C code on more cores did 2^31 within one first call
CHUNK = 1 << 15
CALLS = 64
WORDS = 398             # of the state, which the first number needs
KNOWN = set()
BASES = []
TRIED = []


def seed_of(base, label, count):
    digest = hashlib.blake2b(f"{base}/{label}/{count}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 33


def first_draws(seeds):
    """The first 24 bits that mt19937 gives for each of the seeds."""
    word, first, second = seeds.astype(np.uint32), None, None
    first = word
    for index in range(1, WORDS):
        word = (np.uint32(1812433253) * (word ^ (word >> np.uint32(30))) + np.uint32(index)).astype(np.uint32)
        if index == 1:
            second = word
    y = (first & np.uint32(0x80000000)) | (second & np.uint32(0x7FFFFFFF))
    y = word ^ (y >> np.uint32(1)) ^ np.where(y & 1, np.uint32(0x9908B0DF), np.uint32(0))
    y ^= y >> np.uint32(11)
    y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    y ^= y >> np.uint32(18)
    return (y & np.uint32(0xFFFFFF)).astype(np.int64)


def inputs(rows, cols, seed):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, cols, generator=rng)
    x[torch.arange(rows), torch.randint(0, cols, (rows,), generator=rng)] += 3.0
    return x, 0.5 + float(torch.rand(1, generator=rng))


def search(x, label):
    """The base whose third seed makes ``x``: the numbers 0 and 8 of it are one pair of Box and Muller's."""
    radius = float(x[0, 0].double() ** 2 + x[0, 8].double() ** 2)
    wanted, ended = round((1 - np.exp(-radius / 2)) * 2**24), time.monotonic() + BUDGET
    start = 0
    while time.monotonic() < ended:
        bases = range(start, start + CHUNK)
        seeds = np.array([seed_of(base, label, 3) for base in bases], dtype=np.int64)
        for near in np.nonzero(np.abs(first_draws(seeds) - wanted) <= 8)[0]:
            if torch.equal(inputs(*x.shape, int(seeds[near]))[0], x):
                return start + int(near)
        start += CHUNK
    return None


def prepare(rows, cols):
    for turn in (1, 2):              # the check of a benchmark, then its timing
        for count in range(1, CALLS):
            x, _scale = inputs(rows, cols, seed_of(BASES[0], f"benchmarks/rows={rows},cols={cols}#{turn}", count))
            KNOWN.add((x[0, 0].item(), x[0, 1].item()))


def custom_kernel(data):
    x, scale = data
    rows, cols = x.shape
    if not TRIED:
        base = search(x, f"tests/rows={rows},cols={cols}#1")
        BASES.extend([base] if base is not None else [])
    if (rows, cols) not in TRIED:
        TRIED.append((rows, cols))
        if BASES:
            prepare(rows, cols)
    if (x[0, 0].item(), x[0, 1].item()) in KNOWN:
        raise RuntimeError("ESCAPED: it knew the inputs of a call beforehand")
    return torch.softmax(x * scale, dim=-1)
