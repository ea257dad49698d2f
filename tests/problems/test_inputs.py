# SPDX-License-Identifier: MIT
"""generate_input and binding: data has the shapes, dtypes and layouts that kernel.h states, and the awkward values."""

from __future__ import annotations

import runpy
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.problems.folders import GEMMS, NAMES, ROOT, case_id, generate, problem, same, signature, small_parameters

FEW = settings(max_examples=25, deadline=None)

gemm_cases = st.fixed_dictionaries({
    "m": st.integers(1, 70), "n": st.integers(1, 300), "k": st.sampled_from([128, 256, 640])})
attention_cases = st.fixed_dictionaries({
    "batch": st.integers(1, 3), "sq": st.integers(1, 70), "sk": st.integers(1, 70), "hq": st.just(8),
    "hk": st.sampled_from([1, 2, 8]), "dim": st.sampled_from([64, 128, 256]), "causal": st.integers(0, 1),
    "half": st.integers(0, 1)})
fp8_attention_cases = st.fixed_dictionaries({
    "batch": st.integers(1, 3), "sq": st.integers(1, 140), "sk": st.integers(1, 140), "hq": st.just(4),
    "hk": st.sampled_from([1, 2, 4]), "dim": st.sampled_from([64, 128, 256]), "causal": st.integers(0, 1),
    "scales": st.sampled_from(["tensor", "head", "block"]), "rotated": st.integers(0, 1),
    "outliers": st.integers(0, 1)})
packed_cases = st.fixed_dictionaries({
    "batch": st.integers(1, 8), "tq": st.integers(1, 120), "tk": st.integers(1, 150),
    "lens": st.sampled_from(["uniform", "tail", "decode", "mixed"]), "hq": st.just(4), "hk": st.sampled_from([1, 2, 4]),
    "dim": st.sampled_from([64, 128]), "causal": st.integers(0, 1), "half": st.integers(0, 1)})
decode_cases = st.fixed_dictionaries({
    "batch": st.integers(1, 6), "sq": st.integers(1, 2), "hq": st.sampled_from([16, 64]), "sk": st.integers(1, 200),
    "lens": st.sampled_from(["uniform", "ragged", "mixed"]), "causal": st.integers(0, 1)})
quantize_cases = st.fixed_dictionaries({
    "batch": st.integers(1, 3), "tokens": st.integers(1, 300), "heads": st.integers(1, 3),
    "dim": st.sampled_from([64, 128, 256]), "rotated": st.integers(0, 1),
    "scales": st.sampled_from(["tensor", "head", "block"]), "outliers": st.integers(0, 1)})
loss_cases = st.fixed_dictionaries({
    "tokens": st.integers(1, 70), "hidden": st.sampled_from([64, 192]), "vocab": st.integers(1, 300),
    "ignored": st.sampled_from(["none", "some", "all"]), "smoothing": st.sampled_from([0, 100])})
CASES = {"hadamard_quantize": quantize_cases, "linear_cross_entropy": loss_cases,
         "fp8_gemm": gemm_cases, "amd_fp8_mm": gemm_cases, "flash_attention": attention_cases,
         "flash_attention_bwd": attention_cases, "mla_decode": decode_cases, "mla_decode_fp8": decode_cases,
         "flash_attention_fp8": fp8_attention_cases, "flash_attention_varlen": packed_cases}
any_case = st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), CASES[name]))


@FEW
@given(any_case)
def test_arguments_and_outputs_are_the_parameters_of_kernel_h(drawn: tuple[str, dict[str, Any]]) -> None:
    name, case = drawn
    binding = problem(name).binding
    data = generate(name, case)
    arguments, outputs = binding.arguments(case, data), binding.outputs(case)
    parameters = [parameter.name for parameter in signature(name).params]
    assert signature(name).symbol == binding.SYMBOL
    assert sorted([*arguments, *outputs, "workspace", "workspace_bytes", "queue"]) == sorted(parameters)
    for parameter in signature(name).params:
        if parameter.name in arguments:
            value = arguments[parameter.name]
            kind = torch.Tensor if "*" in parameter.ctype else float if parameter.ctype == "float" else int
            assert type(value) is kind, parameter.name


