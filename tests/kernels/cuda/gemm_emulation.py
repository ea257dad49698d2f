# SPDX-License-Identifier: MIT
"""Builds the FP8 products for the host emulation (emulation/machine.h) and runs them on numpy arrays."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
EMULATION = Path(__file__).resolve().parent / "emulation"
GUARD = 64          # elements of poison on either side of c and the workspace
POISON = 0x7FA5     # a bf16 NaN no kernel would write


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
        """All finite codes up to 60 in magnitude; signed scales over a factor 2^8, about one in ten of them zero."""
        rng = np.random.default_rng(seed)
        finite = np.flatnonzero(np.abs(VALUES) <= 60).astype(np.uint8)

        def scale(*shape: int) -> np.ndarray:
            size = np.exp2(rng.uniform(-4, 4, shape)) * rng.choice([-1, 1], shape) * (rng.random(shape) > 0.1)
            return size.astype(np.float32)

        a, b = rng.choice(finite, (m, k)), rng.choice(finite, (n, k))
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


class Emulated:
    """A kernel compiled for the emulation."""

    def __init__(
        self, problem: str, folder: Path, fp16: bool = False, kernels: Path = ROOT / "kernels",
        variant: str = "mma_sync", flags: tuple[str, ...] = (),
    ):
        """Compile into ``folder``; ``fp16`` takes the path of sm_90. ``kernels`` may be an altered copy of the tree.

        ``variant`` is a kernel's name, or an absolute path without its suffix.
        """
        compiler = shutil.which("g++")
        assert compiler is not None
        library = folder / f"{problem}_{Path(variant).name}{'_fp16' if fp16 else ''}.so"
        includes = [EMULATION, ROOT / "problems" / problem, kernels / "cuda", kernels / "common"]
        command = [
            compiler, "-std=c++17", "-O1", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall", "-Wno-unknown-pragmas",
            f'-DWARPWAVE_KERNEL_FILE="{Path(problem, f"{variant}.cu")}"', *(["-D__CUDA_ARCH__=900"] if fp16 else []),
            *flags,
            *(f"-I{path}" for path in includes), "-x", "c++",
            str(ROOT / "benchmarks/dev/gemm_plan.cu"), "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=120)
        self.problem = problem
        self.library = ctypes.CDLL(str(library))
        self.library.emulation_allow.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        pointers = [ctypes.c_void_p] * 5
        tail = [ctypes.c_int] * 3 + [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.symbol = getattr(self.library, problem)
        self.symbol.argtypes = pointers + tail
        self.library.plan_run.argtypes = [ctypes.c_int] * 2 + pointers + tail
        self.library.emulation_bank_conflicts.restype = ctypes.c_uint64
        self.library.plan_cycles.argtypes = [ctypes.c_int] * 6
        self.library.plan_cycles.restype = ctypes.c_double
        self.library.plan_chosen.argtypes = [ctypes.c_int] * 3 + [ctypes.c_size_t, ctypes.c_int]

    @property
    def shapes(self) -> int:
        return int(self.library.plan_count())

    def runs(self, shape: int, splits: int) -> bool:
        """Whether this plan can run at all (on a K of eight blocks)."""
        return self.library.plan_cycles(shape, splits, 64, 64, 1024, 132) < float("inf")

    def run(
        self, product: Product, plan: tuple[int, int] | None = None, splits_room: int = 0, eager: bool = False,
        copies: bool = False,
    ) -> np.ndarray:
        """[m, n] float64 decoded bf16 result, with the shape and splits of ``plan`` or whatever the kernel chooses.

        ``splits_room`` is how many split-K planes the workspace holds; ``copies`` gives it room for transposed operands
        instead, to the byte. Asserts success and intact guard bands.
        """
        m, n, k = product.sizes
        amd = self.problem == "amd_fp8_mm"
        a, b = (aligned(x.T if amd else x) for x in (product.a, product.b))
        a_scale, b_scale = aligned(product.a_scale.T), aligned(product.b_scale.T if amd else product.b_scale)
        c = np.full(m * n + 2 * GUARD, POISON, np.uint16)
        plane = m * (-(-n // 8) * 8)
        room = sum(-(-rows * k // 256) * 256 for rows in (m, n)) if copies else 4 * plane * splits_room
        space = aligned(np.full(room // 4 + 2 * GUARD, np.nan, np.float32))
        self.library.emulation_allow(None, 0)
        for array in (a, b, a_scale, b_scale):
            self.library.emulation_allow(array.ctypes.data, array.nbytes)
        self.library.emulation_eager(int(eager))
        arguments = (
            a.ctypes.data, b.ctypes.data, a_scale.ctypes.data, b_scale.ctypes.data, c.ctypes.data + 2 * GUARD, m, n, k,
            space.ctypes.data + 4 * GUARD if room else None, room, None,
        )
        status = self.symbol(*arguments) if plan is None else self.library.plan_run(*plan, *arguments)
        assert status == 0
        assert (c[:GUARD] == POISON).all(), "c was written before its first element"
        assert (c[-GUARD:] == POISON).all(), "c was written past its last element"
        assert np.isnan(space[:GUARD]).all(), "the workspace was written before its first element"
        assert np.isnan(space[-GUARD:]).all(), "the workspace was written past its end"
        assert self.library.emulation_bank_conflicts() == 0, "ldmatrix hits some banks twice"
        return (c[GUARD:-GUARD].astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(m, n)

    def chosen(self, m: int, n: int, k: int, workspace_bytes: int, processors: int) -> tuple[int, int]:
        return divmod(int(self.library.plan_chosen(m, n, k, workspace_bytes, processors)), 256)


def aligned(array: np.ndarray) -> np.ndarray:
    """A C-contiguous copy that starts on a multiple of 256 bytes, as device allocations do."""
    room = np.empty(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
