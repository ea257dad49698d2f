# SPDX-License-Identifier: MIT
"""All randomness of a judgement, from one secret: seeds of ``generate_input``, and noise for guards and poison.

Every seed and every stream of noise is a keyed hash of its own label. Whoever knows some of them, or all that was drawn
from them, learns nothing about the others: for that they would need the secret, which has 128 bits and is never shown
to a worker.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from scoring.record import Case

SECRET_BITS = 128


def draw() -> int:
    """A new secret."""
    return secrets.randbits(SECRET_BITS)


class SeedSource:
    """Seeds and noise of one label, all made from ``base``: the same two give the same sequence again."""

    def __init__(self, base: int, label: str = ""):
        self.base = base
        self.label = label
        self._key = hashlib.sha256(f"warpwave/{base}".encode()).digest()
        self._count = self._noises = 0
        self._labels: Counter[str] = Counter()

    def of(self, case: Case) -> SeedSource:
        """A source for one case: the same seeds whichever cases came before, others if the case occurs again."""
        label = f"{case.group}/{case.name}"
        self._labels[label] += 1
        return SeedSource(self.base, f"{label}#{self._labels[label]}")

    def next(self, bits: int = 63) -> int:
        """The next seed for ``generate_input``, of so many bits."""
        self._count += 1
        return self._number(f"seed/{self._count}", bits)

    def label_seed(self, what: str) -> int:
        """A seed of 31 bits for ``what``, which takes none of the others."""
        return self._number(f"label/{what}", 31)

    def noise(self) -> Noise:
        """Noise of its own: neither seeds nor other noise follow from it."""
        self._noises += 1
        return Noise(self._hash(f"noise/{self._noises}", 32))

    def _number(self, what: str, bits: int) -> int:
        return int.from_bytes(self._hash(what, 8), "big") >> (64 - bits)

    def _hash(self, what: str, size: int) -> bytes:
        message = f"{self.label}\0{what}".encode()
        return hashlib.blake2b(message, key=self._key, digest_size=size).digest()


class Noise:
    """Random bytes on any device. Every fill has a generator of its own, seeded by a hash of ``key`` and a number.

    A worker sees all bytes of a fill and may search for its generator's seed. That seed gives the same bytes again and
    nothing else.
    """

    def __init__(self, key: bytes):
        self._key = key
        self._fills = 0

    def next(self) -> int:
        """The number of the next fill."""
        self._fills += 1
        return self._fills

    def fill(self, count: int, device: torch.device, number: int) -> torch.Tensor:
        """``count`` random bytes: uint8 on ``device``, always the same for the same ``number``.

        They are drawn eight at a time: a host's generator takes as long for one as for eight.
        """
        digest = hashlib.blake2b(number.to_bytes(8, "big"), key=self._key, digest_size=8).digest()
        rng = torch.Generator(device=device).manual_seed(int.from_bytes(digest, "big") >> 1)
        words = torch.empty(-(-count // 8), dtype=torch.int64, device=device)
        return words.random_(-(1 << 63), None, generator=rng).view(torch.uint8)[:count]
