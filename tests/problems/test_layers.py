# SPDX-License-Identifier: MIT
"""linear_cross_entropy and hadamard_quantize: references against torch, honest answers below half of each bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.problems.folders import case_id, generate, problem, small_cases
from tests.problems.test_honest_kernels import shares

LOSS = {"tokens": 60, "hidden": 64, "vocab": 700, "ignored": "some", "smoothing": 0}
ROTATED = {"batch": 1, "tokens": 300, "heads": 2, "dim": 128, "rotated": 1, "scales": "block", "outliers": 1}


def by_autograd(data: Any) -> tuple[Tensor, ...]:
    """(dx, dw, loss) of torch's own cross entropy in fp64."""
    x, w, target, smoothing = data
    leaves = [part.double().requires_grad_() for part in (x, w)]
    loss = torch.nn.functional.cross_entropy(
        leaves[0] @ leaves[1].T, target.long(), label_smoothing=smoothing, reduction="sum")
    loss = loss / max(1, int((target >= 0).sum()))
    return *torch.autograd.grad(loss, leaves), loss.detach()[None]


def in_chunks(data: Any, round_logits: Any = lambda z: z, rows: int = 32) -> tuple[Tensor, ...]:
    """As kernels do it: chunks of tokens in fp32, p - y rounded to bf16, dw added up from chunk to chunk."""
    x, w, target, smoothing = data
    counted = target >= 0
    share = 1 / max(1, int(counted.sum()))
    dx, dw, loss = torch.zeros(x.shape), torch.zeros(w.shape), torch.zeros(1)
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        z = round_logits(x[part].float() @ w.float().T)
        lse = torch.logsumexp(z, 1)
        y = torch.nn.functional.one_hot(target[part].clamp_min(0).long(), len(w)) * (1 - smoothing) + smoothing / len(w)
        a = (((z - lse[:, None]).exp() - y) * counted[part, None]).to(torch.bfloat16).float()
        dx[part] = a @ w.float() * share
        dw += a.T @ x[part].float() * share
        loss += ((lse - (y * z).sum(1)) * counted[part]).sum() * share
    return dx.to(torch.bfloat16), dw, loss


@pytest.mark.parametrize("case", small_cases("linear_cross_entropy"), ids=case_id)
def test_the_loss_is_that_of_torch(case: Any) -> None:
    data = generate("linear_cross_entropy", case.params, seed=3)
    for found, want in zip(problem("linear_cross_entropy").reference.expected(data), by_autograd(data), strict=True):
        torch.testing.assert_close(found.values.double(), want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", small_cases("linear_cross_entropy"), ids=case_id)
def test_chunks_with_rounded_weights_pass_twice_over(case: Any) -> None:
    for seed in (3, 4, 5):
        data = generate("linear_cross_entropy", case.params, seed)
        assert max(shares("linear_cross_entropy", data, in_chunks(data))) < 0.5


def test_logits_in_bf16_do_not_pass() -> None:
    data = generate("linear_cross_entropy", LOSS, seed=3)
    passed, message = problem("linear_cross_entropy").reference.check_implementation(
        data, in_chunks(data, lambda z: z.to(torch.bfloat16).float()))
    assert not passed
    assert "dx" in message
    assert "dw" in message


def test_the_end_of_the_vocabulary_has_weight() -> None:
    """Each token's likely columns: together about half of p, one of them among the last 64."""
    data = generate("linear_cross_entropy", LOSS | {"vocab": 5000, "ignored": "none"}, seed=3)
    reference = problem("linear_cross_entropy").reference
    p, _ = reference.weights(data, slice(None), slice(None), reference.survey(data).lse)
    assert 0.05 < float(p[:, 4992:].sum(1).median()) < 0.8
    assert 0.1 < float(p.amax(1).median()) < 0.9


def test_steep_logits_overflow_without_their_maximum() -> None:
    x, w, *_ = generate("linear_cross_entropy", LOSS | {"steep": 1}, seed=3)
    z = x.float() @ w.float().T
    assert float(z.amax()) > 200
    assert float(z.amin()) < -200


def fast_transform(rows: Tensor) -> Tensor:
    """Rows times Sylvester's matrix, by log2 steps of sums in fp32."""
    size = rows.shape[-1]
    y, width = rows.clone(), 1
    while width < size:
        pairs = y.unflatten(-1, (size // (2 * width), 2, width))
        y = torch.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2).flatten(-3)
        width *= 2
    return y


@pytest.mark.parametrize("fp8", ["e4m3fn", "e4m3fnuz"])
@pytest.mark.parametrize("case", small_cases("hadamard_quantize", 2e6), ids=case_id)
def test_the_definition_in_fp32_passes_twice_over(case: Any, fp8: str) -> None:
    """By a product with the matrix, and by a fast transform with a reciprocal of the scale."""
    reference = problem("hadamard_quantize").reference
    x, signs, rotated, scales, largest = data = generate("hadamard_quantize", case.params, seed=3, fp8=fp8)
    size, dtype = x.shape[-1], reference.FLAVOURS[largest]
    by_matrix = x.float() @ (signs[:, None] * reference.hadamard(size, x.device)) if rotated else x.float()
    by_steps = fast_transform(x.float() * signs) * size**-0.5 if rotated else x.float()
    quantise = reference.shared.__globals__["quantise"]
    for y in (by_matrix, by_steps):
        codes, scale = quantise(y, scales, dtype)
        for made in (codes, (y * (1 / reference.spread_out(scale, x.shape[1]))).clamp(-largest, largest).to(dtype)):
            as_bytes = made.view(torch.uint8)
            answer = torch.where(as_bytes == 0x80, 0, as_bytes), scale
            assert max(shares("hadamard_quantize", data, answer)) < 0.5


def test_few_codes_may_be_either() -> None:
    reference = problem("hadamard_quantize").reference
    codes, _ = reference.expected(generate("hadamard_quantize", ROTATED, seed=3))
    assert 0 < int((codes.bound > 0).sum()) < 2e-3 * codes.bound.numel()


def test_a_rotation_spreads_outliers() -> None:
    reference = problem("hadamard_quantize").reference
    x, signs, *_ = generate("hadamard_quantize", ROTATED, seed=3)
    y = reference.turned(x, signs, True)
    torch.testing.assert_close(y.norm(dim=-1), x.double().norm(dim=-1))
    assert float(y.abs().max()) < 0.5 * float(x.abs().max())
