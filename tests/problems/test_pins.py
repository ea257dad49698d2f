# SPDX-License-Identifier: MIT
"""Every constant of every bound is held from both sides.

From below: what honest arithmetic needs is less than half (test_honest_kernels.py, test_flash_fp8.py, test_layer.py).
From above: a wrong answer, off by little, is refused, and passes once the constant alone is four times as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.problems import models
from tests.problems.folders import generate, problem
from tests.problems.test_experts import CASE as EXPERTS
from tests.problems.test_experts import close_scores, layer_without
from tests.problems.test_flash_fp8 import LONG, fp8_kernel, one_key_above

Outputs = tuple[Tensor, ...]


def cut(x: Tensor, bits: int) -> Tensor:
    """fp32 ``x`` rounded to a significand of ``bits``, the leading one included."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


@dataclass(frozen=True)
class Pin:
    """What holds ``constant`` of a problem's BOUND: a mistake, of ``case``."""

    problem: str
    constant: str
    mistake: str
    case: dict[str, Any]
    answer: Callable[[Any], Outputs]
    fp8: str | None = None
    changed: Callable[[Any], Any] = lambda data: data        # what generate_input gives is no place to see it

    def __str__(self) -> str:
        return f"{self.problem}-{self.constant}-{self.mistake.replace(' ', '_')}"


def bound_of(name: str) -> dict[str, float]:
    """The constants that a reference's bounds are made of: its own, or attention's."""
    reference = problem(name).reference
    own = getattr(reference, "BOUND", None)
    return own if own is not None else reference.attention_bounds.__globals__["BOUND"]


def exact(name: str, change: Callable[..., Outputs]) -> Callable[[Any], Outputs]:
    """``change`` of the exact values, unrounded."""
    def answer(data: Any) -> Outputs:
        expectations = problem(name).reference.expected(data)
        values = change(*(expectation.values.float() for expectation in expectations))
        return tuple(value.to(e.dtype) for value, e in zip(values, expectations, strict=True))

    return answer


FLASH = {"batch": 1, "sq": 70, "sk": 300, "hq": 4, "hk": 2, "dim": 64, "causal": 0, "half": 0}
PACKED = {"batch": 2, "tq": 70, "tk": 300, "lens": "tail", "hq": 4, "hk": 2, "dim": 64, "causal": 0, "half": 0}
DECODE = {"batch": 1, "sq": 1, "hq": 64, "sk": 300, "lens": "uniform", "causal": 0}
FP8 = {"batch": 1, "sq": 40, "sk": 400, "hq": 2, "hk": 1, "dim": 64, "causal": 0, "scales": "head", "rotated": 0,
       "outliers": 0}
LOSS = {"tokens": 60, "hidden": 64, "vocab": 700, "ignored": "some", "smoothing": 0}
CODES = {"batch": 1, "tokens": 1024, "heads": 4, "dim": 64, "rotated": 1, "scales": "head", "outliers": 0}
SCALES = CODES | {"batch": 2, "tokens": 32, "heads": 128, "rotated": 0}       # many, for bf16 has few numbers
LAYER = {"batchsize": 2, "dim": 96, "dq": 64, "prefill": 70}


def weights_of(bits: int) -> Callable[[Any], Outputs]:
    """Attention whose weights have a significand of ``bits`` before they meet v."""
    return lambda data: models.online_attention(*data, round_weights=lambda p: cut(p, bits))


def packed(data: Any, **options: Any) -> Outputs:
    q, k, v, starts_q, starts_k, _, _, causal, scale = data
    o, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    for b in range(len(starts_q) - 1):
        rows, keys = slice(*starts_q[b : b + 2].tolist()), slice(*starts_k[b : b + 2].tolist())
        made = models.online_attention(q[None, rows], k[None, keys], v[None, keys], causal, scale, **options)
        o[rows], lse[:, rows] = made[0][0], made[1][0]
    return o, lse


def decode(data: Any, **options: Any) -> Outputs:
    q, kv_cache, block_table, seqlens, causal, scale = data
    o = torch.empty(*q.shape[:3], 512, dtype=torch.bfloat16)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1])
    for b, length in enumerate(seqlens.tolist()):
        tokens = kv_cache[block_table[b].long()].reshape(1, -1, 1, 576)[:, :length]
        o[b], lse[b] = (part[0] for part in models.online_attention(
            q[b : b + 1], tokens, tokens[..., :512], causal, scale, **options))
    return o, lse


