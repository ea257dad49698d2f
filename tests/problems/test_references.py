# SPDX-License-Identifier: MIT
"""reference.py: right against mathematics written down again another way, whole or sampled, and honest kernels pass."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.problems import models
from tests.problems.folders import GEMMS, NAMES, case_id, generate, problem, same, small_cases, small_parameters

FEW = settings(max_examples=15, deadline=None)


def shares(name: str, data: Any, outputs: Any) -> list[float]:
    """The largest error of every output as a share of its bound; fails the test if one is refused."""
    utils = problem(name).utils
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    found = []
    for expectation, output in zip(problem(name).reference.expected(data), outputs, strict=True):
        share, mismatch = utils.examine(expectation, output)
        assert mismatch is None, str(mismatch)
        found.append(share)
    return found


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
        bound = 2.0**-7 * (left @ right.T).abs() + 2.0**-12 * (left.abs() @ right.abs().T)
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
        tokens = fp8_tokens(data, b)
        o, lse = models.attention(q[b : b + 1], tokens, tokens[..., :512], causal, scale)
        torch.testing.assert_close(want_o.values[b].double(), o[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(want_lse.values[b].double(), lse[0], rtol=1e-6, atol=1e-6)


def fp8_tokens(data: Any, request: int) -> torch.Tensor:
    """[1, tokens, 1, 576] fp64: a request's tokens read from the bytes one by one."""
    _, kv_cache, block_table, seqlens, *_ = data
    tokens = torch.empty(int(seqlens[request]), 576, dtype=torch.float64)
    for t, token in enumerate(tokens):
        row = kv_cache[int(block_table[request, t // 64]), t % 64, 0].view(torch.uint8)
        scales = row[512:528].view(torch.float32).double()
        token[:512] = row[:512].view(kv_cache.dtype).double() * scales.repeat_interleave(128)
        token[512:] = row[528:].view(torch.bfloat16).double()
    return tokens[None, :, None]


def test_what_a_rounded_score_does_to_a_row() -> None:
    """``drift`` and ``lse_drift`` against finite differences, key by key."""
    rng = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in ((3, 16), (20, 16), (20, 8)))
    visible, scale = torch.tensor([20, 7, 1]), 0.7
    rows = problem("mla_decode_fp8").reference.drifting_rows(q, k, v, visible, scale)
    for i, seen in enumerate(visible.tolist()):
        scores = scale * q[i] @ k[:seen].T
        sizes = scale * (q[i].square() @ k[:seen].square().T).sqrt()
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


@pytest.mark.parametrize("name", NAMES)
def test_references_in_fp32_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on GPUs with hardly any fp64: values within a hundredth of the bounds, bounds within a thousandth."""
    reference = problem(name).reference
    helpers = ("block_scaled_product", "attention_rows", "drifting_rows")
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
            assert bool((difference <= want.bound[finite] / 100).all())
            torch.testing.assert_close(found.bound[finite], want.bound[finite], rtol=1e-3, atol=0)


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


# ---- honest kernels: answers with the roundings that real ones cannot avoid -----------------------------------------

@pytest.mark.parametrize(("m", "n", "k"), [(64, 256, 128), (64, 128, 256), (48, 64, 2048)])
@pytest.mark.parametrize("name", GEMMS)
def test_tensor_cores_that_keep_13_bits_pass(name: str, m: int, n: int, k: int) -> None:
    data = generate(name, {"m": m, "n": n, "k": k}, seed=4, fp8="e4m3fn")
    assert shares(name, data, models.short_accumulator_gemm(*data[:4]))[0] < 0.75


def like_activations(k: int) -> Any:
    """fp8_gemm data whose sums grow with K: no operand is negative, as after a ReLU, and one scale serves all of K."""
    a, b, a_scale, b_scale, c = generate("fp8_gemm", {"m": 8, "n": 16, "k": k}, seed=4, fp8="e4m3fn")
    a, b = (x.float().abs().to(x.dtype) for x in (a, b))
    return a, b, torch.full_like(a_scale, 0.75), torch.full_like(b_scale, -1.5), c


def test_without_promotion_a_long_k_is_refused() -> None:
    """What the promotion to fp32 is for: at K = 16384 the sum outgrows the products, which are then cut to nothing."""
    data = like_activations(16384)
    check = problem("fp8_gemm").reference.check_implementation
    assert shares("fp8_gemm", data, models.short_accumulator_gemm(*data[:4]))[0] < 0.75
    passed, message = check(data, models.short_accumulator_gemm(*data[:4], promoted=16384))
    assert not passed, message
    assert "128 of 128" in message, "not here and there: every element is wrong"


def test_without_promotion_a_short_k_passes() -> None:
    """So that the refusal above is of the length, not of this data."""
    data = like_activations(256)
    assert shares("fp8_gemm", data, models.short_accumulator_gemm(*data[:4], promoted=256))[0] < 1


@pytest.mark.parametrize("name", GEMMS)
def test_fp32_products_in_any_order_pass(name: str) -> None:
    data = generate(name, {"m": 40, "n": 200, "k": 1024}, seed=4, fp8="e4m3fnuz")
    a, b, a_scale, b_scale, _ = data
    left = a.float() * a_scale.repeat_interleave(128, 1)
    right = b.float() * b_scale.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)
    assert shares(name, data, (left @ right.T).to(torch.bfloat16))[0] <= 0.51
    assert shares(name, data, (left.flip(1) @ right.flip(1).T).to(torch.bfloat16))[0] <= 0.51


@pytest.mark.parametrize("case", small_cases("flash_attention"), ids=case_id)
def test_torchs_own_attention_passes_twice_over(case: Any) -> None:
    """An implementation that is not ours: scaled_dot_product_attention's flash kernel for CPUs, P in bf16 or fp16."""
    q, k, v, causal, scale = data = generate("flash_attention", case.params, seed=6)
    sq, sk, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    heads = [x.transpose(1, 2).repeat_interleave(repeat, 1) for x, repeat in ((q, 1), (k, group), (v, group))]
    mask = torch.ones(sq, sk, dtype=torch.bool).tril(sk - sq) if causal else None
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        o = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask, scale=scale).transpose(1, 2)
    if mask is not None:
        o = o.masked_fill(~mask.any(1)[None, :, None, None], 0)          # torch leaves rows without keys undefined
    lse = problem("flash_attention").reference.expected(data)[1].rounded()        # this function returns none
    assert shares("flash_attention", data, (o.contiguous(), lse))[0] < 0.5


@FEW
@given(st.integers(1, 90), st.integers(1, 300), st.sampled_from([64, 128, 256]), st.integers(0, 1), st.integers(0, 1),
       st.integers(0, 99))
def test_an_online_softmax_with_rounded_weights_passes_twice_over(
    sq: int, sk: int, dim: int, causal: int, half: int, seed: int,
) -> None:
    case = {"batch": 1, "sq": sq, "sk": sk, "hq": 4, "hk": 2, "dim": dim, "causal": causal, "half": half}
    data = generate("flash_attention", case, seed)
    o_share, lse_share = shares("flash_attention", data, models.online_attention(*data))
    assert o_share < 0.5
    assert lse_share < 0.05


@pytest.mark.parametrize("case", small_cases("flash_attention_bwd"), ids=case_id)
def test_torchs_own_gradients_pass(case: Any) -> None:
    """An implementation that is not ours: torch's flash kernel for CPUs; heads of a group are rounded, then summed."""
    q, k, v, o, dout, lse, causal, scale = data = generate("flash_attention_bwd", case.params, seed=6)
    sq, sk, hk, group = q.shape[1], k.shape[1], k.shape[2], q.shape[2] // k.shape[2]
    mask = torch.zeros(sq, sk, dtype=q.dtype)
    if causal:
        mask.masked_fill_(torch.ones(sq, sk, dtype=torch.bool).triu(sk - sq + 1), -torch.inf)
    seen = mask[:, 0] == 0                                   # torch leaves rows that see no key undefined
    rows = [x.transpose(1, 2)[:, :, seen].contiguous() for x in (dout, q, o)]
    heads = [x.transpose(1, 2).repeat_interleave(group, 1) for x in (k, v)]
    dq, *of_heads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        rows[0], rows[1], *heads, rows[2], lse[:, :, seen].contiguous(), 0.0, False, attn_mask=mask[seen], scale=scale)
    whole = torch.zeros_like(q)
    whole[:, seen] = dq.transpose(1, 2)
    dk, dv = (x.unflatten(1, (hk, group)).float().sum(2).transpose(1, 2).to(q.dtype).contiguous() for x in of_heads)
    assert max(shares("flash_attention_bwd", data, (whole, dk, dv))) < 0.75


