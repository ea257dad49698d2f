# SPDX-License-Identifier: MIT
"""kernels/common/online_softmax.h on the host: the ends of a row, which no kernel may get wrong on its own."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable

import pytest

from backends.cpu import find_cxx
from backends.errors import ToolchainMissing
from tests.problems.folders import ROOT

pytestmark = pytest.mark.toolchain

SOURCE = """
#include "online_softmax.h"
extern "C" void finish(const float* scores, int n, float* inverse, float* lse) {
    SoftmaxRow row;
    for (int i = 0; i < n; ++i) {
        row.raise(scores[i], kLog2E, exp2f);
        row.sum += exp2f(scores[i] * kLog2E - row.shift(kLog2E));
    }
    *inverse = row.inverse();
    *lse = row.lse(kLog2E);
}
"""
Finish = Callable[[list[float]], tuple[float, float]]


@pytest.fixture(scope="module")
def finish(tmp_path_factory: pytest.TempPathFactory) -> Finish:
    """(inverse, lse) of a row with these scores, softmax scale 1."""
    try:
        cxx = find_cxx()
    except ToolchainMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("softmax")
    (folder / "row.cpp").write_text(SOURCE)
    subprocess.run([str(cxx.path), "-std=c++17", "-O2", "-fPIC", "-shared", "-I", str(ROOT / "kernels/common"),
                    str(folder / "row.cpp"), "-o", str(folder / "row.so")], check=True)
    function = ctypes.CDLL(str(folder / "row.so")).finish

    def call(scores: list[float]) -> tuple[float, float]:
        inverse, lse = ctypes.c_float(), ctypes.c_float()
        function((ctypes.c_float * len(scores))(*scores), len(scores), ctypes.byref(inverse), ctypes.byref(lse))
        return inverse.value, lse.value

    return call


def test_a_row_with_keys(finish: Finish) -> None:
    inverse, lse = finish([1.0, -2.0, 3.0, -math.inf])
    assert lse == pytest.approx(math.log(math.exp(1) + math.exp(-2) + math.exp(3)), rel=1e-6)
    assert inverse == pytest.approx(1 / (math.exp(-2) + math.exp(-5) + 1), rel=1e-6)


@pytest.mark.parametrize("scores", [[], [-math.inf], [-math.inf] * 3])
def test_a_row_without_keys(finish: Finish, scores: list[float]) -> None:
    assert finish(scores) == (0.0, -math.inf)


@pytest.mark.parametrize("scores", [[math.nan], [1.0, math.nan], [math.nan, 1.0], [-math.inf, math.nan]])
def test_nan_is_not_mistaken_for_a_row_without_keys(finish: Finish, scores: list[float]) -> None:
    assert all(map(math.isnan, finish(scores)))