def decoded_with(tokens_of: Callable[[Tensor], Tensor], **options: Any) -> Callable[[Any], Outputs]:
    """mla_decode_fp8 from tokens [.., 576] changed by ``tokens_of``: (keys, values)."""
    def answer(data: Any) -> Outputs:
        q, _, _, seqlens, causal, scale = data
        o = torch.empty(*q.shape[:3], 512, dtype=torch.bfloat16)
        lse = torch.empty(q.shape[0], q.shape[2], q.shape[1])
        for b in range(len(seqlens)):
            keys, values = tokens_of(models.fp8_tokens(data, b).float())
            o[b], lse[b] = (part[0] for part in models.online_attention(
                q[b : b + 1], keys, values[..., :512], causal, scale, **options))
        return o, lse

    return answer


def narrow_keys(data: Any) -> Outputs:
    """lse of keys whose latent columns have 5 bits; o as it should be."""
    def keys(tokens: Tensor) -> Any:
        return torch.cat([cut(tokens[..., :512], 5), tokens[..., 512:]], -1), tokens

    return decoded_with(lambda tokens: (tokens, tokens))(data)[0], decoded_with(keys)(data)[1]


def narrow_values(tokens: Tensor) -> Any:
    return tokens, cut(tokens, 4)


def equal_scores(data: Any) -> Any:
    """Queries of zeros."""
    return torch.zeros_like(data[0]), *data[1:]


def equal_weights_of_one_sign(data: Any) -> Any:
    """Queries of zeros, and no value below zero, so that o is large against the spread of its parts."""
    q, k, v, *rest = data
    return torch.zeros_like(q), k, v.float().abs().to(v.dtype), *rest


def layer(of_y: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any], Outputs]:
    """The layer with another y: of the exact one, and of the deviation (in units of the roundoff) roundings carry."""
    def answer(data: Any) -> Outputs:
        y, row = problem("amd_mla_decode").reference.expected(data)
        constants, u = bound_of("amd_mla_decode"), 2.0**-8
        spread = (y.bound / u - constants["output"] * y.values.abs()) / constants["carried"]
        return of_y(y.values, spread).to(torch.bfloat16), row.rounded()

    return answer


def rough_layer(y: Tensor, spread: Tensor) -> Tensor:
    """Every rounding on the way of two or three bits less: 0.42 of a unit, times six."""
    noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    return y + 0.42 * 6 * 2.0**-8 * spread * noise


def narrow_row(data: Any) -> Outputs:
    y, _ = problem("amd_mla_decode").reference.expected(data)
    row = cut(data[1].float(), 6) @ data[0]["KV_proj_down_weight"].float().T
    return y.rounded(), row.to(torch.bfloat16)


def rough_experts(data: Any) -> Outputs:
    """Roundings inside the experts of two or three bits less: the deviation they carry to y, times six."""
    constants, reference = bound_of("amd_moe"), problem("amd_moe").reference
    y, = reference.expected(data)
    constants["carried"] += 1
    spread = reference.expected(data)[0].bound - y.bound
    constants["carried"] -= 1
    noise = torch.randn(y.values.shape, generator=torch.Generator().manual_seed(1))
    return ((y.values + 0.42 * 6 * spread * noise).to(torch.float16),)


def gradients(data: Any, **options: Any) -> Outputs:
    return models.tiled_gradients(*data, **options)


def gemm(data: Any, bits: int = 13) -> Outputs:
    return (models.short_accumulator_gemm(*data[:4], bits=bits),)


def last_layer(
    round_weights: Callable[[Tensor], Tensor] = lambda a: a, round_lse: Callable[[Tensor], Tensor] = lambda lse: lse,
) -> Callable[[Any], Outputs]:
    """linear_cross_entropy with p - y and log-sum-exp changed on the way."""
    def answer(data: Any) -> Outputs:
        reference = problem("linear_cross_entropy").reference
        logits = reference.survey(data)
        _, a = reference.weights(data, slice(None), slice(None), round_lse(logits.lse.float()).double())
        a = round_weights(a.float()).double() / logits.count
        return (a @ data[1].double()).to(torch.bfloat16), (a.T @ data[0].double()).float(), logits.loss.float()

    return answer