@FEW
@given(st.integers(1, 90), st.integers(1, 200), st.sampled_from([64, 128]), st.integers(0, 1), st.integers(0, 1),
       st.integers(0, 99))
def test_gradients_from_rounded_weights_pass_twice_over(
    sq: int, sk: int, dim: int, causal: int, half: int, seed: int,
) -> None:
    case = {"batch": 1, "sq": sq, "sk": sk, "hq": 4, "hk": 2, "dim": dim, "causal": causal, "half": half}
    data = generate("flash_attention_bwd", case, seed)
    assert max(shares("flash_attention_bwd", data, models.tiled_gradients(*data))) < 0.55


def test_gradients_from_weights_in_fp8_do_not_pass() -> None:
    case = {"batch": 1, "sq": 64, "sk": 512, "hq": 2, "hk": 2, "dim": 64, "causal": 0, "half": 0}
    data = generate("flash_attention_bwd", case)
    _, message = problem("flash_attention_bwd").reference.check_implementation(
        data, models.tiled_gradients(*data, weights=torch.float8_e5m2))
    assert all(f"{name}: " in message and "are wrong" in message for name in ("dq", "dk", "dv"))


@pytest.mark.parametrize("case", small_cases("mla_decode"), ids=case_id)
def test_decoding_with_rounded_weights_passes_twice_over(case: Any) -> None:
    data = generate("mla_decode", case.params, seed=8)
    q, kv_cache, block_table, seqlens, causal, scale = data
    o = torch.empty(*q.shape[:3], 512, dtype=torch.bfloat16)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1])
    for b, length in enumerate(seqlens.tolist()):
        tokens = kv_cache[block_table[b].long()].reshape(1, -1, 1, 576)[:, :length]
        o[b : b + 1], lse[b : b + 1] = models.online_attention(q[b : b + 1], tokens, tokens[..., :512], causal, scale)
    o_share, lse_share = shares("mla_decode", data, (o, lse))
    assert o_share < 0.5
    assert lse_share < 0.05


