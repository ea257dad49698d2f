# SPDX-License-Identifier: MIT
"""amd_mla_decode, whose reference is too slow for the tests that ask for it often: what they ask, asked once."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from scoring.judge.audit import HONEST, audit_case
from scoring.record import Case
from tests.problems.folders import ROOT, generate, problem, signature

CASE = {"batchsize": 2, "dim": 96, "dq": 64, "prefill": 70}
binding, reference = problem("amd_mla_decode").binding, problem("amd_mla_decode").reference


@cache
def scene() -> tuple[Any, Any]:
    """(data, expectations) of CASE."""
    data = generate("amd_mla_decode", CASE, seed=3)
    return data, reference.expected(data)


def peer(name: str = "torch_absorbed") -> ModuleType:
    path = ROOT / "benchmarks/peers/amd_mla_decode" / f"{name}.py"
    spec = importlib.util.spec_from_file_location("layer_peer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attended(data: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weights [b, 128, tokens], values [b, tokens, 128, 128], the new row) as the challenge tells it: keys and values
    of every head and token made, in fp64."""
    config, x, cache = data
    weights = {name: value.double() for name, value in config.items() if isinstance(value, torch.Tensor)}
    batch, tokens = len(x), config["prefill"] + 1
    row = x.double() @ weights["KV_proj_down_weight"].T
    cached = torch.cat([cache[:, : tokens - 1].double(), row], 1)
    q = (x.double() @ weights["Q_proj_down_weight"].T @ weights["Q_proj_up_weight"].T).view(batch, 128, 192)
    kv = (cached[..., :512] @ weights["KV_proj_up_weight"].T).view(batch, tokens, 128, 256)

    powers = 10000 ** (-torch.arange(32, dtype=torch.bfloat16) / 32)
    angles = torch.arange(tokens).to(torch.bfloat16)[:, None] * powers
    cos, sin = (torch.cat([turn, turn], -1).double() for turn in (angles.cos(), angles.sin()))

    def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return x * cos + torch.cat([-x[..., 32:], x[..., :32]], -1) * sin

    queries = torch.cat([q[..., :128], rotated(q[..., 128:], cos[-1], sin[-1])], -1)
    rope = rotated(cached[..., 512:], cos, sin)[:, :, None].expand(-1, -1, 128, -1)
    keys = torch.cat([kv[..., :128], rope], -1)
    return torch.softmax(torch.einsum("bhk,bthk->bht", queries, keys) * 192**-0.5, -1), kv[..., 128:], row


