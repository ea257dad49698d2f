# SPDX-License-Identifier: MIT
"""FP8 products for the tests of the kernels: operands, what is right, and every plan of a kernel."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.kernels.cuda.emulated import ROOT, EmulatedKernel, copied

PLANS = ROOT / "kernels/cuda/gemm/plan_entries.h"


def e4m3_values() -> np.ndarray:
    """[256] float64: the value of each e4m3fn code."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent > 0, np.ldexp(8.0 + mantissa, exponent - 10), np.ldexp(1.0 * mantissa, -9))
    magnitude[(codes & 127) == 127] = np.nan
    return np.where(codes & 128, -magnitude, magnitude)


VALUES = e4m3_values()


@dataclass(frozen=True)
class Product:
    """One problem instance: ``a`` [m, k] and ``b`` [n, k] are e4m3 codes, the scales fp32, all in plain row-major."""

    a: np.ndarray
    b: np.ndarray
    a_scale: np.ndarray   # [m, k / 128]
    b_scale: np.ndarray   # [ceil(n / 128), k / 128]

    @classmethod
    def random(cls, m: int, n: int, k: int, seed: int) -> Product:
        """Codes of 4 to 60 in magnitude; signed scales over a factor 2^8, about one in ten of them zero.

        Much smaller codes would vanish in an adder of 13 bits beside the largest, by more than ``expected`` allows.
        """
        rng = np.random.default_rng(seed)
        codes = np.flatnonzero((np.abs(VALUES) >= 4) & (np.abs(VALUES) <= 60)).astype(np.uint8)

        def scale(*shape: int) -> np.ndarray:
            size = np.exp2(rng.uniform(-4, 4, shape)) * rng.choice([-1, 1], shape) * (rng.random(shape) > 0.1)
            return size.astype(np.float32)

        a, b = rng.choice(codes, (m, k)), rng.choice(codes, (n, k))
        return cls(a, b, scale(m, k // 128), scale(-(-n // 128), k // 128))

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.a.shape[0], self.b.shape[0], self.a.shape[1]

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """[m, n] float64 each: the product, and the allowed difference (bf16 rounding + a 13-bit adder)."""
        m, n, k = self.sizes
        a = VALUES[self.a].reshape(m, -1, 128) * self.a_scale[:, :, None]
        b = VALUES[self.b].reshape(n, -1, 128) * np.repeat(self.b_scale, 128, 0)[:n, :, None]
        a, b = a.reshape(m, k), b.reshape(n, k)
        value = a @ b.T
        return value, np.abs(value) * 2.0**-8 + 2.0**-13 * (np.abs(a) @ np.abs(b).T)

    def data(self, problem: str) -> tuple[torch.Tensor | None, ...]:
        """What a case of ``problem`` would have as its data, without c; amd_fp8_mm's operands are K-outermost."""
        turned = problem == "amd_fp8_mm"
        operands = [x.T if turned else x for x in (self.a, self.b)]
        scales = [self.a_scale.T, self.b_scale.T if turned else self.b_scale]
        return *(torch.from_numpy(np.ascontiguousarray(x)) for x in (*operands, *scales)), None

    def agrees(self, got: np.ndarray) -> None:
        """Assert that ``got`` [m, n] is the product."""
        value, bound = self.expected()
        wrong = ~(np.abs(got - value) <= bound)
        assert not wrong.any(), f"wrong: {wrong.sum()}, the first at {np.argwhere(wrong)[0]}"


def with_plans(kernel: str, folder: Path, file: Path | None = None) -> Path:
    """``folder`` with the kernel file ``<problem>/plans.cu``: a product, or ``file``, another of its problem, with the
    entry points of gemm/plan_entries.h, which reach every plan."""
    name, own = kernel.split("/", 1)[0], ROOT / f"kernels/cuda/{kernel}.cu"
    place = folder / "kernels/cuda" / name
    place.mkdir(parents=True, exist_ok=True)
    if file is not None:
        (place / file.name).write_text(file.read_text())
    lines = [line for line in own.read_text().splitlines() if line.startswith("//!KERNEL")]
    lines += [f'#define WARPWAVE_KERNEL_FILE "{name}/{(file or own).name}"', '#include "gemm/plan_entries.h"']
    (place / "plans.cu").write_text("\n".join(lines) + "\n")
    return folder


def with_table(folder: Path, kernel: str, name: str, table: str) -> Path:
    """``folder`` with a copy of the kernels, in which the table of tiles ``name`` of this one is ``table``.

    A kernel with few tiles is built much sooner.
    """
    path = copied(folder) / f"kernels/cuda/{kernel}.cu"
    source, count = re.subn(rf"using {name} = [^;]+;", f"using {name} = {table};", path.read_text())
    assert count == 1, f"{kernel} has no table {name}"
    path.write_text(source)
    return folder


class ProductKernel(EmulatedKernel):
    """A product whose every plan can be run: a tile shape and parts of K. ``root`` is made by ``with_plans``."""

    def __init__(
        self, kernel: str, root: Path, defines: Mapping[str, int | str] | None = None, *, arch: str = "sm_90a",
    ):
        super().__init__(f"{kernel.split('/', 1)[0]}/plans", defines, arch=arch, root=root)

    def library(self, multiprocessors: int = 4) -> ctypes.CDLL:
        library = super().library(multiprocessors)
        library.plan_cycles.argtypes = [ctypes.c_int] * 6
        library.plan_cycles.restype = ctypes.c_double
        library.plan_chosen.argtypes = [ctypes.c_int] * 3 + [ctypes.c_size_t, ctypes.c_int]
        return library

    @property
    def shapes(self) -> int:
        return int(self.library().plan_count())

    def plans(self, *parts: int) -> list[tuple[int, int]]:
        """Every plan that runs (on a K of eight blocks) with so many parts of K."""
        return [(shape, count) for shape in range(self.shapes) for count in parts
                if self.library().plan_cycles(shape, count, 64, 64, 1024, 132) < float("inf")]

    def multiply(
        self, product: Product, plan: tuple[int, ...] = (), splits_room: int = 0, copies: bool = False, **run: Any,
    ) -> np.ndarray:
        """[m, n] float64: the result by ``plan``, or by whatever the kernel chooses.

        ``splits_room`` is how many split-K planes the workspace holds; ``copies`` gives it room for transposed operands
        instead, to the byte.
        """
        m, n, k = product.sizes
        room = sum(-(-rows * k // 256) * 256 for rows in (m, n)) if copies else 4 * m * (-(-n // 8) * 8) * splits_room
        (c,) = self.run({"m": m, "n": n, "k": k}, product.data(self.problem), plan, workspace_bytes=room, **run)
        return c.double().numpy()

    def declines(self, m: int, n: int, k: int, workspace_bytes: int = 0, workspace: int | None = None) -> int:
        """The status of a call with these sizes, whose operands are never followed."""
        pointers = dict.fromkeys(("a", "b", "a_scale", "b_scale", "c"), 16)
        return self.call({**pointers, "m": m, "n": n, "k": k, "workspace": workspace,
                          "workspace_bytes": workspace_bytes, "queue": None})

    def chosen(self, m: int, n: int, k: int, workspace_bytes: int, processors: int) -> tuple[int, int]:
        return divmod(int(self.library().plan_chosen(m, n, k, workspace_bytes, processors)), 256)