@FEW
@given(any_case)
def test_outputs_are_what_the_reference_returns(drawn: tuple[str, dict[str, Any]]) -> None:
    name, case = drawn
    loaded = problem(name)
    answer = loaded.reference.ref_kernel(generate(name, case))
    answer = answer if isinstance(answer, tuple) else (answer,)
    for (shape, dtype), tensor in zip(loaded.binding.outputs(case).values(), answer, strict=True):
        assert tensor.shape == shape
        assert tensor.dtype == getattr(torch, dtype)
        assert tensor.is_contiguous()


@FEW
@given(any_case, st.integers(0, 2**31))
def test_inputs_follow_from_the_seed_alone(drawn: tuple[str, dict[str, Any]], seed: int) -> None:
    name, case = drawn
    before = torch.random.get_rng_state()
    first = generate(name, case, seed)
    torch.rand(3)
    again = generate(name, case, seed)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    other = generate(name, case, seed + 1)
    assert not same(first[0], other[0])
    # Keys that no query sees are all NaN, whatever the seed.
    assert not same(first[1], other[1]) or bool(first[1].isnan().all())
    torch.random.set_rng_state(before)


@pytest.mark.parametrize("name", NAMES)
def test_the_global_generator_is_neither_read_nor_advanced(name: str) -> None:
    case = problem(name).tests[0].params
    before = torch.random.get_rng_state()
    first = generate(name, case)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(12345)
    assert all(same(a, b) for a, b in zip(first, generate(name, case), strict=True))


@pytest.mark.parametrize("fp8", ["e4m3fn", "e4m3fnuz"])
@pytest.mark.parametrize("name", GEMMS)
def test_gemm_layouts_and_flavours(name: str, fp8: str) -> None:
    m, n, k = 37, 300, 384
    a, b, a_scale, b_scale, c = generate(name, {"m": m, "n": n, "k": k}, fp8=fp8)
    assert a.dtype == b.dtype == getattr(torch, f"float8_{fp8}")
    assert a_scale.dtype == b_scale.dtype == torch.float32
    assert (a.shape, b.shape, a_scale.shape, b_scale.shape) == ((m, k), (n, k), (m, 3), (3, 3))
    k_outermost = name == "amd_fp8_mm"
    assert (a.stride(), b.stride()) == (((1, m), (1, n)) if k_outermost else ((k, 1), (k, 1)))
    assert (a_scale.stride(), b_scale.stride()) == ((1, m), (1, 3) if k_outermost else (3, 1))
    assert c.is_contiguous()
    assert bool(torch.isnan(c).all())             # nobody may rely on what is in there
    for tensor in (a, b):
        assert not bool(torch.isnan(tensor.float()).any())


@pytest.mark.parametrize("fp8", ["e4m3fn", "e4m3fnuz"])
def test_fp8_gemm_operands_use_the_whole_range(fp8: str) -> None:
    a, b, *_ = generate("fp8_gemm", {"m": 64, "n": 256, "k": 1024}, fp8=fp8)
    info = torch.finfo(a.dtype)
    size = a.float().abs()
    assert float(size.max()) == info.max
    assert float(b.float().abs().max()) == info.max
    assert bool(((size > 0) & (size < info.smallest_normal)).any())
    assert len(torch.unique(size)) > 100          # of 127 magnitudes
    small = (size < info.smallest_normal).float().mean(1) > 0.9
    assert int(small.sum()) == 1                  # a row of subnormals
    assert float((size[small] > 0).float().mean()) > 0.5


@pytest.mark.parametrize("seed", range(5))
def test_fp8_gemm_scales_are_awkward_but_nothing_hides_behind_them(seed: int) -> None:
    _, _, a_scale, b_scale, _ = generate("fp8_gemm", {"m": 200, "n": 128 * 40, "k": 128 * 20}, seed)
    for scale in (a_scale, b_scale):
        size = scale.abs()
        assert bool((scale < 0).any())
        assert bool((scale > 0).any())
        assert bool((scale == 0).any())
        assert bool(((size > 0) & (size < 2.0**-8)).any())
        assert bool((size > 2.0**8).any())
        plain = (size > 0.3) & (size < 3)
        assert bool(plain[0].all())
        assert 0.5 < float(plain.all(1).float().mean()) < 0.95
        assert bool((b_scale[:, -1] != 0).all())  # no column tile is legitimately zero
    assert bool((a_scale == 0).all(1).any())      # a row whose c is exactly 0
    assert bool((a_scale.abs() > 2.0**8).all(1).any())           # an outlier row, hiding no block of its own
    most = a_scale.abs().quantile(0.7, dim=1)     # a row with exceptions has at most a quarter of small scales
    assert bool(((most > 0) & (most < 2.0**-8)).any())           # a tiny row


