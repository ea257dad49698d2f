# SPDX-License-Identifier: MIT
"""Packed files that really run: on the CPU, through torch's load_inline, against the tree's build, bit for bit."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import backends
from backends.base import Binary, Target
from backends.source import KernelSource, Signature, kernels
from scoring.problem import Problem
from scoring.record import Case
from submissions import pack
from tests.problems.test_experts import challenge_form
from tests.submissions.conftest import ROOT, tiny

CASES = {
    "fp8_gemm": [{"m": 7, "n": 200, "k": 256}, {"m": 33, "n": 64, "k": 128}],
    "amd_fp8_mm": [{"m": 64, "n": 192, "k": 256}],
    "flash_attention": [
        {"batch": 2, "sq": 17, "sk": 33, "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0},
        {"batch": 1, "sq": 5, "sk": 3, "hq": 2, "hk": 1, "dim": 128, "causal": 1, "half": 1},
    ],
    "flash_attention_fp8": [
        {"batch": 2, "sq": 17, "sk": 133, "hq": 4, "hk": 2, "dim": 64, "causal": 1, "scales": scales, "rotated": 0,
         "outliers": 1} for scales in ("tensor", "head", "block")
    ],
    "flash_attention_varlen": [
        {"batch": 3, "tq": 40, "tk": 200, "lens": "mixed", "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0},
    ],
    "mla_decode_fp8": [{"batch": 3, "sq": 2, "hq": 16, "sk": 130, "lens": "mixed", "causal": 1}],
    "flash_attention_bwd": [
        {"batch": 2, "sq": 17, "sk": 33, "hq": 4, "hk": 2, "dim": 64, "causal": 1, "half": 0},
        {"batch": 1, "sq": 5, "sk": 3, "hq": 2, "hk": 1, "dim": 128, "causal": 1, "half": 1},
    ],
    "hadamard_quantize": [
        {"batch": 2, "tokens": 133, "heads": 2, "dim": 64, "rotated": 1, "scales": scales, "outliers": 1}
        for scales in ("head", "block")
    ],
    "linear_cross_entropy": [{"tokens": 7, "hidden": 64, "vocab": 133, "ignored": "some", "smoothing": 100}],
    "amd_mla_decode": [{"batchsize": 1, "dim": 128, "dq": 64, "prefill": 70}],
    "amd_moe": [{"dhidden": 128, "dexpert": 64, "nroutedexperts": 6, "nsharedexperts": 1, "nexpertspertoken": 3,
                 "bs": 2, "seqlen": 9}],
    "mla_decode": [
        {"batch": 3, "sq": 2, "hq": 16, "sk": 130, "lens": "mixed", "causal": 1},
        {"batch": 2, "sq": 1, "hq": 16, "sk": 64, "lens": "uniform", "causal": 0},
    ],
}


def kernel_id(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def load(text: str, folder: Path) -> ModuleType:
    """Import a packed file, which builds it."""
    path = folder / "submission.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("packed_submission", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tree_outputs(problem: Problem, binary: Binary, signature: Signature, params: dict[str, Any], data: Any) -> Any:
    """What the tree's build of the kernel makes of ``data``, called as the scorer calls it; its status if not 0."""
    device = next(value for value in data if isinstance(value, torch.Tensor)).device
    binding = problem.binding
    values = dict(binding.arguments(params, data))
    for name, (shape, dtype) in binding.outputs(params).items():
        kind = getattr(torch, dtype)
        values[name] = torch.full(shape, float("nan") if kind.is_floating_point else 255, dtype=kind, device=device)
    workspace = torch.empty(binding.workspace_bytes(params), dtype=torch.uint8, device=device)
    values |= {"workspace": workspace, "workspace_bytes": workspace.numel(), "queue": None}
    call = signature.bind(ctypes.CDLL(str(binary.path)))
    status = call(*(value.data_ptr() if isinstance(value, torch.Tensor) else value
                    for value in (values[param.name] for param in signature.params)))
    if device.type != "cpu":
        torch.cuda.synchronize(device)
    return status or [values[name] for name in binding.outputs(params)]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def check_equal(
    kernel: KernelSource, target: Target, labels: list[str], cases: list[dict[str, Any]], device: str, folder: Path
) -> int:
    """Compare the packed file with the tree's build, bit for bit; how many of ``cases`` the kernel accepted."""
    problem = Problem(ROOT / "problems" / kernel.problem)
    signature = kernel.signature()
    binary = backends.get(target.backend).compile(kernel, target, cache_dir=folder)
    module = load(pack.pack(kernel, labels).text, folder)
    accepted = 0
    for params in cases:
        data = problem.generate(Case(params), 12345, device)
        expected = tree_outputs(problem, binary, signature, params, data)
        if isinstance(expected, int):
            with pytest.raises(RuntimeError, match=f"returned {expected} "):
                module.custom_kernel(data)
            continue
        accepted += 1
        result = module.custom_kernel(data)
        received = list(result) if isinstance(result, tuple) else [result]
        assert len(received) == len(expected)
        for ours, theirs in zip(received, expected, strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            assert torch.equal(bits(ours), bits(theirs)), params
        assert problem.check(data, result)[0]
    return accepted


@pytest.mark.usefixtures("host_build")
@pytest.mark.parametrize("path", kernels(ROOT, "cpu"), ids=kernel_id)
def test_packed_and_tree_outputs_are_equal_to_the_bit(path: Path, tmp_path: Path) -> None:
    kernel = KernelSource.read(path, ROOT)
    cases = CASES[kernel.problem]
    assert check_equal(kernel, backends.get("cpu").target(), ["CPU"], cases, "cpu", tmp_path) == len(cases)


@pytest.mark.usefixtures("host_build")
def test_experts_in_the_challenges_own_form(tmp_path: Path) -> None:
    """A tensor per matrix, each somewhere in memory, and no offsets: the same bits as from ours."""
    module = load(pack.pack(KernelSource.read(ROOT / "kernels/cpu/amd_moe/naive.cpp", ROOT), ["CPU"]).text, tmp_path)
    ours = Problem(ROOT / "problems/amd_moe").generate(Case(CASES["amd_moe"][0]), 12345, "cpu")
    assert torch.equal(bits(module.custom_kernel(challenge_form(ours))), bits(module.custom_kernel(ours)))


@pytest.mark.device("cuda")
@pytest.mark.usefixtures("host_build")
@pytest.mark.parametrize("path", kernels(ROOT, "cuda"), ids=kernel_id)
def test_packed_and_tree_outputs_are_equal_to_the_bit_on_a_gpu(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backends.get("cuda")
    available = backend.probe()
    if not available.can_compile or not available.can_run:
        pytest.skip("; ".join(available.reasons))
    if not torch.cuda.is_available():
        pytest.skip("this torch cannot use the GPU")
    kernel = KernelSource.read(path, ROOT)
    target = backend.target_for(available.devices[0])
    if target.arch not in kernel.arches:
        pytest.skip(f"{kernel.name} supports {' '.join(kernel.arches)}, the GPU is {target.arch}")
    # One compiler for both: another release's code may differ in the last bit.
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(Path(str(available.compiler)).resolve().parents[1]))
    label = {"sm_90a": "H100", "sm_89": "L4"}[target.arch]
    cases = CASES[kernel.problem] + [dict(case.params) for case in Problem(ROOT / "problems" / kernel.problem).tests]
    assert check_equal(kernel, target, [label], cases, "cuda", tmp_path) > 0


@pytest.mark.usefixtures("host_build")
def test_outputs_workspace_and_refusals(tmp_path: Path) -> None:
    module = load(pack.pack(tiny("cpu")).text, tmp_path)
    x, y = torch.arange(5.0), torch.full((5,), float("nan"))
    first, total = module.custom_kernel((x, y, 2.0))
    assert first is y                                       # data carries it: written in place and returned
    assert y.tolist() == [4, 5, 6, 7, 8]
    assert total.tolist() == [30]
    workspace = module._WORKSPACES[x.device]
    assert module.custom_kernel((x, y, 2.0))[1] is not total
    assert module._WORKSPACES[x.device] is workspace        # reused while it is large enough
    module.custom_kernel((torch.ones(5000), torch.ones(5000), 1.0))
    assert module._WORKSPACES[x.device].numel() == 5 * 4096
    with pytest.raises(RuntimeError, match=r"axpy returned -1 \(this kernel does not support .* \{'n': 13\}"):
        module.custom_kernel((torch.ones(13), torch.ones(13), 1.0))


@pytest.mark.usefixtures("host_build")
def test_a_changed_tunable_is_another_library(tmp_path: Path) -> None:
    modules = []
    for step in (1, 2):
        (tmp_path / str(step)).mkdir()
        modules.append(load(pack.pack(tiny("cpu"), defines={"STEP": step}).text, tmp_path / str(step)))
    assert modules[0]._NAME != modules[1]._NAME
    assert modules[0]._LIBRARY._name != modules[1]._LIBRARY._name


def old_load_inline(folder: Path, calls: list[dict[str, Any]]) -> Any:
    """A load_inline from before ``no_implicit_headers``: returns a module with a file, and knows no other way."""
    def load_inline(name: str, cpp_sources: list[str], cuda_sources: Any = None, functions: Any = None,
                    extra_cflags: Any = None, extra_cuda_cflags: Any = None, is_python_module: bool = True) -> Any:
        calls.append({"functions": functions, "cpp_sources": cpp_sources})
        library = folder / f"{name}.so"
        subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", *extra_cflags, "-", "-o", str(library)],
                       input="\n".join(cpp_sources), text=True, check=True)
        return SimpleNamespace(__file__=str(library))

    return load_inline


