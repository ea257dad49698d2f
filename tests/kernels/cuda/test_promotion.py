# SPDX-License-Identifier: MIT
"""The promotion to fp32 every 128 of K is needed: without it the Hopper product is refused at K = 16384.

On an emulated H100, whose adder has the 13 fraction bits that an H200 showed, and on a GPU by its own. The operands
have no signs: sums that grow with K are where an accumulator of few bits loses. (Signed normal operands pass without
promotion, too: their sums grow by the square root of K only, 0.6 of the bound in the model.)
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import backends
from tests.kernels.cuda.built import flags
from tests.kernels.cuda.emulated import ROOT
from tests.kernels.cuda.gemm_products import PLANS, Product, ProductKernel, with_plans, with_table
from tests.problems.folders import problem

UNPROMOTED = Path(__file__).with_name("unpromoted.cu")
M, N = 16, 64
LONG, SHORT = 16384, 256


def unsigned(k: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """(a, b, a_scale, b_scale, c) of fp8_gemm, no operand negative, one scale for all of K."""
    random = torch.Generator().manual_seed(7)
    sizes = (torch.randn(rows, k, generator=random).abs().mul_(112).clamp_max_(448) for rows in (M, N))
    a, b = (x.to(torch.float8_e4m3fn) for x in sizes)
    a_scale = torch.full((k // 128, M), 0.75).t()
    b_scale = torch.full((1, k // 128), -1.5)
    return tuple(x.to(device) for x in (a, b, a_scale, b_scale, torch.full((M, N), torch.nan, dtype=torch.bfloat16)))


def verdict(data: tuple[torch.Tensor, ...], c: torch.Tensor) -> tuple[bool, str]:
    return problem("fp8_gemm").reference.check_implementation(data, c)


class Emulated:
    """Both kernels on an emulated H100."""

    def __init__(self, folder: Path):
        kernel = "fp8_gemm/wgmma_tma"
        with_table(folder, kernel, "Shapes", "WgmmaTable<SmallM<16, 1>>")     # the one that M and N take
        self.kernel = ProductKernel(kernel, with_plans(kernel, folder, UNPROMOTED))

    def run(self, data: tuple[torch.Tensor, ...], promoted: bool) -> torch.Tensor:
        a, b, a_scale, b_scale, _ = data
        codes = (x.view(torch.uint8).numpy() for x in (a, b))
        product = Product(*codes, a_scale.numpy(), b_scale.numpy())
        got = self.kernel.multiply(product, () if promoted else (0, 1))
        return torch.from_numpy(np.ascontiguousarray(got)).to(torch.bfloat16)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("plans"))


class OnTheGpu:
    """Both kernels as nvcc builds them."""

    def __init__(self, nvcc: str, arch: str, folder: Path):
        library = folder / "unpromoted.so"
        folders = (ROOT / "problems/fp8_gemm", ROOT / "kernels/cuda", ROOT / "kernels/common")
        command = [
            nvcc, "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared",
            "-cudart", "static", "-gencode", f"arch=compute_{arch.removeprefix('sm_')},code={arch}",
            f'-DWARPWAVE_KERNEL_FILE="{UNPROMOTED}"', *flags("fp8_gemm/wgmma_tma"), *(f"-I{path}" for path in folders),
            "-x", "cu", str(PLANS), "-o", str(library),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        self.library = ctypes.CDLL(str(library))
        operands = [ctypes.c_void_p] * 5
        tail = [ctypes.c_int] * 3 + [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.library.fp8_gemm.argtypes = operands + tail
        self.library.plan_run.argtypes = [ctypes.c_int] * 2 + operands + tail

    def run(self, data: tuple[torch.Tensor, ...], promoted: bool) -> torch.Tensor:
        c = torch.full_like(data[4], torch.nan)
        pointers = [x.data_ptr() for x in (*data[:4], c)]
        arguments = (*pointers, M, N, data[0].shape[1], None, 0, None)
        torch.cuda.synchronize()
        status = self.library.fp8_gemm(*arguments) if promoted else self.library.plan_run(0, 1, *arguments)
        assert status == 0
        torch.cuda.synchronize()
        return c


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    found = backends.get("cuda").probe()
    if not found.can_compile or not found.can_run:
        pytest.skip("; ".join(found.reasons))
    if not torch.cuda.is_available():
        pytest.skip("this torch cannot use the GPU")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is Hopper's")
    return OnTheGpu(str(found.compiler), "sm_90a", tmp_path_factory.mktemp("built"))


def refused_when_long(kernels: Any, device: str) -> None:
    data = unsigned(LONG, device)
    passed, message = verdict(data, kernels.run(data, promoted=True))
    assert passed, message
    passed, message = verdict(data, kernels.run(data, promoted=False))
    assert not passed, message


def accepted_when_short(kernels: Any, device: str) -> None:
    data = unsigned(SHORT, device)
    for promoted in (True, False):
        passed, message = verdict(data, kernels.run(data, promoted))
        assert passed, message


def test_without_promotion_a_long_k_is_refused(emulated):
    refused_when_long(emulated, "cpu")


def test_without_promotion_a_short_k_passes(emulated):
    accepted_when_short(emulated, "cpu")


def test_it_is_the_adders_bits_that_lose(emulated):
    """The same kernel without promotion is right at any length where no sum has more of them: of about 4096 ones."""
    a, b, *scales = unsigned(LONG)
    random = torch.Generator().manual_seed(8)
    ones = ((torch.rand(x.shape, generator=random) < 0.5).to(torch.float8_e4m3fn) for x in (a, b))
    data = (*ones, *scales)
    passed, message = verdict(data, emulated.run(data, promoted=False))
    assert passed, message


@pytest.mark.device("cuda")
def test_without_promotion_a_long_k_is_refused_on_a_gpu(gpu):
    refused_when_long(gpu, "cuda")


@pytest.mark.device("cuda")
def test_without_promotion_a_short_k_passes_on_a_gpu(gpu):
    accepted_when_short(gpu, "cuda")
