# SPDX-License-Identifier: MIT
"""binding.py: useful FLOP and bytes counted one by one on small cases, and workspace sizes as documented."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.problems.folders import NAMES, generate, problem

MIB = 1 << 20
flash = problem("flash_attention").binding
backward = problem("flash_attention_bwd").binding
varlen = problem("flash_attention_varlen").binding
mla = problem("mla_decode").binding
mla_fp8 = problem("mla_decode_fp8").binding
size = st.integers(1, 40)


@given(size, size, st.booleans())
def test_visible_pairs_of_attention(sq: int, sk: int, causal: bool) -> None:
    pairs = sum(1 for i in range(sq) for j in range(sk) if not causal or j <= i + sk - sq)
    case = {"batch": 3, "sq": sq, "sk": sk, "hq": 4, "hk": 2, "dim": 64, "causal": int(causal), "half": 0}
    assert flash.visible_pairs(sq, sk, causal) == pairs
    assert flash.flops(case) == 3 * 4 * pairs * 4 * 64
    assert backward.flops(case) == 3 * 4 * pairs * 10 * 64
    rows = sum(1 for i in range(sq) if not causal or i + sk - sq >= 0)
    assert flash.bytes_moved(case) == 3 * (2 * 64 * (4 * rows + 2 * 2 * sk + 4 * sq) + 4 * 4 * sq)
    queries, keys = 2 * 64 * 4 * (3 * rows + sq), 2 * 64 * 2 * 4 * sk
    assert backward.bytes_moved(case) == 3 * (queries + keys + 4 * 4 * rows)


@given(st.integers(1, 20), st.integers(1, 400), st.integers(1, 500),
       st.sampled_from(["uniform", "tail", "decode", "mixed"]), st.integers(0, 1))
def test_lengths_and_visible_pairs_of_packed_sequences(batch: int, tq: int, tk: int, lens: str, causal: int) -> None:
    case = {"batch": batch, "tq": tq, "tk": tk, "lens": lens, "hq": 4, "hk": 2, "dim": 64, "causal": causal, "half": 0}
    lengths = varlen.sequence_lengths(batch, tq, tk, lens)
    assert len(lengths) == batch
    assert min(min(pair) for pair in lengths) >= 0
    assert [sum(pair[i] for pair in lengths) for i in (0, 1)] == [tq, tk]
    seen = [[max(0, min(keys, i + 1 + keys - queries)) if causal else keys for i in range(queries)]
            for queries, keys in lengths]
    assert varlen.flops(case) == 4 * 64 * 4 * sum(map(sum, seen))
    rows = sum(keys > 0 for sequence in seen for keys in sequence)
    read = sum(max(sequence, default=0) for sequence in seen)
    assert varlen.bytes_moved(case) == 2 * 64 * (4 * rows + 2 * 2 * read + 4 * tq) + 4 * 4 * tq + 8 * (batch + 1)


@given(st.integers(1, 9), st.integers(1, 300), st.sampled_from(["uniform", "ragged", "mixed"]), st.integers(1, 2),
       st.integers(0, 1))
def test_visible_pairs_of_decoding(batch: int, sk: int, lens: str, sq: int, causal: int) -> None:
    case = {"batch": batch, "sq": sq, "hq": 16, "sk": sk, "lens": lens, "causal": causal}
    lengths = mla.decode_lengths(batch, sk, lens)
    pairs = sum(
        1 for length in lengths for i in range(sq) for t in range(length) if t < length - (sq - 1 - i) * causal)
    assert mla.flops(case) == 2 * 1088 * 16 * pairs
    pages = sum(len(range(0, length, 64)) for length in lengths)
    rows = batch * sq * 16
    assert mla.bytes_moved(case) == 1152 * sum(lengths) + 4 * pages + 4 * batch + rows * (1152 + 1024 + 4)
    assert mla_fp8.flops(case) == mla.flops(case)
    assert mla.bytes_moved(case) - mla_fp8.bytes_moved(case) == (1152 - 656) * sum(lengths)


def test_decode_counts_are_those_of_the_data_a_seed_makes() -> None:
    case = {"batch": 5, "sq": 2, "hq": 16, "sk": 300, "lens": "mixed", "causal": 1}
    for seed in (1, 2, 3):
        lengths = generate("mla_decode", case, seed)[3].tolist()
        pairs = sum(max(0, length - hidden) for length in lengths for hidden in (0, 1))
        assert mla.flops(case) == 2 * 1088 * 16 * pairs


CASES: dict[str, list[dict[str, Any]]] = {
    "fp8_gemm": [{"m": 7, "n": 200, "k": 256}], "amd_fp8_mm": [{"m": 64, "n": 192, "k": 256}],
    "flash_attention": [
        {"batch": 2, "sq": 17, "sk": 33, "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0},
        {"batch": 1, "sq": 5, "sk": 3, "hq": 2, "hk": 1, "dim": 128, "causal": 0, "half": 1},
    ],
    "flash_attention_bwd": [
        {"batch": 2, "sq": 17, "sk": 33, "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0},
        {"batch": 1, "sq": 5, "sk": 3, "hq": 2, "hk": 1, "dim": 128, "causal": 0, "half": 1},
    ],
    "flash_attention_fp8": [
        {"batch": 2, "sq": 17, "sk": 33, "hq": 4, "hk": 2, "dim": 64, "causal": 1, "scales": "head", "rotated": 1,
         "outliers": 0},
        {"batch": 1, "sq": 300, "sk": 129, "hq": 2, "hk": 1, "dim": 64, "causal": 1, "scales": "block", "rotated": 0,
         "outliers": 1},
        {"batch": 1, "sq": 5, "sk": 3, "hq": 2, "hk": 1, "dim": 128, "causal": 0, "scales": "tensor", "rotated": 0,
         "outliers": 0},
    ],
    "flash_attention_varlen": [
        {"batch": 3, "tq": 40, "tk": 200, "lens": "mixed", "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0},
        {"batch": 2, "tq": 400, "tk": 90, "lens": "tail", "hq": 2, "hk": 1, "dim": 128, "causal": 0, "half": 1},
    ],
    "hadamard_quantize": [
        {"batch": 2, "tokens": 130, "heads": 3, "dim": 64, "rotated": 1, "scales": "block", "outliers": 0},
        {"batch": 1, "tokens": 5, "heads": 2, "dim": 256, "rotated": 0, "scales": "head", "outliers": 1},
    ],
    "linear_cross_entropy": [
        {"tokens": 33, "hidden": 64, "vocab": 130, "ignored": "some", "smoothing": 100},
        {"tokens": 5, "hidden": 128, "vocab": 3, "ignored": "all", "smoothing": 0},
    ],
    "mla_decode": [{"batch": 3, "sq": 2, "hq": 16, "sk": 130, "lens": "mixed", "causal": 1}],
    "mla_decode_fp8": [{"batch": 3, "sq": 2, "hq": 16, "sk": 130, "lens": "mixed", "causal": 1}],
}


@pytest.mark.parametrize("name", NAMES)
def test_the_case_behind_data_is_what_made_it(name: str) -> None:
    """A packed kernel must ask for the outputs, arguments and workspace that the scorer gives it."""
    binding = problem(name).binding
    for case in CASES[name]:
        data = generate(name, case)
        found = binding.case_of(data)
        assert found.items() <= case.items()
        assert binding.outputs(found) == binding.outputs(case)
        assert binding.workspace_bytes(found) == binding.workspace_bytes(case)
        ours, theirs = binding.arguments(found, data), binding.arguments(case, data)
        assert {key: value for key, value in ours.items() if not hasattr(value, "shape")} == {
            key: value for key, value in theirs.items() if not hasattr(value, "shape")}
        for count in (binding.flops, binding.bytes_moved):
            if "lens" not in case:
                assert count(found) == count(case)
            else:       # the lengths are not known, so there is no count, rather than a wrong one
                with pytest.raises(KeyError):
                    count(found)


def test_fp8_attention_reads_what_it_needs() -> None:
    """Without a mask: all tensors, as they are. With one, of 300 queries and 129 keys: 129 queries, 2 of 3 blocks."""
    binding = problem("flash_attention_fp8").binding
    base, masked, _ = CASES["flash_attention_fp8"]
    for scales in ("tensor", "head", "block"):
        case = {**masked, "causal": 0, "scales": scales}
        data = generate("flash_attention_fp8", case)
        tensors = sum(tensor.numel() * tensor.itemsize for tensor in data[:6])
        assert binding.bytes_moved(case) == tensors + 300 * 2 * (2 * 64 + 4)
        assert binding.flops(case) == 4 * 64 * 2 * 300 * 129
    assert binding.bytes_moved(masked) == 64 * (2 * 129 + 2 * 129 + 2 * 2 * 300) + 4 * 2 * 300 + 4 * (2 * 2 + 2 * 2)
    assert binding.flops(masked) == 4 * 64 * 2 * sum(range(1, 130))
    assert binding.PEAK(base) == "fp8"


@pytest.mark.parametrize("name", ["fp8_gemm", "amd_fp8_mm"])
def test_gemm_counts_are_the_sizes_of_the_tensors(name: str) -> None:
    case = {"m": 96, "n": 576, "k": 512}
    data = generate(name, case)
    binding = problem(name).binding
    assert binding.bytes_moved(case) == sum(tensor.numel() * tensor.itemsize for tensor in data)
    assert binding.flops(case) == 2 * 96 * 576 * 512
    assert binding.PEAK(case) == "fp8"


@pytest.mark.parametrize(("name", "case", "want"), [
    ("fp8_gemm", {"m": 1, "n": 128, "k": 256}, MIB),
    ("fp8_gemm", {"m": 64, "n": 2112, "k": 7168}, 16 * 64 * 2112 * 4),
    ("fp8_gemm", {"m": 4096, "n": 4096, "k": 7168}, 64 * MIB),
    ("amd_fp8_mm", {"m": 96, "n": 4608, "k": 7168}, 16 * 96 * 4608 * 4 + (96 + 4608) * 7168),
    ("amd_fp8_mm", {"m": 1, "n": 64, "k": 128}, MIB + 256 + 8192),
    ("flash_attention", {"batch": 1, "sq": 129, "hq": 8, "dim": 64}, 16 * MIB),
    ("flash_attention", {"batch": 2, "sq": 1, "hq": 8, "dim": 128}, 16 * MIB + 32 * 2 * 8 * 130 * 4),
    ("flash_attention", {"batch": 64, "sq": 128, "hq": 32, "dim": 256}, 272 * MIB),
    ("flash_attention_bwd", {"batch": 2, "sq": 129, "sk": 1, "hq": 8, "hk": 4, "dim": 64},
     MIB + 4 * (2 * 256 * 8 * 66 + 2 * 2 * 128 * 4 * 64)),
    ("flash_attention_fp8", {"batch": 1, "sq": 129, "sk": 129, "hq": 8, "hk": 2, "dim": 64}, 16 * MIB + 256 * 2 * 64),
    ("flash_attention_fp8", {"batch": 2, "sq": 1, "sk": 8, "hq": 8, "hk": 8, "dim": 128},
     16 * MIB + 32 * 2 * 8 * 130 * 4 + 2 * 128 * 8 * 128),
    ("flash_attention_varlen", {"batch": 2, "tq": 300, "hq": 8, "hk": 2, "dim": 64}, 16 * MIB + 32 * (2 + 18)),
    ("flash_attention_varlen", {"batch": 2, "tq": 4, "hq": 8, "hk": 8, "dim": 64}, 16 * MIB + 64 + 32 * 4 * 8 * 66 * 4),
    ("hadamard_quantize", {"batch": 2, "tokens": 129, "heads": 3}, MIB + 4 * 2 * 2 * 3),
    ("linear_cross_entropy", {"tokens": 7, "hidden": 64, "vocab": 1000}, MIB + 16 * 7),
    ("linear_cross_entropy", {"tokens": 130, "hidden": 64, "vocab": 32000}, 130 * 32000 + 16 * 130),
    ("linear_cross_entropy", {"tokens": 4096, "hidden": 64, "vocab": 32000}, 64 * MIB + 16 * 4096),
    ("linear_cross_entropy", {"tokens": 8192, "hidden": 64, "vocab": 128256}, 8192 * 128256 // 8 + 16 * 8192),
    ("mla_decode", {"batch": 1, "sq": 1, "hq": 16}, MIB + (304 + 1) * 16 * 514 * 4),
    ("mla_decode", {"batch": 128, "sq": 1, "hq": 128}, MIB + 512 * MIB),
    ("mla_decode_fp8", {"batch": 128, "sq": 1, "hq": 128}, MIB + 512 * MIB),
    ("mla_decode", {"batch": 1024, "sq": 2, "hq": 128}, MIB + 2 * 1024 * 2 * 128 * 514 * 4),
])
def test_workspace(name: str, case: dict[str, Any], want: int) -> None:
    assert problem(name).binding.workspace_bytes(case) == want


def test_peaks_follow_the_data_type() -> None:
    for binding in (flash, backward, varlen):
        assert [binding.PEAK({"half": half}) for half in (0, 1)] == ["bf16", "fp16"]
    assert mla.PEAK({}) == mla_fp8.PEAK({}) == "bf16"


@pytest.mark.parametrize("name", NAMES)
def test_every_case_can_be_counted_without_its_data(name: str) -> None:
    binding = problem(name).binding
    for case in problem(name).cases:
        assert binding.flops(case.params) > 0
        assert binding.bytes_moved(case.params) > 0
        assert MIB <= binding.workspace_bytes(case.params) <= 1 << 30
