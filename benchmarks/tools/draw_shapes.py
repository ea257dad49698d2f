# SPDX-License-Identifier: MIT
"""Shapes of model layers, drawn by a seed: rows for tables that no plan was fitted to.

    python benchmarks/tools/draw_shapes.py fp8_gemm --seed 2026 --count 24 [--tokens 1-512]

Prints the `--case` arguments of ``python -m scoring run``, one per line. Draw after the code is fixed, by a seed that
nobody chose: the first eight hex digits of the commit that is measured.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from typing import NamedTuple


class Model(NamedTuple):
    """Sizes of a published model: hidden and intermediate width, heads of queries and of keys, head_dim."""

    hidden: int
    inner: int
    heads: int
    key_heads: int
    dim: int


MODELS = (
    Model(4096, 14336, 32, 8, 128),      # Llama 3.1 8B
    Model(8192, 28672, 64, 8, 128),      # Llama 3.1 70B
    Model(3584, 18944, 28, 4, 128),      # Qwen 2.5 7B
    Model(5120, 27648, 40, 8, 128),      # Qwen 2.5 32B
    Model(5120, 25600, 64, 8, 128),      # Qwen 3 32B
    Model(5120, 32768, 32, 8, 128),      # Mistral Small 24B
    Model(3584, 14336, 16, 8, 256),      # Gemma 2 9B
    Model(4608, 36864, 32, 16, 128),     # Gemma 2 27B
    Model(768, 3072, 12, 12, 64),        # GPT-2
    Model(1024, 4096, 16, 16, 64),       # BERT large
)
DIVISIONS = (1, 2, 4, 8)                 # GPUs that share a layer
LATENT_HEADS = (16, 64, 128)             # DeepSeek-V2-Lite; V3's 128 heads on two GPUs and on one


def between(rng: random.Random, low: int, high: int) -> int:
    """An integer whose logarithm is uniform."""
    return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))


def gemm(rng: random.Random, tokens: tuple[int, int]) -> dict[str, int | str] | None:
    model, parts = rng.choice(MODELS), rng.choice(DIVISIONS)
    heads = model.heads * model.dim
    n, k = rng.choice((
        ((heads + 2 * model.key_heads * model.dim) // parts, model.hidden), (model.hidden, heads // parts),
        (2 * model.inner // parts, model.hidden), (model.hidden, model.inner // parts)))
    return {"m": between(rng, *tokens), "n": n, "k": k} if k % 128 == 0 and n % 16 == 0 else None


def attention(rng: random.Random, tokens: tuple[int, int], grouped: bool) -> dict[str, int | str] | None:
    """Whole sequences; ``tokens`` of them in all sequences of a batch."""
    model, parts = rng.choice(MODELS), rng.choice(DIVISIONS)
    if model.heads % parts or model.key_heads % parts:
        return None
    length = between(rng, 256, 16384)
    batch = between(rng, *tokens) // length
    heads = model.heads // parts
    if not batch:
        return None
    return {"batch": batch, "sq": length, "sk": length, "hq": heads,
            "hk": model.key_heads // parts if grouped else heads, "dim": model.dim, "causal": rng.randrange(2)}


def packed(rng: random.Random, tokens: tuple[int, int]) -> dict[str, int | str] | None:
    """Sequences packed one behind the other, of equal lengths or with a long tail."""
    case = attention(rng, tokens, grouped=True)
    if case is None:
        return None
    total = between(rng, *tokens)
    batch = between(rng, 2, 64)
    if total < 64 * batch:
        return None
    lens = rng.choice(("uniform", "tail"))
    return {"batch": batch, "tq": total, "tk": total, "lens": lens, "hq": case["hq"], "hk": case["hk"],
            "dim": case["dim"], "causal": case["causal"], "half": 0}


def latent(rng: random.Random, tokens: tuple[int, int]) -> dict[str, int | str] | None:
    """Requests that decode; ``tokens`` in the caches of all of them."""
    length = between(rng, 256, 32768)
    batch = min(between(rng, *tokens) // length, 256)
    queries, lens = rng.choice((1, 1, 1, 2)), rng.choice(("uniform", "ragged", "ragged"))
    if not batch:
        return None
    return {"batch": batch, "sq": queries, "hq": rng.choice(LATENT_HEADS), "sk": length, "lens": lens,
            "causal": int(queries > 1)}


def layer(rng: random.Random, tokens: tuple[int, int]) -> dict[str, int | str] | None:
    """DeepSeek-V3's attention layer in decoding; ``tokens`` in the caches of all requests."""
    length = between(rng, 256, 16384)
    batch = min(between(rng, *tokens) // length, 128)
    return {"batchsize": batch, "dim": 7168, "dq": 1536, "prefill": length} if batch else None


def columns(rng: random.Random, tokens: tuple[int, int]) -> dict[str, int | str] | None:
    """A product of operands with m and n contiguous, which the contest has in multiples of 64."""
    case = gemm(rng, tokens)
    if case is None:
        return None
    rows = -(-int(case["m"]) // 64) * 64
    return {**case, "m": rows} if int(case["n"]) % 64 == 0 else None


#: What draws a case of each problem.
DRAW: dict[str, Callable[[random.Random, tuple[int, int]], dict[str, int | str] | None]] = {
    "fp8_gemm": gemm,
    "amd_fp8_mm": columns,
    "amd_mla_decode": layer,
    "flash_attention": lambda rng, tokens: _with(attention(rng, tokens, grouped=True), half=0),
    "flash_attention_bwd": lambda rng, tokens: _with(attention(rng, tokens, grouped=True), half=0),
    "flash_attention_fp8": lambda rng, tokens: _with(
        attention(rng, tokens, grouped=False), scales="head", rotated=0, outliers=0),
    "flash_attention_varlen": packed,
    "mla_decode": latent,
    "mla_decode_fp8": latent,
}


def _with(case: dict[str, int | str] | None, **more: int | str) -> dict[str, int | str] | None:
    return None if case is None else {**case, **more}


def drawn(problem: str, seed: int, count: int, tokens: tuple[int, int]) -> list[dict[str, int | str]]:
    """``count`` different cases of a problem."""
    rng = random.Random(seed)
    found: list[dict[str, int | str]] = []
    while len(found) < count:
        case = DRAW[problem](rng, tokens)
        if case is not None and case not in found:
            found.append(case)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=sorted(DRAW))
    parser.add_argument("--seed", type=lambda text: int(text, 0), required=True)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--tokens", default="1-512", metavar="LOW-HIGH",
                        help="rows of a product, of all sequences, or of all caches")
    options = parser.parse_args()
    low, high = map(int, options.tokens.split("-"))
    for case in drawn(options.problem, options.seed, options.count, (low, high)):
        print("--case", ",".join(f"{name}={value}" for name, value in case.items()))


if __name__ == "__main__":
    main()
