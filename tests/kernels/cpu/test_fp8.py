# SPDX-License-Identifier: MIT
"""kernels/common/fp8.h on the host, bit by bit against torch's conversions."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.cpu import find_cxx
from backends.errors import ToolchainMissing
from tests.problems.folders import ROOT

pytestmark = pytest.mark.toolchain

SOURCE = """
#include "fp8.h"
#define EACH(NAME, FROM, TO) extern "C" void NAME##_all(const FROM* from, TO* to, long n) { \\
    for (long i = 0; i < n; ++i) to[i] = NAME(from[i]); }
EACH(e4m3fn_to_float, uint8_t, float)
EACH(e4m3fnuz_to_float, uint8_t, float)
EACH(fp8_to_float, uint8_t, float)
EACH(bf16_to_float, uint16_t, float)
EACH(fp16_to_float, uint16_t, float)
EACH(float_to_e4m3fn, float, uint8_t)
EACH(float_to_e4m3fnuz, float, uint8_t)
EACH(float_to_fp8, float, uint8_t)
EACH(float_to_bf16, float, uint16_t)
EACH(float_to_fp16, float, uint16_t)
"""
FORMATS = {
    "e4m3fn": torch.float8_e4m3fn, "e4m3fnuz": torch.float8_e4m3fnuz, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    try:
        compiler = find_cxx()
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    folder: Path = tmp_path_factory.mktemp("fp8")
    (folder / "fp8.cpp").write_text(SOURCE)
    subprocess.run(
        [str(compiler.path), "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
         "-I", str(ROOT / "kernels" / "common"), str(folder / "fp8.cpp"), "-o", str(folder / "fp8.so")], check=True)
    return ctypes.CDLL(str(folder / "fp8.so"))


def convert(library: Any, name: str, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    result = torch.empty(source.shape, dtype=dtype)
    getattr(library, f"{name}_all")(
        ctypes.c_void_p(source.data_ptr()), ctypes.c_void_p(result.data_ptr()), ctypes.c_long(source.numel()))
    return result


def codes(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every code of a format, as integers and as numbers."""
    integers = torch.arange(2 ** (8 * dtype.itemsize)).to(torch.uint8 if dtype.itemsize == 1 else torch.uint16)
    return integers, integers.view(dtype).float()


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_has_the_value_torch_gives_it(name: str, library: Any) -> None:
    integers, numbers = codes(FORMATS[name])
    found = convert(library, f"{name}_to_float", integers, torch.float32)
    assert torch.equal(torch.isnan(found), torch.isnan(numbers))
    assert torch.equal(found.nan_to_num(0, 1, 2).view(torch.int32), numbers.nan_to_num(0, 1, 2).view(torch.int32))


@pytest.mark.parametrize("name", FORMATS)
def test_rounding_is_to_nearest_even_all_over_the_range(name: str, library: Any) -> None:
    dtype = FORMATS[name]
    _, numbers = codes(dtype)
    finite = numbers[torch.isfinite(numbers)].unique()
    middle = (finite[1:].double() + finite[:-1].double()).div(2).float()       # ties, exact in fp32
    below, above = (torch.nextafter(middle, torch.full_like(middle, way)) for way in (-torch.inf, torch.inf))
    noise = torch.randn(20000, generator=torch.Generator().manual_seed(1)).mul(3).exp()
    noise = torch.cat([noise, -noise, torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e-30, -1e-30])])
    source = torch.cat([finite, middle, below, above, noise.clamp(-float(finite.max()), float(finite.max()))])
    integer = torch.uint8 if dtype.itemsize == 1 else torch.uint16
    found = convert(library, f"float_to_{name}", source, integer)
    wanted = source.to(dtype).view(integer)
    wrong = (found.int() != wanted.int()).nonzero().flatten()
    assert wrong.numel() == 0, source[wrong[:5]]


@pytest.mark.parametrize(("name", "values", "wanted"), [
    ("e4m3fn", [448.0, 463.0, 1e9, torch.inf, -torch.inf, -465.0], [0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0xFE]),
    ("e4m3fnuz", [240.0, 247.0, 1e9, torch.inf, -torch.inf, -249.0], [0x7F, 0x7F, 0x7F, 0x7F, 0xFF, 0xFF]),
    ("fp8", [448.0, 240.0], [0x7E, 0x77]),
    ("bf16", [torch.inf, -torch.inf, 3.4e38], [0x7F80, 0xFF80, 0x7F80]),
    ("fp16", [torch.inf, 65519.0, 65520.0, -1e9], [0x7C00, 0x7BFF, 0x7C00, 0xFC00]),
])
def test_what_is_too_large_saturates_in_fp8_and_becomes_infinite_elsewhere(
    name: str, values: list[float], wanted: list[int], library: Any,
) -> None:
    integer = torch.uint8 if "16" not in name else torch.uint16
    assert convert(library, f"float_to_{name}", torch.tensor(values), integer).tolist() == wanted


@pytest.mark.parametrize("name", FORMATS)
def test_nan_stays_nan(name: str, library: Any) -> None:
    source = torch.tensor([0x7FC00000, 0x7F800001, -1], dtype=torch.int64).to(torch.int32).view(torch.float32)
    integer = torch.uint8 if FORMATS[name].itemsize == 1 else torch.uint16
    assert bool(torch.isnan(convert(library, f"float_to_{name}", source, integer).view(FORMATS[name]).float()).all())


def test_the_hosts_flavour_is_e4m3fn(library: Any) -> None:
    integers, numbers = codes(torch.float8_e4m3fn)
    assert torch.equal(convert(library, "fp8_to_float", integers, torch.float32).nan_to_num(0), numbers.nan_to_num(0))