@pytest.mark.parametrize("case", small_cases("mla_decode_fp8"), ids=case_id)
def test_decoding_from_a_cache_dequantised_to_bf16_passes_twice_over(case: Any) -> None:
    data = generate("mla_decode_fp8", case.params, seed=8)
    o_share, lse_share = shares("mla_decode_fp8", data, decoded(data, torch.bfloat16))
    assert o_share < 0.5
    assert lse_share < 0.5


@pytest.mark.parametrize("case", small_cases("mla_decode_fp8")[:6], ids=case_id)
def test_decoding_with_scales_in_fp32_is_within_the_bounds_of_mla_decode(case: Any) -> None:
    """A kernel that rounds no dequantised column needs nothing of what the bound allows for it."""
    data = generate("mla_decode_fp8", case.params, seed=8)
    reference = problem("mla_decode_fp8").reference
    answers = decoded(data, torch.float32)
    rows = [torch.arange(size) for size in data[0].shape[:3]]
    for b, i, h in torch.cartesian_prod(*rows)[:: 7].tolist():
        tokens = fp8_tokens(data, b)[0, :, 0]
        visible = len(tokens) - (data[0].shape[1] - 1 - i if data[4] else 0)
        exact = models_rows(data[0][b, i, h], tokens, visible, data[5])
        o_bound, lse_bound = reference.drifting_rows.__globals__["attention_bounds"](*exact, torch.bfloat16)
        assert bool(((answers[0][b, i, h].double() - exact[0][0]).abs() <= o_bound[0]).all())
        difference = answers[1][b, h, i].double() - exact[2][0]
        assert visible <= 0 or abs(float(difference)) <= float(lse_bound[0])


def models_rows(q: torch.Tensor, tokens: torch.Tensor, visible: int, scale: float) -> Any:
    attention_rows = problem("mla_decode").reference.attention_rows
    return attention_rows(q[None], tokens, tokens[:, :512], torch.tensor([visible]), scale)


def decoded(data: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) of an fp8 cache dequantised to ``dtype``, weights in bf16."""
    q, _, _, seqlens, causal, scale = data
    o = torch.empty(*q.shape[:3], 512, dtype=torch.bfloat16)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1])
    for b in range(len(seqlens)):
        tokens = fp8_tokens(data, b).to(dtype)
        o[b : b + 1], lse[b : b + 1] = models.online_attention(q[b : b + 1], tokens, tokens[..., :512], causal, scale)
    return o, lse


def test_queries_in_fp8_do_not_pass() -> None:
    case = {"batch": 1, "sq": 1, "hq": 16, "sk": 500, "lens": "uniform", "causal": 0}
    data = generate("mla_decode_fp8", case)
    q = data[0].float()
    size = q.abs().amax(-1, keepdim=True) / 448
    narrow = ((q / size).to(torch.float8_e4m3fn).float() * size).to(torch.bfloat16)
    passed, message = problem("mla_decode_fp8").reference.check_implementation(
        data, decoded((narrow, *data[1:]), torch.bfloat16))
    assert not passed
    assert message.startswith("o: ")


def test_weights_in_fp8_do_not_pass() -> None:
    """The bound is no licence to compute in a narrower type than the data's."""
    case = {"batch": 1, "sq": 64, "sk": 512, "hq": 2, "hk": 2, "dim": 64, "causal": 0, "half": 0}
    data = generate("flash_attention", case)
    answer = models.online_attention(*data, weights=torch.float8_e4m3fn)
    passed, message = problem("flash_attention").reference.check_implementation(data, answer)
    assert not passed
    assert message.startswith("o: ")


@pytest.mark.parametrize("half", [0, 1])
def test_leaving_out_the_last_64_of_16384_keys_is_seen(half: int) -> None:
    case = {"batch": 1, "sq": 1, "sk": 16384, "hq": 2, "hk": 2, "dim": 64, "causal": 0, "half": half}
    data = q, k, v, causal, scale = generate("flash_attention", case)
    passed, message = problem("flash_attention").reference.check_implementation(data, models.online_attention(*data))
    assert passed, message
    shorter = models.online_attention(q, k[:, :-64], v[:, :-64], causal, scale)
    passed, message = problem("flash_attention").reference.check_implementation(data, shorter)
    assert not passed
    assert "lse: 2 of 2" in message