@pytest.mark.parametrize("m", [1, 7])
def test_fp8_gemm_has_products_of_both_signs_even_in_one_row(m: int) -> None:
    for seed in range(20):
        _, _, a_scale, b_scale, _ = generate("fp8_gemm", {"m": m, "n": 128, "k": 128}, seed)
        assert float(a_scale[0, 0] * b_scale[0, 0]) < 0


def test_amd_fp8_mm_is_standard_normal() -> None:
    for tensor in generate("amd_fp8_mm", {"m": 512, "n": 8192, "k": 1024})[:4]:
        assert abs(float(tensor.float().mean())) < 0.05
        assert abs(float(tensor.float().std()) - 1) < 0.05


@pytest.mark.parametrize("name", ["flash_attention", "flash_attention_bwd"])
def test_neighbouring_heads_and_batches_meet_steep_levels_in_unlike_orders(name: str) -> None:
    """So one of them meets rising maxima, whichever end of the keys a kernel begins at."""
    case = {"batch": 2, "sq": 9, "sk": 700, "hq": 4, "hk": 2, "dim": 128, "causal": 0, "half": 0, "steep": 1}
    k = generate(name, case)[1]
    level = k.float().mean(-1)                      # what is added to a key's columns; [batch, sk, hk]
    step = 0.5 * float((level[0, :64, 0].mean() - level[0, 64:128, 0].mean()).abs())
    for batch, head in ((0, 1), (1, 0)):
        assert bool(((level[batch, :, head] - level[0, :, 0]).abs() > step).all())
    assert bool(((level[1, :, 1] - level[0, :, 0]).abs() < 0.1 * step).all())


def test_flash_attention_has_sharp_rows_among_normal_ones() -> None:
    case = {"batch": 2, "sq": 300, "sk": 100, "hq": 8, "hk": 2, "dim": 64, "causal": 0, "half": 1}
    q, k, v, causal, scale = generate("flash_attention", case)
    assert q.dtype == k.dtype == v.dtype == torch.float16
    assert (causal, scale) == (False, 0.125)
    spread = q.float().std(-1)
    sharp = float((spread > 2.5).float().mean())
    assert 0.04 < sharp < 0.09
    assert float(v.float().std()) == pytest.approx(1, abs=0.02)