@pytest.mark.usefixtures("host_build")
def test_an_older_torch_takes_the_other_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", old_load_inline(tmp_path, calls))
    module = load(pack.pack(tiny("cpu")).text, tmp_path)
    assert calls[0]["functions"] == ["warpwave_packed"]
    assert calls[0]["cpp_sources"][1] == "int warpwave_packed() { return 1; }"
    assert module.custom_kernel((torch.ones(3), torch.zeros(3), 1.0))[1].tolist() == [6]


@pytest.mark.parametrize(("language", "words"), [("cuda", "no CUDA"), ("hip", "no ROCm")])
def test_the_wrong_torch_is_told_so(language: str, words: str, tmp_path: Path) -> None:
    if torch.version.cuda is not None or torch.version.hip is not None:
        pytest.skip("this torch is built for a GPU; the message needs one that is not")
    with pytest.raises(RuntimeError, match=words):
        load(pack.pack(tiny(language)).text, tmp_path)


@pytest.mark.usefixtures("host_build")
def test_what_torch_is_asked_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The road of a GPU file up to the compiler: which options load_inline gets on a CUDA and on a ROCm torch."""
    asked: dict[str, Any] = {}

    def load_inline(is_python_module: bool = True, no_implicit_headers: bool = False, **options: Any) -> str:
        asked.update(options, is_python_module=is_python_module, no_implicit_headers=no_implicit_headers)
        library = tmp_path / "host.so"
        source = pack.pack_source(tiny("cpu"))
        subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)], input=source, text=True,
                       check=True)
        return str(library)

    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", load_inline)
    monkeypatch.setenv("PYTORCH_ROCM_ARCH", "something else")
    for language, version in (("cuda", "cuda"), ("hip", "hip")):
        monkeypatch.setattr(torch.version, version, "1.0")
        module = load(pack.pack(tiny(language)).text, tmp_path)
        assert (asked["is_python_module"], asked["no_implicit_headers"]) == (False, True)
        assert asked["cuda_sources"] == [pack.pack_source(tiny(language))]
        assert asked["cpp_sources"] == [""]
        flags = pack.device_flags(backends.of_language(language), pack.pack(tiny(language)).arches)
        assert asked["extra_cuda_cflags"] == list(flags)
        assert module._KERNEL.argtypes[4] is ctypes.c_float
    import os

    assert os.environ["PYTORCH_ROCM_ARCH"] == "gfx942"
