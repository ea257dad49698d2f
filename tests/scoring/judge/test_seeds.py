# SPDX-License-Identifier: MIT
"""Seeds and noise of a judgement: all follow from one secret, and none from the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scoring.judge import seeds
from scoring.judge.seeds import Noise, SeedSource
from scoring.problem import Problem

CPU = torch.device("cpu")
PROBLEM = Path(__file__).parents[3] / "problems" / "fp8_gemm"


@pytest.fixture(scope="module")
def utils():
    return Problem(PROBLEM).utils


def bits(values: list[int]) -> int:
    """How many bits of the values are ever set, and ever clear."""
    ones = zeros = 0
    for value in values:
        ones, zeros = ones | value, zeros | ~value
    return (ones & zeros & (1 << 200) - 1).bit_count()


def test_a_secret_has_128_bits():
    assert bits([seeds.draw() for _ in range(64)]) == 128


@pytest.mark.parametrize("width", [31, 63])
def test_seeds_never_repeat_and_can_be_repeated(width):
    source, again = SeedSource(42), SeedSource(42)
    drawn = [source.next(width) for _ in range(10_000)]
    assert len(set(drawn)) > 9_990
    assert bits(drawn) == width
    assert max(drawn) < 2**width
    assert [again.next(width) for _ in range(100)] == drawn[:100]
    assert SeedSource(43).next(width) != drawn[0]


def test_every_bit_of_the_secret_counts():
    base = seeds.draw()
    first = {SeedSource(base ^ (1 << bit)).next() for bit in range(128)}
    assert len(first) == 128
    assert SeedSource(base).next() not in first


def test_seeds_do_not_depend_on_the_noise_that_was_made():
    plain, noisy = SeedSource(7, "x"), SeedSource(7, "x")
    noisy.noise().fill(100, CPU, 1)
    assert [plain.next() for _ in range(5)] == [noisy.next() for _ in range(5)]


def test_noise_is_independent_and_can_be_had_again():
    source = SeedSource(7)
    one, two = source.noise(), source.noise()
    fills = [made.fill(1000, CPU, number).numpy().tobytes() for made in (one, two) for number in (1, 2)]
    assert len(set(fills)) == 4
    assert SeedSource(7).noise().fill(1000, CPU, 2).numpy().tobytes() == fills[1]
    assert [one.next(), one.next()] == [1, 2]
    assert abs(Noise(bytes(32)).fill(1 << 16, CPU, 1).float().mean() - 127.5) < 1.5


def test_a_long_seed_fills_the_whole_state_of_a_generator(utils):
    """Seeds that agree in the 32 bits that ``manual_seed`` takes give other numbers."""
    low = 0x1234_5678
    short = torch.rand(8, generator=torch.Generator().manual_seed(low))
    wide = [torch.rand(8, generator=utils.generator(high << 32 | low, CPU)) for high in (1, 2, 1)]
    assert torch.equal(wide[0], wide[2])
    assert not torch.equal(wide[0], wide[1])
    assert not any(torch.equal(short, drawn) for drawn in wide)
    words = utils.generator(1 << 62, CPU).get_state()[24 : 24 + 624 * 8].view(torch.int64)
    assert len(set(words.tolist())) > 620
    assert 0 <= int(words.min()) <= int(words.max()) < 2**32
    many = torch.rand(1 << 16, generator=utils.generator(1 << 62, CPU))
    assert abs(float(many.mean()) - 0.5) < 0.01


def test_a_short_seed_means_what_it_always_meant(utils):
    drawn = torch.rand(8, generator=utils.generator(12345, CPU))
    assert torch.equal(drawn, torch.rand(8, generator=torch.Generator().manual_seed(12345)))