def layer(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The layer's y and new row, in fp64."""
    weights, values, row = attended(data)
    heads = torch.einsum("bht,bthv->bhv", weights, values)
    return (heads.flatten(1) @ data[0]["wo_weight"].double().T)[:, None], row


def test_the_reference_is_the_layer_written_down_without_absorption() -> None:
    data, found = scene()
    for expectation, want in zip(found, layer(data), strict=True):
        torch.testing.assert_close(expectation.values, want, rtol=1e-9, atol=1e-9)


def test_rotations_are_those_that_bf16_gives() -> None:
    """Frequencies, angles, sines and cosines as torch has them if everything is bf16, over the whole cache."""
    powers = 10000 ** (-torch.arange(32, dtype=torch.bfloat16) / 32)
    angles = torch.arange(reference.MAX_LEN).to(torch.bfloat16)[:, None] * powers
    for want, found in zip((angles.cos(), angles.sin()), reference.rotations(
            torch.arange(reference.MAX_LEN), torch.float64), strict=True):
        assert torch.equal(found, want.double())


def test_inputs_are_what_the_challenge_says_and_nan_where_nothing_is() -> None:
    (config, x, cache), _ = scene()
    shapes = {"Q_proj_down_weight": (64, 96), "Q_proj_up_weight": (128 * 192, 64), "KV_proj_down_weight": (576, 96),
              "KV_proj_up_weight": (128 * 256, 512), "wo_weight": (96, 128 * 128)}
    assert {name: value.shape for name, value in config.items() if isinstance(value, torch.Tensor)} == shapes
    for name, (_, columns) in shapes.items():
        assert config[name].dtype == torch.bfloat16
        assert 0.95 < float(config[name].float().std()) * columns**0.5 < 1.1, name
    assert (x.shape, cache.shape) == ((2, 1, 96), (2, 8192, 576))
    assert not bool(cache[:, :70].isnan().any())
    assert bool(cache[:, 70:].isnan().all())
    again, other = (generate("amd_mla_decode", CASE, seed=seed) for seed in (3, 4))
    assert torch.equal(again[2][:, :70], cache[:, :70])
    assert torch.equal(again[0]["wo_weight"], config["wo_weight"])
    assert not torch.equal(other[1], x)


def test_the_first_and_the_last_head_look_at_the_newest_token() -> None:
    """In other heads one token of 121 hardly matters, and a kernel that does not read it would pass."""
    weights, _, _ = attended(generate("amd_mla_decode", CASE | {"batchsize": 6, "prefill": 120}, seed=3))
    first, *others, last = weights[..., -1].mean(0).tolist()
    assert min(first, last) > 0.1
    assert max(others) < 0.05


@pytest.mark.parametrize(("changes", "seed"), [({}, 3), ({}, 5), ({"steep": 1}, 6), ({"prefill": 200}, 3)], ids=str)
def test_the_plain_absorbed_form_passes_twice_over_and_appends(changes: dict[str, int], seed: int) -> None:
    data = generate("amd_mla_decode", CASE | changes, seed=seed)
    cache, tokens = data[2].clone(), data[0]["prefill"]
    outputs = peer().custom_kernel((*data[:2], cache))
    found = reference.expected(data)
    shares = [problem("amd_mla_decode").utils.examine(e, o) for e, o in zip(found, outputs, strict=True)]
    assert [mismatch for _, mismatch in shares] == [None, None]
    assert 0.1 < shares[0][0] < 0.5          # every step rounded to bf16 uses the bound, and does not strain it
    assert shares[1][0] < 0.5
    assert torch.equal(cache[:, tokens], outputs[1][:, 0])


def library_attention(
        latent: torch.Tensor, rope: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """What a library answers to queries [b, 128, …] over keys [b, tokens, 64] and values [b, tokens, 512]."""
    scores = latent.float() @ values.float().mT + rope.float() @ keys.float().mT
    return (torch.softmax(scores * 192**-0.5, -1) @ values.float()).to(latent.dtype)[:, None]


def flash_mla_decode(
        q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, *_: Any, **__: Any) -> Any:
    kv = cache[table.long()].flatten(1, 3)[:, : int(lengths[0])]
    return library_attention(q[:, 0, :, :512], q[:, 0, :, 512:], kv[..., 512:], kv[..., :512]), None


def fa3_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, qv: torch.Tensor, **_: Any) -> torch.Tensor:
    return library_attention(qv[:, 0], q[:, 0], k[:, :, 0], v[:, :, 0])


LIBRARIES = {
    "flash_mla": ("flash_mla", {"get_mla_metadata": lambda: (None, None), "flash_mla_with_kvcache": flash_mla_decode}),
    "fa3": ("flash_attn_interface", {"flash_attn_with_kvcache": fa3_decode})}


@pytest.mark.parametrize("name", LIBRARIES)
def test_peers_give_libraries_rotated_columns_and_leave_the_cache_as_it_was(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    library, functions = LIBRARIES[name]
    monkeypatch.setitem(sys.modules, library, SimpleNamespace(**functions))
    data, found = scene()
    cache, tokens = data[2].clone(), data[0]["prefill"]
    outputs = peer(name).custom_kernel((*data[:2], cache))
    shares = [problem("amd_mla_decode").utils.examine(e, o) for e, o in zip(found, outputs, strict=True)]
    assert [mismatch for _, mismatch in shares] == [None, None]
    assert shares[0][0] < 0.5
    assert torch.equal(cache[:, tokens], outputs[1][:, 0])
    cache[:, tokens] = torch.nan
    assert torch.equal(cache.view(torch.int16), data[2].view(torch.int16))


def test_a_sample_is_a_part_of_the_whole_and_data_stays_as_it_was() -> None:
    data = generate("amd_mla_decode", {**CASE, "batchsize": 4, "prefill": 3})
    before = [data[1].clone(), data[2].clone()]
    whole = reference.expected(data)
    for full, part in zip(whole, reference.expected(data, 12, seed=1), strict=True):
        assert part.index is not None
        assert len(part.values) == 2
        torch.testing.assert_close(part.values, full.values[part.index], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(part.bound, full.bound[part.index], rtol=1e-6, atol=1e-12)
    assert torch.equal(data[1], before[0])
    assert torch.equal(data[2].nan_to_num(7.0), before[1].nan_to_num(7.0))


def test_wrong_answers_are_refused() -> None:
    rows = list(audit_case(problem("amd_mla_decode"), Case(CASE), "cpu", seed=7))
    assert rows[0].mutant == HONEST
    assert [row for row in rows if not row.good] == []
    assert len(rows) >= 15


def test_arguments_and_outputs_are_the_parameters_of_kernel_h() -> None:
    data, _ = scene()
    arguments, outputs = binding.arguments(CASE, data), binding.outputs(CASE)
    parameters = {parameter.name: parameter.ctype for parameter in signature("amd_mla_decode").params}
    assert sorted([*arguments, *outputs, "workspace", "workspace_bytes", "queue"]) == sorted(parameters)
    for name, value in arguments.items():
        assert type(value) is (torch.Tensor if "*" in parameters[name] else int), name
    (name, (part, output)), = binding.UPDATED(CASE).items()
    assert data[2][part].shape == (2, 1, 576)
    assert (name, output) == ("kv_cache", "kv_row")


def test_counts() -> None:
    data, _ = scene()
    weights = sum(value.numel() for value in data[0].values() if isinstance(value, torch.Tensor))
    assert binding.flops(CASE) == 2 * 2 * (weights + 71 * 128 * (576 + 512))
    row = 576 * 2
    assert binding.bytes_moved(CASE) == 2 * weights + 2 * 2 * 96 * 2 + 2 * 70 * row + 2 * 2 * row
    assert binding.PEAK(CASE) == "bf16"
    assert binding.workspace_bytes(CASE) > 64 << 20


def test_the_challenges_own_objects_are_understood() -> None:
    """A packed file gets a config with attributes and a cache module there, and returns the whole cache."""
    config, x, cache = scene()[0]
    theirs = (SimpleNamespace(**config), x, SimpleNamespace(data=cache, seq_len=70))
    assert binding.case_of(theirs) == binding.case_of((config, x, cache)) == CASE
    ours = binding.arguments(CASE, (config, x, cache))
    assert all(value is ours[name] or value == ours[name] for name, value in binding.arguments(CASE, theirs).items())
    y, row = object(), object()
    assert binding.returned((config, x, cache), (y, row)) == (y, row)
    assert binding.returned(theirs, (y, row)) == (y, cache)


@pytest.mark.parametrize("prefill", [4096, 6144])
def test_benchmarks_can_be_counted(prefill: int) -> None:
    case = {"batchsize": 128, "dim": 7168, "dq": 1536, "prefill": prefill}
    assert 1e11 < binding.flops(case) < 3e11
    assert 9e8 < binding.bytes_moved(case) < 1.4e9
    assert binding.workspace_bytes(case) <= 1 << 30