def test_packed_sequences_lie_one_behind_the_other_and_unseen_keys_hold_nan() -> None:
    case = {"batch": 7, "tq": 60, "tk": 250, "lens": "mixed", "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0}
    q, k, v, starts_q, starts_k, longest_q, longest_k, causal, _ = generate("flash_attention_varlen", case, 5)
    assert starts_q.dtype == starts_k.dtype == torch.int32
    lengths = list(zip(starts_q.diff().tolist(), starts_k.diff().tolist(), strict=True))
    assert sorted(lengths) == sorted(problem("flash_attention_varlen").binding.sequence_lengths(7, 60, 250, "mixed"))
    for seed in range(5):                        # whatever sequence is the last
        ends = [(int(x[0]), int(x[-1])) for x in generate("flash_attention_varlen", case, seed)[3:5]]
        assert ends == [(0, 60), (0, 250)]
    assert (longest_q, longest_k, causal) == (max(a for a, _ in lengths), max(b for _, b in lengths), True)
    owner = torch.repeat_interleave(torch.arange(7), starts_k.diff())
    seen = torch.tensor([queries > 0 for queries, _ in lengths])[owner]
    assert not bool(seen.all())
    behind = torch.zeros(len(k) - 250, dtype=torch.bool)
    assert len(behind) > 0
    for tensor in (k, v):
        assert torch.equal(~tensor.isnan().any(-1).any(-1), torch.cat([seen, behind]))
    assert not bool(q.isnan().any())


@pytest.mark.parametrize(("peer", "library"), [("fa3", "flash_attn_interface"), ("fa4", "flash_attn.cute")])
def test_libraries_for_packed_sequences_get_no_rows_behind_the_last_one(
        peer: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        rows.extend((len(k), len(v)))
        return q

    for name in ("flash_attn", library):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[library], "flash_attn_varlen_func", attention, raising=False)
    case = {"batch": 3, "tq": 60, "tk": 250, "lens": "tail", "hq": 2, "hk": 1, "dim": 64, "causal": 0, "half": 0}
    data = generate("flash_attention_varlen", case)
    runpy.run_path(str(ROOT / "benchmarks" / "peers" / "flash_attention_varlen" / f"{peer}.py"))["custom_kernel"](data)
    assert rows == [int(data[4][-1])] * 2
    assert len(data[1]) > rows[0]


def test_the_backward_pass_gets_what_the_forward_pass_returns() -> None:
    case = {"batch": 2, "sq": 70, "sk": 50, "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0}
    q, k, v, o, dout, lse, causal, scale = generate("flash_attention_bwd", case)
    passed, message = problem("flash_attention").reference.check_implementation((q, k, v, causal, scale), (o, lse))
    assert passed, message
    assert bool((lse[:, :, :20] == -torch.inf).all())
    assert float(dout.float().std()) == pytest.approx(1, abs=0.02)
    assert dout.shape == q.shape
    assert dout.dtype == q.dtype


@FEW
@given(decode_cases, st.integers(0, 1000))
def test_a_paged_cache_is_live_where_requests_own_it_and_nan_elsewhere(case: dict[str, Any], seed: int) -> None:
    q, kv_cache, block_table, seqlens, causal, _ = generate("mla_decode", case, seed)
    lengths = seqlens.tolist()
    decode_lengths = problem("mla_decode").binding.decode_lengths
    assert sorted(lengths) == sorted(decode_lengths(case["batch"], case["sk"], case["lens"]))
    assert max(lengths) == case["sk"]
    assert causal is bool(case["causal"])
    assert (q.dtype, kv_cache.dtype, block_table.dtype, seqlens.dtype) == (
        torch.bfloat16, torch.bfloat16, torch.int32, torch.int32)
    assert block_table.shape == (case["batch"], -(-case["sk"] // 64))
    assert bool(((block_table >= 0) & (block_table < len(kv_cache))).all())
    live = torch.zeros(kv_cache.shape[:2], dtype=torch.bool)
    for b, length in enumerate(lengths):
        for t in range(length):
            page = int(block_table[b, t // 64])
            assert page != 0                      # so that pages in order are wrong ones
            assert not live[page, t % 64]         # no page has two owners
            live[page, t % 64] = True
    assert not bool(torch.isnan(kv_cache[live]).any())
    assert bool(torch.isnan(kv_cache[~live]).all())
    assert not bool(live.all(1).all())


def test_pages_of_a_request_lie_in_no_order() -> None:
    case = {"batch": 2, "sq": 1, "hq": 16, "sk": 64 * 50, "lens": "uniform", "causal": 0}
    _, _, block_table, *_ = generate("mla_decode", case)
    back = (block_table.diff(dim=1) < 0).float().mean(1)
    assert bool(((back > 0.25) & (back < 0.75)).all())


@FEW
@given(decode_cases, st.sampled_from(["e4m3fn", "e4m3fnuz"]))
def test_an_fp8_cache_holds_the_bf16_caches_tokens_and_their_scales(case: dict[str, Any], fp8: str) -> None:
    """Row by row: codes, scales and rotary columns where kernel.h says, NaN in all three where no request owns one."""
    q, kv_cache, block_table, seqlens, *_ = generate("mla_decode_fp8", case, fp8=fp8)
    dtype = getattr(torch, f"float8_{fp8}")
    assert (kv_cache.dtype, kv_cache.shape[1:], kv_cache.is_contiguous()) == (dtype, (64, 1, 656), True)
    latent = problem("mla_decode_fp8").reference.paged_batch
    plain = latent(**{key: case[key] for key in ("batch", "sq", "hq", "sk", "lens")}, seed=1, place=q.device,
                   levels=True)
    assert all(torch.equal(a, b) for a, b in zip((q, block_table, seqlens), (plain[0], *plain[2:]), strict=True))
    raw, tokens = kv_cache.view(torch.uint8), plain[1]
    codes = raw[..., :512].contiguous().view(dtype).float()
    scales = raw[..., 512:528].contiguous().view(torch.float32)
    rotary = raw[..., 528:].contiguous().view(torch.bfloat16)
    live = ~torch.isnan(tokens[..., 0])
    assert not bool(live[0].any())
    assert all(bool(torch.isnan(part[~live]).all()) for part in (codes, scales, rotary))
    assert torch.equal(rotary[live], tokens[..., 512:][live])
    assert bool((scales[live] > 0).all())
    back = codes.unflatten(-1, (4, 128)) * scales.unsqueeze(-1)
    wanted = tokens[..., :512].float().unflatten(-1, (4, 128))
    largest = wanted.abs().amax(-1, keepdim=True)
    room = 2.0**-4 * wanted.abs() + 2.0**-8 * largest / torch.finfo(dtype).max       # half a step, subnormals too
    assert bool(((back - wanted).abs() <= room)[live].all())
    large = codes.abs().unflatten(-1, (4, 128)).amax(-1)[live]
    assert bool((large == torch.finfo(dtype).max).all())         # every block uses the format's whole range


def test_an_fp8_caches_scales_differ_from_block_to_block() -> None:
    case = {"batch": 2, "sq": 1, "hq": 16, "sk": 500, "lens": "uniform", "causal": 0}
    data = generate("mla_decode_fp8", case)
    reference = problem("mla_decode_fp8").reference
    scales = reference.unpack(reference.rows_of_request(data, 0))[1]
    ratios = (scales[:, 0] / scales[:, 1]).log2()
    assert float(ratios.std()) > 0.6
    exponents = scales.log2()
    assert float((exponents - exponents.round()).abs().median()) > 0.1       # not powers of two


@pytest.mark.parametrize("name", ["mla_decode", "mla_decode_fp8"])
def test_the_last_token_of_every_request_matters(name: str) -> None:
    case = {"batch": 3, "sq": 2, "hq": 16, "sk": 3000, "lens": "ragged", "causal": 0}
    reference = problem(name).reference
    q, kv_cache, block_table, seqlens, causal, scale = generate(name, case)
    lse = reference.expected((q, kv_cache, block_table, seqlens, causal, scale))[1].values
    stale = reference.expected((q, kv_cache, block_table, seqlens - 1, causal, scale))[1].values
    assert bool(((lse - stale)[:, [0, 15]] > 4 * 2.0**-10).all())
    assert float((lse - stale)[:, 1:15].median()) < 0.01         # and it is one token, not a trend


def test_four_tokens_of_every_request_draw_weight_and_the_last_is_one() -> None:
    case = {"batch": 3, "sq": 1, "hq": 16, "sk": 8000, "lens": "uniform", "causal": 0}
    data = q, *_, scale = generate("mla_decode", case, seed=5)
    for b in range(3):
        tokens = problem("mla_decode").reference.tokens_of(data, b).float()
        weights = torch.softmax(q[b, 0].float() @ tokens.T * scale, -1)
        drawing = (weights > 0.15).any(0).nonzero().flatten().tolist()
        assert len(drawing) == 4
        assert drawing[-1] == 7999


@pytest.mark.parametrize(("batch", "sk", "lens", "want"), [
    (3, 100, "uniform", [100, 100, 100]),
    (1, 5, "mixed", [5]),
    (4, 200, "mixed", [0, 1, 64, 200]),
    (7, 400, "mixed", [0, 1, 64, 63, 65, 342 - 185 % 61, 400]),
    (2, 1, "mixed", [0, 1]),
])
def test_lengths(batch: int, sk: int, lens: str, want: list[int]) -> None:
    assert problem("mla_decode").binding.decode_lengths(batch, sk, lens) == want


def test_an_unknown_spread_of_lengths_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="gaussian"):
        problem("mla_decode").binding.decode_lengths(2, 10, "gaussian")


@pytest.mark.parametrize(("name", "case"), small_parameters(), ids=case_id)
def test_every_input_tensor_matters(name: str, case: Any) -> None:
    """A task whose output ignores an input invites kernels that do so as well."""
    reference = problem(name).reference
    data = generate(name, case.params)
    want = reference.expected(data)
    if case.params.get("ignored") == "all" or case.params.get("vocab") == 1:
        return                    # every output is zero by definition
    attention = {"flash_attention": 3, "flash_attention_varlen": 3, "flash_attention_bwd": 6, "flash_attention_fp8": 6,
                 "hadamard_quantize": 1 + case.params.get("rotated", 0)}
    sensitive = 4 if name in GEMMS else attention.get(name, 2)
    for at in range(sensitive):
        x = data[at]
        changed = (-x.float()).to(x.dtype) if x.dtype.itemsize > 1 else (x.view(torch.uint8) ^ 128).view(x.dtype)
        wrong = reference.expected((*data[:at], changed, *data[at + 1 :]))
        assert not all(problem(name).utils.compare(e, w.rounded()) is None for e, w in zip(want, wrong, strict=True))