def recoded(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Any], Outputs]:
    """hadamard_quantize with codes of ``change(y, scale, norms of the rows of x)``, y exact, and right scales."""
    def answer(data: Any) -> Outputs:
        reference = problem("hadamard_quantize").reference
        x, signs, rotated, _, largest = data
        scale = reference.expected(data)[1].values
        each = reference.spread_out(scale, x.shape[1])
        v = change(reference.turned(x, signs, rotated), each, x.double().norm(dim=-1, keepdim=True))
        return reference.coded(v, largest), scale.float()

    return answer


def far_codes(data: Any) -> Outputs:
    """Codes four steps off where either neighbour is right."""
    codes, scale = problem("hadamard_quantize").reference.expected(data)
    return torch.where(codes.bound > 0, codes.values + 4, codes.values).to(torch.uint8), scale.rounded()


def flat_gemm(factor: float) -> Callable[[Any], Outputs]:
    return exact("fp8_gemm", lambda c: (c * factor,))


PINS = [
    *(Pin(name, "output", "a sum 2 percent short", case, exact(name, lambda o, lse: (o * (1 + 5 * 2.0**-8), lse)))
      for name, case in (("flash_attention", FLASH), ("flash_attention_varlen", PACKED), ("mla_decode", DECODE))),
    *(Pin(name, "weights", "weights of two bits less", case, answer) for name, case, answer in (
        ("flash_attention", FLASH, weights_of(6)), ("flash_attention", FLASH | {"half": 1}, weights_of(9)),
        ("flash_attention_varlen", PACKED, lambda data: packed(data, round_weights=lambda p: cut(p, 6))),
        ("mla_decode", DECODE, lambda data: decode(data, round_weights=lambda p: cut(p, 5))))),
    *(Pin(name, "lse", "a key in 400 not counted", case, exact(name, lambda o, lse: (o, lse - 1 / 400)))
      for name, case in (("flash_attention", FLASH), ("flash_attention_varlen", PACKED), ("mla_decode", DECODE))),
    *(Pin("flash_attention_bwd", "output", f"output {at} 2 percent large", FLASH, exact(
        "flash_attention_bwd", lambda *all, at=at: tuple(
            x * (1 + 5 * 2.0**-8) if i == at else x for i, x in enumerate(all)))) for at in range(3)),
    Pin("flash_attention_bwd", "weights", "p and ds of two bits less", FLASH,
        lambda data: gradients(data, round_weights=lambda p: cut(p, 6))),
    Pin("flash_attention_bwd", "weights", "p and ds of two bits less", FLASH | {"half": 1},
        lambda data: gradients(data, round_weights=lambda p: cut(p, 9))),
    Pin("flash_attention_bwd", "sums", "delta of 16 bits", FLASH | {"sk": 1, "sq": 300},
        lambda data: gradients(data, round_delta=lambda x: cut(x, 16))),
    Pin("flash_attention_fp8", "output", "a sum 3 percent short", FP8,
        exact("flash_attention_fp8", lambda o, lse: (o * (1 + 7 * 2.0**-8), lse)), changed=equal_weights_of_one_sign),
    Pin("flash_attention_fp8", "weights", "weights of two bits less", FP8,
        lambda data: fp8_kernel(data, round_weights=lambda p: cut(p.float(), 2).double())),
    Pin("flash_attention_fp8", "floor", "small weights lost", LONG,
        lambda data: fp8_kernel(data, scaled=2.0**4),
        changed=lambda data: one_key_above(data, math.log(2**16 / 3.9))),
    Pin("flash_attention_fp8", "scores", "scores of an adder of 8 bits", FP8,
        lambda data: fp8_kernel(data, bits=8)),
    Pin("flash_attention_fp8", "adder", "steep scores of an adder of 11 bits", FP8 | {"dim": 256, "steep": 1},
        lambda data: fp8_kernel(data, bits=11)),
    Pin("flash_attention_fp8", "lse", "a key in 400 not counted", FP8 | {"sk": 64 * 64, "sq": 8},
        exact("flash_attention_fp8", lambda o, lse: (o, lse - 1 / 400))),
    Pin("mla_decode_fp8", "output", "a sum 2 percent short", DECODE,
        exact("mla_decode_fp8", lambda o, lse: (o * (1 + 6 * 2.0**-8), lse))),
    Pin("mla_decode_fp8", "noise", "values of four bits less", DECODE, decoded_with(narrow_values)),
    Pin("mla_decode_fp8", "keys", "keys of three bits less", DECODE, narrow_keys),
    Pin("mla_decode_fp8", "lse", "a key in 400 not counted", DECODE,
        exact("mla_decode_fp8", lambda o, lse: (o, lse - 1 / 400)), changed=equal_scores),
    Pin("amd_mla_decode", "output", "3 percent large", LAYER, layer(lambda y, spread: y * (1 + 8 * 2.0**-8))),
    Pin("amd_mla_decode", "carried", "rough roundings", LAYER, layer(rough_layer)),
    Pin("amd_mla_decode", "row", "x of two bits less", LAYER, narrow_row),
    Pin("amd_moe", "output", "a percent large", EXPERTS, exact("amd_moe", lambda y: (y * (1 + 14 * 2.0**-11),))),
    Pin("amd_moe", "carried", "rough roundings", EXPERTS, rough_experts),
    Pin("amd_moe", "choice", "the expert behind the last one", EXPERTS, lambda data: (layer_without(data, 2),),
        changed=lambda data: close_scores(data, 8.0)),
    Pin("linear_cross_entropy", "output", "dx 3 percent large", LOSS,
        exact("linear_cross_entropy", lambda dx, dw, loss: (dx * (1 + 7.5 * 2.0**-8), dw, loss))),
    Pin("linear_cross_entropy", "weights", "p - y of two bits less", LOSS,
        last_layer(round_weights=lambda a: cut(a, 6))),
    Pin("linear_cross_entropy", "sums", "log-sum-exp of 16 bits", LOSS | {"steep": 1},
        last_layer(round_lse=lambda lse: cut(lse, 16))),
    Pin("linear_cross_entropy", "loss", "a column in 400 not counted", LOSS,
        exact("linear_cross_entropy", lambda dx, dw, loss: (dx, dw, loss - 1 / 400))),
    Pin("hadamard_quantize", "step", "codes four steps off near a middle", CODES, far_codes),
    Pin("hadamard_quantize", "tie", "quotients of 12 bits", SCALES,
        recoded(lambda y, scale, norm: y / scale * (1 + 2.0**-12.1))),
    Pin("hadamard_quantize", "sums", "rotated sums of 20 bits", CODES,
        recoded(lambda y, scale, norm: (y + 3 * 2.0**-20 * norm * (y > scale)) / scale)),
    Pin("hadamard_quantize", "scale", "a scale of 20 bits", CODES | {"rotated": 0},
        exact("hadamard_quantize", lambda codes, scale: (codes, scale * (1 + 2.0**-20)))),
    Pin("fp8_gemm", "output", "2 percent large", {"m": 40, "n": 200, "k": 256}, flat_gemm(1.02), "e4m3fn"),
    Pin("fp8_gemm", "adder", "an adder of 11 bits", {"m": 64, "n": 256, "k": 128}, lambda data: gemm(data, 11),
        "e4m3fn"),
]


def shares(name: str, data: Any, outputs: Outputs) -> list[float]:
    utils = problem(name).utils
    expectations = problem(name).reference.expected(data)
    return [utils.examine(e, output)[0] for e, output in zip(expectations, outputs, strict=True)]


@pytest.mark.parametrize("pin", PINS, ids=str)
def test_a_constant_four_times_as_large_lets_a_mistake_pass(pin: Pin, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pin.changed(generate(pin.problem, pin.case, seed=5, fp8=pin.fp8))
    outputs = pin.answer(data)
    assert max(shares(pin.problem, data, outputs)) > 1
    constants = bound_of(pin.problem)
    monkeypatch.setitem(constants, pin.constant, 4 * constants[pin.constant])
    assert max(shares(pin.problem, data, outputs)) <= 1


def test_every_constant_has_a_pin() -> None:
    pinned = {(pin.problem, pin.constant) for pin in PINS}
    for name in sorted({pin.problem for pin in PINS}):
        for constant in bound_of(name):
            assert (name, constant) in pinned, f"{name}: nothing is known to hold {constant}"
