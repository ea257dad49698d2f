# SPDX-License-Identifier: MIT
"""reference.py's bounds: answers with the roundings that real kernels cannot avoid pass, coarser ones do not."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.problems import models
from tests.problems.folders import GEMMS, case_id, generate, problem, small_cases

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


@pytest.mark.parametrize(("m", "n", "k"), [(64, 256, 128), (64, 128, 256), (48, 64, 2048)])
@pytest.mark.parametrize("name", GEMMS)
def test_tensor_cores_that_keep_13_bits_pass(name: str, m: int, n: int, k: int) -> None:
    data = generate(name, {"m": m, "n": n, "k": k}, seed=4, fp8="e4m3fn")
    assert shares(name, data, models.short_accumulator_gemm(*data[:4]))[0] < 0.5


def like_activations(k: int) -> Any:
    """fp8_gemm data whose sums grow with K: no operand is negative, as after a ReLU, and one scale serves all of K."""
    a, b, a_scale, b_scale, c = generate("fp8_gemm", {"m": 8, "n": 16, "k": k}, seed=4, fp8="e4m3fn")
    a, b = (x.float().abs().to(x.dtype) for x in (a, b))
    return a, b, torch.full_like(a_scale, 0.75), torch.full_like(b_scale, -1.5), c


def test_without_promotion_a_long_k_is_refused() -> None:
    """What the promotion to fp32 is for: at K = 16384 the sum outgrows the products, which are then cut to nothing."""
    data = like_activations(16384)
    check = problem("fp8_gemm").reference.check_implementation
    assert shares("fp8_gemm", data, models.short_accumulator_gemm(*data[:4]))[0] < 0.5
    passed, message = check(data, models.short_accumulator_gemm(*data[:4], promoted=16384))
    assert not passed, message
    assert "128 of 128" in message, "not here and there: every element is wrong"


@pytest.mark.parametrize("name", GEMMS)
def test_without_promotion_a_long_k_is_refused_on_the_inputs_that_are_generated(name: str) -> None:
    data = generate(name, {"m": 16, "n": 64, "k": 4096}, seed=4, fp8="e4m3fn")
    assert shares(name, data, models.short_accumulator_gemm(*data[:4]))[0] < 0.5
    passed, message = problem(name).reference.check_implementation(data, models.unpromoted_gemm(*data[:4]))
    assert not passed, message


def test_values_and_scales_of_the_challenge_are_standard_normal() -> None:
    a, b, a_scale, b_scale, _ = generate("amd_fp8_mm", {"m": 64, "n": 128, "k": 2048}, seed=4, fp8="e4m3fnuz")
    for x in (a.float(), b.float(), b[5:128:16].float(), a_scale, b_scale):
        assert abs(float(x.mean())) < 4 / x.numel() ** 0.5
        assert float(x.square().mean()) == pytest.approx(1.0, abs=6 / x.numel() ** 0.5)


def test_the_challenges_tolerance_is_widened_for_nvidias_format_alone() -> None:
    reference = problem("amd_fp8_mm").reference
    for fp8, same in (("e4m3fnuz", True), ("e4m3fn", False)):
        (c,) = reference.expected(generate("amd_fp8_mm", {"m": 8, "n": 16, "k": 256}, seed=4, fp8=fp8))
        plain = reference.ATOL + reference.RTOL * c.values.abs()
        assert bool((c.bound <= 1.0001 * plain).all()) == same


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
    assert shares(name, data, (left @ right.T).to(torch.bfloat16))[0] <= 0.41
    assert shares(name, data, (left.flip(1) @ right.flip(1).T).to(torch.bfloat16))[0] <= 0.41


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
    """An implementation that is not ours: torch's flash kernel for CPUs. It rounds dk and dv to the dtype after every
    32 rows, and once more per head of a group, which is coarser than the sums in fp32 that the bound is for."""
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
    dq_share, *others = shares("flash_attention_bwd", data, (whole, dk, dv))
    assert dq_share < 0.5
    assert max(others) < 0.75


@FEW
@given(st.integers(1, 90), st.integers(1, 200), st.sampled_from([64, 128, 256]), st.integers(0, 1), st.integers(0, 1),
       st.integers(0, 99))
def test_gradients_from_rounded_weights_pass_twice_over(
    sq: int, sk: int, dim: int, causal: int, half: int, seed: int,
) -> None:
    case = {"batch": 1, "sq": sq, "sk": sk, "hq": 4, "hk": 2, "dim": dim, "causal": causal, "half": half}
    data = generate("flash_attention_bwd", case, seed)
    assert max(shares("flash_attention_bwd", data, models.tiled_gradients(*data))) < 0.5


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
        tokens = models.fp8_tokens(data, b)[0, :, 0]
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
        tokens = models.fp8_tokens(data, b).to(dtype)
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
@pytest.mark.parametrize("maximum", ["none", "first", "unmended"])
def test_a_maximum_that_does_not_follow_passes_plain_cases_only(maximum: str, half: int) -> None:
    """Why there are steep cases: exponentials of plain scores fit into fp32 whatever is subtracted."""
    case = {"batch": 1, "sq": 48, "sk": 520, "hq": 4, "hk": 2, "dim": 64, "causal": 0, "half": half}
    for steep in (0, 1):
        data = generate("flash_attention", case | {"steep": steep}, seed=3)
        check = problem("flash_attention").reference.check_implementation
        assert check(data, models.online_attention(*data, weights=torch.float32))[0]
        answer = models.online_attention(*data, weights=torch.float32, maximum=maximum)
        assert check(data, answer)[0] == (not steep)


@pytest.mark.parametrize("name", ["flash_attention", "flash_attention_varlen", "mla_decode", "mla_decode_fp8"])
def test_steep_scores_leave_fp32_on_both_sides_and_jump(name: str) -> None:
    case = next(case for case in problem(name).tests if case.params.get("steep"))
    lse = problem(name).reference.expected(generate(name, case.params))[1].values
    assert bool((lse > 128 * math.log(2.0)).any())
    assert bool((lse < -150 * math.log(2.0)).any())
    assert bool(((lse > -40) & (lse < 40)).any())
    levels = problem("flash_attention").reference.STEEP_LEVELS
    steps = [above - below for below, above in pairwise(levels)]
    assert min(steps) > 24 * math.log(2.0)
    assert max(steps) > 100 * math.log(2.0)


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
