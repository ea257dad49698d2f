# SPDX-License-Identifier: MIT
"""kernels/cpu/*/naive.cpp against the references: the default kernels, and so the ones that prove the pipeline."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from backends import get
from backends.source import KernelSource, kernels
from tests.problems.folders import ALL, ROOT, case_id, generate, problem, signature, small_parameters

UNSUPPORTED = -1
Caller = Callable[..., tuple[int, dict[str, torch.Tensor]]]

pytestmark = pytest.mark.toolchain


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An output that nobody has written: NaN, or all bits set where there is no NaN."""
    return torch.full(shape, torch.nan if dtype.is_floating_point else torch.iinfo(dtype).max, dtype=dtype)


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    """``call(problem, case, data, **overrides) -> (status, outputs)``: compiled on first use, outputs poisoned."""
    backend = get("cpu")
    reasons = backend.probe()
    if not reasons.can_compile:
        pytest.skip("; ".join(reasons.reasons))
    folder = tmp_path_factory.mktemp("cpu-kernels")
    functions: dict[str, Any] = {}

    def run(name: str, case: Any, data: Any, **overrides: int) -> tuple[int, dict[str, torch.Tensor]]:
        if name not in functions:
            source = KernelSource.read(ROOT / "kernels" / "cpu" / name / "naive.cpp", ROOT)
            library = backend.compile(source, backend.target(), cache_dir=folder).path
            functions[name] = getattr(ctypes.CDLL(str(library)), signature(name).symbol)
            functions[name].argtypes = signature(name).argtypes()
        binding = problem(name).binding
        outputs = {
            key: poisoned(shape, getattr(torch, dtype))
            for key, (shape, dtype) in binding.outputs(case).items()}
        values = {**binding.arguments(case, data), **outputs, "workspace": None, "workspace_bytes": 0, "queue": None}
        values.update(overrides)
        arguments = [
            value.data_ptr() if isinstance(value, torch.Tensor) else value
            for value in (values[parameter.name] for parameter in signature(name).params)]
        return int(functions[name](*arguments)), outputs

    return run


@pytest.mark.parametrize(("name", "case"), small_parameters(2e8), ids=case_id)
def test_naive_kernels_are_right(name: str, case: Any, call: Caller) -> None:
    data = generate(name, case.params, seed=11)
    status, outputs = call(name, case.params, data)
    assert status == 0
    for expectation, output in zip(problem(name).reference.expected(data), outputs.values(), strict=True):
        share, mismatch = problem(name).utils.examine(expectation, output)
        assert mismatch is None, str(mismatch)
        assert share <= 0.52                      # fp32 throughout: little more than the rounding of the output


@pytest.mark.parametrize(("name", "overrides"), [
    ("fp8_gemm", {"k": 192}), ("fp8_gemm", {"m": 0}), ("amd_fp8_mm", {"k": 64}),
    ("flash_attention", {"head_dim": 257}), ("flash_attention", {"heads_k": 3}),
    ("flash_attention_bwd", {"head_dim": 257}), ("flash_attention_bwd", {"heads_k": 3}), ("mla_decode", {"batch": 0}),
    ("mla_decode_fp8", {"batch": 0}),
    ("hadamard_quantize", {"head_dim": 96}), ("linear_cross_entropy", {"hidden": 96}),
    ("flash_attention_fp8", {"scales": 3}), ("flash_attention_fp8", {"heads_k": 3}),
])
def test_what_they_cannot_do_they_decline_untouched(name: str, overrides: dict[str, int], call: Caller) -> None:
    case = problem(name).tests[0].params
    status, outputs = call(name, case, generate(name, case), **overrides)
    assert status == UNSUPPORTED
    for output in outputs.values():
        assert torch.equal(output.view(torch.uint8), poisoned(tuple(output.shape), output.dtype).view(torch.uint8))


def test_a_head_that_64_does_not_divide(call: Caller) -> None:
    """Heads are padded inside; no case of the problem has one."""
    case = {"batch": 1, "sq": 5, "sk": 70, "hq": 2, "hk": 1, "dim": 72, "causal": 1, "half": 0}
    data = generate("flash_attention", case)
    status, (o, lse) = (lambda status, outputs: (status, tuple(outputs.values())))(*call("flash_attention", case, data))
    assert status == 0
    passed, message = problem("flash_attention").reference.check_implementation(data, (o, lse))
    assert passed, message
    data = generate("flash_attention_bwd", case)
    status, gradients = call("flash_attention_bwd", case, data)
    assert status == 0
    passed, message = problem("flash_attention_bwd").reference.check_implementation(data, tuple(gradients.values()))
    assert passed, message


def test_every_problem_has_a_cpu_kernel_with_a_summary() -> None:
    found = {path.parent.name: KernelSource.read(path, ROOT) for path in kernels(ROOT, "cpu")}
    assert set(ALL) <= set(found)
    assert all(source.summary for source in found.values())


def test_no_vendor_word_outside_a_condition() -> None:
    """kernels/cpu and fp8.h compile anywhere; leaderboards refuse the word for a queue, whatever it is part of."""
    files = [*(ROOT / "kernels" / "cpu").rglob("*"), ROOT / "kernels" / "common" / "fp8.h"]
    for path in filter(Path.is_file, files):
        text = path.read_text().lower()
        assert "stream" not in text, path
        assert "cuda" not in text, path
        assert text.startswith("// spdx-license-identifier: mit\n"), path
