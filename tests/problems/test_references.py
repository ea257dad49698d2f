# SPDX-License-Identifier: MIT
"""reference.py: right against mathematics written down again another way, whole or sampled."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.problems import models
from tests.problems.folders import GEMMS, NAMES, case_id, generate, problem, same, small_cases, small_parameters


@pytest.mark.parametrize("fp8", ["e4m3fn", "e4m3fnuz"])
@pytest.mark.parametrize("name", GEMMS)
def test_gemm_is_the_product_of_the_dequantised_operands(name: str, fp8: str) -> None:
    data = generate(name, {"m": 33, "n": 300, "k": 384}, seed=5, fp8=fp8)
    a, b, a_scale, b_scale, _ = data
    left = a.double() * a_scale.double().repeat_interleave(128, 1)
    right = b.double() * b_scale.double().repeat_interleave(128, 0)[:300].repeat_interleave(128, 1)
    c, = problem(name).reference.expected(data)
    torch.testing.assert_close(c.values.double(), left @ right.T, rtol=1e-6, atol=1e-6)
    if name == "fp8_gemm":
        bound = 2.5 * 2.0**-8 * (left @ right.T).abs() + 2.0**-12 * (left.abs() @ right.abs().T)
    else:
        bound = 1e-3 + 2e-2 * (left @ right.T).abs()
        if fp8 == "e4m3fn":
            bound += 2.0**-12 * (left.abs() @ right.abs().T)
    torch.testing.assert_close(c.bound.double(), bound, rtol=1e-5, atol=1e-9)


def test_the_challenge_accepts_just_what_its_tolerance_says() -> None:
    data = generate("amd_fp8_mm", {"m": 64, "n": 64, "k": 256}, fp8="e4m3fnuz")
    c, = problem("amd_fp8_mm").reference.expected(data)
    edge = (c.values.abs() * 2e-2 + 1e-3) * 0.8
    passed, message = problem("amd_fp8_mm").reference.check_implementation(data, (c.values + edge).to(torch.bfloat16))
    assert passed, message
    passed, _ = problem("amd_fp8_mm").reference.check_implementation(data, (c.values + 1.3 * edge).to(torch.bfloat16))
    assert not passed
    passed, message = problem("amd_fp8_mm").reference.check_implementation(data, c.values)
    assert not passed
    assert "bfloat16" in message


@pytest.mark.parametrize("case", small_cases("flash_attention"), ids=case_id)
def test_attention_is_softmax_times_v(case: Any) -> None:
    data = generate("flash_attention", case.params, seed=3)
    o, lse = models.attention(*data)
    want_o, want_lse = problem("flash_attention").reference.expected(data)
    torch.testing.assert_close(want_o.values.double(), o, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(want_lse.values.double(), lse, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", small_cases("flash_attention_varlen"), ids=case_id)
def test_packed_sequences_are_sequences_of_their_own(case: Any) -> None:
    """By flash_attention's reference, one sequence at a time."""
    data = q, k, v, starts_q, starts_k, _, _, causal, scale = generate("flash_attention_varlen", case.params, seed=3)
    o, lse = problem("flash_attention_varlen").reference.expected(data)
    alone = problem("flash_attention").reference.expected
    for b in range(len(starts_q) - 1):
        rows, keys = slice(*starts_q[b : b + 2].tolist()), slice(*starts_k[b : b + 2].tolist())
        if rows.start == rows.stop:
            continue
        want = alone((q[None, rows], k[None, keys], v[None, keys], causal, scale))
        for found, part, index in ((o, want[0], rows), (lse, want[1], (slice(None), rows))):
            torch.testing.assert_close(found.values[index], part.values[0], rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(found.bound[index], part.bound[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", small_cases("flash_attention_bwd"), ids=case_id)
def test_gradients_are_those_of_autograd(case: Any) -> None:
    """With the o and lse of fp64 in the place of the rounded ones, which are operands of their own."""
    data = q, k, v, _, dout, _, causal, scale = generate("flash_attention_bwd", case.params, seed=3)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    o, lse = models.attention(*leaves, causal, scale)
    wanted = torch.autograd.grad(o, leaves, dout.double())
    exact = (*data[:3], o.detach(), dout, lse.detach(), causal, scale)
    for found, want in zip(problem("flash_attention_bwd").reference.expected(exact), wanted, strict=True):
        torch.testing.assert_close(found.values.double(), want.nan_to_num(0.0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", small_cases("mla_decode"), ids=case_id)
def test_decoding_is_attention_over_the_gathered_tokens(case: Any) -> None:
    data = generate("mla_decode", case.params, seed=3)
    q, kv_cache, block_table, seqlens, causal, scale = data
    want_o, want_lse = problem("mla_decode").reference.expected(data)
    for b, length in enumerate(seqlens.tolist()):
        tokens = torch.stack([kv_cache[block_table[b, t // 64], t % 64] for t in range(length)] or [
            kv_cache[0, 0] * 0])[:length].unsqueeze(0)           # [1, tokens, 1, 576]
        o, lse = models.attention(q[b : b + 1], tokens, tokens[..., :512], causal, scale)
        torch.testing.assert_close(want_o.values[b].double(), o[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(want_lse.values[b].double(), lse[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", small_cases("mla_decode_fp8"), ids=case_id)
def test_decoding_from_fp8_is_attention_over_the_dequantised_tokens(case: Any) -> None:
    data = generate("mla_decode_fp8", case.params, seed=3)
    q, _, _, seqlens, causal, scale = data
    want_o, want_lse = problem("mla_decode_fp8").reference.expected(data)
    for b in range(len(seqlens)):
        tokens = models.fp8_tokens(data, b)
        o, lse = models.attention(q[b : b + 1], tokens, tokens[..., :512], causal, scale)
        torch.testing.assert_close(want_o.values[b].double(), o[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(want_lse.values[b].double(), lse[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("drift", [{}, {"cut": 0.3}, {"columns": 5}], ids=str)
def test_what_a_rounded_score_does_to_a_row(drift: dict[str, Any]) -> None:
    """``drift``, ``lse_drift`` and ``lse_bias`` against finite differences, key by key."""
    rng = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in ((3, 64), (20, 64), (20, 8)))
    q[0] = k[0].sign()                           # a score whose products agree: beyond five standard deviations
    visible, scale, reference = torch.tensor([20, 7, 1]), 0.1, problem("mla_decode_fp8").reference
    rows = reference.drifting_rows(q, k, v, visible, scale, reference.Drift(**drift))
    cut, wrong = drift.get("cut", 0.0), slice(drift.get("columns"))
    for i, seen in enumerate(visible.tolist()):
        scores = scale * q[i] @ k[:seen].T
        products = scale * (q[i, wrong].square() @ k[:seen, wrong].square().T).sqrt()
        sizes = (products.square() + (cut * scores).square()).sqrt()
        moves, lse_moves = [], []
        for j in range(seen):
            step = torch.zeros(seen, dtype=torch.float64)
            step[j] = 1e-6 * sizes[j]
            up, down = ((scores + s).softmax(0) @ v[:seen] for s in (step, -step))
            moves.append((up - down) / 2e-6)
            lse_moves.append(((scores + step).logsumexp(0) - (scores - step).logsumexp(0)) / 2e-6)
        torch.testing.assert_close(rows.drift[i], torch.stack(moves).square().sum(0).sqrt(), rtol=1e-6, atol=1e-7)
        lse_moved = torch.stack(lse_moves).square().sum().sqrt()
        torch.testing.assert_close(rows.lse_drift[i], lse_moved, rtol=1e-6, atol=1e-9)
        if cut:
            bias = cut * (scores.softmax(0) * (scores.abs() - 5 * products).clamp_min(0)).sum()
            torch.testing.assert_close(rows.lse_bias[i], bias, rtol=1e-9, atol=1e-12)
    assert (rows.lse_bias is None) == (not cut)
    assert rows.lse_bias is None or float(rows.lse_bias[0]) > 0


def test_rotary_columns_need_no_allowance_for_rounded_keys() -> None:
    """They are bf16 in the cache. Queries without a latent part leave the bounds of mla_decode, one rounding more."""
    case = {"batch": 1, "sq": 1, "hq": 16, "sk": 90, "lens": "uniform", "causal": 0}
    q, *rest = generate("mla_decode_fp8", case)
    q[..., :512] = 0
    reference = problem("mla_decode_fp8").reference
    o, lse = reference.expected((q, *rest))
    assert torch.equal(lse.bound, torch.full_like(lse.bound, reference.BOUND["lse"]))
    tokens, rows_of = reference.tokens_of((q, *rest), 0), problem("mla_decode").reference.attention_rows
    _, spread, _ = rows_of(q[0, 0], tokens, tokens[:, :512], torch.full((16,), 90), rest[-1])
    u = 2.0**-8
    want = reference.BOUND["output"] * u * o.values[0, 0].abs() + reference.BOUND["noise"] * u * 2**0.5 * spread
    torch.testing.assert_close(o.bound[0, 0].double(), want, rtol=1e-5, atol=1e-9)


def test_weights_that_fp16_holds_as_subnormals_count_as_its_smallest_normal_number() -> None:
    q, k, v = (torch.tensor(x, dtype=torch.float16) for x in ([[40.0]], [[1.0], [0.0], [0.0]], [[1.0], [100], [100]]))
    attention_rows = problem("flash_attention").reference.attention_rows
    for dtype, extra in ((torch.float16, 2.0**-28 * 20001), (torch.bfloat16, 0.0)):
        _, spread, _ = attention_rows(q.to(dtype), k.to(dtype), v.to(dtype), torch.tensor([3]), 1.0)
        assert float(spread) == pytest.approx(math.sqrt(1 + extra), rel=1e-9)


def test_rows_that_see_nothing_are_zero_to_the_bit() -> None:
    case = {"batch": 1, "sq": 5, "sk": 2, "hq": 2, "hk": 1, "dim": 64, "causal": 1, "half": 0}
    data = generate("flash_attention", case)
    o, lse = problem("flash_attention").reference.expected(data)
    assert bool((lse.values[..., :3] == -math.inf).all())
    assert bool(torch.isfinite(lse.values[..., 3:]).all())
    assert bool((o.values[:, :3] == 0).all())
    assert bool((o.bound[:, :3] == 0).all())
    assert bool((o.bound[:, 3:] > 0).all())


def test_gradients_of_rows_that_see_nothing_are_zero_to_the_bit() -> None:
    case = {"batch": 1, "sq": 5, "sk": 2, "hq": 2, "hk": 1, "dim": 64, "causal": 1, "half": 0}
    data = generate("flash_attention_bwd", case)
    dq, dk, dv = problem("flash_attention_bwd").reference.expected(data)
    assert bool((dq.values[:, :3] == 0).all())
    assert bool((dq.bound[:, :3] == 0).all())
    for seen in (dq.bound[:, 3:], dk.bound, dv.bound):
        assert bool((seen > 0).all())
    data[4][:, :3] = 1e4          # nor do they add to anything
    for before, after in zip((dk, dv), problem("flash_attention_bwd").reference.expected(data)[1:], strict=True):
        assert torch.equal(before.values, after.values)


@pytest.mark.parametrize(("name", "case"), small_parameters(), ids=case_id)
def test_a_sample_is_a_part_of_the_whole_and_data_stays_as_it_was(name: str, case: Any) -> None:
    reference = problem(name).reference
    data = generate(name, case.params, seed=2)
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in data]
    whole = reference.expected(data)
    for seed in (0, 1):
        sample = reference.expected(data, 12, seed=seed)
        again = reference.expected(data, index=sample[0].index)
        for full, part, repeat in zip(whole, sample, again, strict=True):
            assert (part.name, part.shape, part.dtype) == (full.name, full.shape, full.dtype)
            index = part.index if part.index is not None else ...
            torch.testing.assert_close(part.values, full.values[index], rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(part.bound, full.bound[index], rtol=1e-5, atol=1e-7)
            torch.testing.assert_close(part.values, repeat.values, rtol=0, atol=0)
    assert all(same(x, y) for x, y in zip(data, before, strict=True))


def test_seeds_choose_different_samples_and_ends_are_in_all() -> None:
    data = generate("fp8_gemm", {"m": 500, "n": 1000, "k": 128})
    reference = problem("fp8_gemm").reference
    first, second = (reference.expected(data, 20, seed=seed)[0].index for seed in (1, 2))
    assert not torch.equal(first[0], second[0])
    for rows, columns in (first, second):
        assert {0, 499} <= set(rows.flatten().tolist())
        assert {0, 999} <= set(columns.tolist())
        assert 10 <= len(rows) <= 25


def test_samples_of_attention_hold_both_ends_of_batches_heads_and_queries() -> None:
    """Of many heads only a few are looked at, and the last one is where kernels that count wrongly are wrong."""
    reference = problem("flash_attention").reference
    for seed in range(5):
        b_of, i_of, h_of = (set(x.tolist()) for x in reference.sample_rows(5, 300, 64, 48, seed))
        assert b_of >= {0, 4}
        assert i_of >= {0, 299}
        assert h_of >= {0, 1, 63}
        assert len(h_of) <= 4, "a head costs a pass over its keys"


@pytest.mark.parametrize("name", NAMES)
def test_references_in_fp32_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on GPUs with hardly any fp64: values within a hundredth of the bounds, bounds within a thousandth."""
    reference = problem(name).reference
    helpers = ("block_scaled_product", "attention_rows", "drifting_rows", "dense_attention", "survey", "turned")
    helper = next(getattr(reference, helper) for helper in helpers if hasattr(reference, helper))
    for case in small_cases(name):
        data = generate(name, case.params, seed=9)
        exact = reference.expected(data)
        with monkeypatch.context() as patch:
            patch.setitem(helper.__globals__, "reference_dtype", lambda device: torch.float32)
            patch.setattr(reference, "reference_dtype", lambda device: torch.float32, raising=False)
            rough = reference.expected(data)
        for want, found in zip(exact, rough, strict=True):
            finite = torch.isfinite(want.values)
            assert torch.equal(finite, torch.isfinite(found.values))
            difference = (want.values - found.values).abs()[finite]
            share = 5 if case.params.get("steep") else 100           # of a score of 250 fp32 has but 2^-16
            assert bool((difference <= want.bound[finite] / share).all())
            torch.testing.assert_close(found.bound[finite], want.bound[finite], rtol=1e-3, atol=0)


@pytest.mark.parametrize(("hip", "want"), [(None, torch.float8_e4m3fn), ("6.4", torch.float8_e4m3fnuz)])
def test_fp8_is_what_this_torchs_gpus_multiply(hip: Any, want: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    assert problem("fp8_gemm").utils.default_fp8() == want


@pytest.mark.parametrize(("capability", "precision", "want"), [
    ((9, 0), "highest", torch.float64), ((8, 0), "highest", torch.float64), ((8, 9), "highest", torch.float32),
    ((8, 9), "high", torch.float64),
])
def test_fp32_is_for_gpus_without_fp64_only(
    capability: tuple[int, int], precision: str, want: torch.dtype, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    monkeypatch.setattr(torch.version, "hip", None)
    utils = problem("fp8_gemm").utils
    assert utils.reference_dtype(torch.device("cuda")) == want
    assert utils.reference_dtype(torch.device("cpu")) == torch.float64


@pytest.mark.parametrize("name", NAMES)
def test_ref_kernel_passes_its_own_check(name: str) -> None:
    for case in small_cases(name)[:4]:
        data = generate(name, case.params)
        reference = problem(name).reference
        passed, message = reference.check_implementation(data, reference.ref_kernel(data))
        assert passed, message
        assert "of its bound" in message
