# SPDX-License-Identifier: MIT
"""Builds CUDA kernel files for the host emulation (emulation/machine.h) and runs them on torch tensors.

A problem's kernel.h says what an entry point takes, its binding.py what a case's arguments and outputs are, and its
reference.py what is right.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.cuda.built import flags
from tests.problems.folders import problem, signature

ROOT = Path(__file__).resolve().parents[3]
EMULATION = Path(__file__).resolve().parent / "emulation"
GUARD = 4096          # bytes of poison on either side of every output and the workspace
POISON = 0xF7         # as bf16 -1e34, as fp16 a NaN, as fp32 -1e34: no value a kernel writes by chance
UNWRITTEN = 0xFF      # a workspace's bytes: NaN of every format, so that what is read without having been written shows
IN_TURNS, FORWARD, BACKWARD = range(3)     # emulation_order: which warps run until the next barrier
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


class Poisoned:
    """A buffer between guard bands, which starts as POISON."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype):
        size = math.prod(shape) * dtype.itemsize
        self.bytes = torch.full((size + 2 * GUARD,), POISON, dtype=torch.uint8)
        self.inside = self.bytes[GUARD : GUARD + size]
        self.tensor = self.inside.view(dtype).view(shape)

    @property
    def intact(self) -> bool:
        return bool((self.bytes[:GUARD] == POISON).all() and (self.bytes[-GUARD:] == POISON).all())


class HostKernel:
    """One kernel file compiled for the host.

    ``kernel`` is ``problem/variant``, a file of ``kernels`` (which may be an altered copy of the tree); ``file`` is
    another one for the same problem. ``arch`` is the oldest architecture of the build that is emulated; tunables
    have the values of ``defines``, else those of the file itself.
    """

    def __init__(
        self, kernel: str, folder: Path, defines: Mapping[str, int | str] | None = None, *, arch: int = 90,
        kernels: Path = ROOT / "kernels", optimise: str = "g", file: Path | None = None,
    ):
        compiler = shutil.which("g++")
        assert compiler is not None, "the emulation needs g++"
        self.problem = kernel.split("/", 1)[0]
        self.binding, self.reference = problem(self.problem).binding, problem(self.problem).reference
        self.used_workspace = False      # whether the last run wrote to its workspace
        self._spaces: dict[int, Poisoned] = {}
        library = folder / f"{kernel.replace('/', '_')}_{arch}.so"
        # A root without the common headers of the project has those besides, as in ``KernelSource.include_dirs``.
        homes = [kernels] if (kernels / "common" / "launch.h").is_file() else [kernels, ROOT / "kernels"]
        includes = [EMULATION, problem(self.problem).path,
                    *(home / part for home in homes for part in ("cuda", "common"))]
        command = [
            compiler, "-std=c++20", f"-O{optimise}", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall",
            "-Wno-unknown-pragmas", f"-D__CUDA_ARCH_LIST__={arch}0",
            *flags(kernel, defines), *(f"-I{path}" for path in includes),
            "-x", "c++", "-include", str(EMULATION / "launch.h"), str(file or kernels / f"cuda/{kernel}.cu"),
            "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=300)
        self.library = ctypes.CDLL(str(library))
        self.library.emulation_allow.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.library.emulation_bank_conflicts.restype = ctypes.c_uint64

    def call(self, values: Mapping[str, Any], *plan: int) -> int:
        """The status of a call with ``values`` by the names of kernel.h: tensors, numbers, None.

        With ``plan``, (shape, splits) of a product, through plan_run (gemm/plan_entries.h).
        """
        abi = signature(self.problem)
        function = self.library.plan_run if plan else getattr(self.library, abi.symbol)
        types = abi.argtypes()
        arguments = [values[param.name] for param in abi.params]
        function.argtypes = [ctypes.c_int] * len(plan) + types
        return int(function(*plan, *(x.data_ptr() if isinstance(x, torch.Tensor) else x for x in arguments)))

    def run(
        self, case: Mapping[str, Any], data: Any, plan: tuple[int, ...] = (), *, eager: bool = False,
        processors: int = 4, workspace_bytes: int = 0, order: int = IN_TURNS, together: bool = False,
    ) -> list[torch.Tensor]:
        """The outputs of a call on ``data``. Asserts success and intact guard bands; ldmatrix has no bank conflict.

        ``eager``: copies land at once, else as late as they may. ``order``: of warps between barriers. ``together``:
        blocks without clusters run at the same time, else one after the other.
        """
        outputs = {name: Poisoned(shape, getattr(torch, dtype))
                   for name, (shape, dtype) in self.binding.outputs(case).items()}
        # One workspace for calls of one size: what a kernel keeps for each must be as new after each call.
        space = self._spaces.setdefault(workspace_bytes, Poisoned((workspace_bytes,), torch.uint8))
        space.inside.fill_(UNWRITTEN)
        values = {**self.binding.arguments(case, data), **{name: output.tensor for name, output in outputs.items()},
                  "workspace": space.tensor if workspace_bytes else None, "workspace_bytes": workspace_bytes,
                  "queue": None}
        self.library.emulation_allow(None, 0)
        for value in values.values():
            if isinstance(value, torch.Tensor):
                self.library.emulation_allow(value.data_ptr(), value.numel() * value.element_size())
        self.library.emulation_eager(int(eager))
        self.library.emulation_order(order)
        self.library.emulation_processors(processors)
        self.library.emulation_together(int(together))
        self.library.emulation_bank_conflicts()
        status = self.call(values, *plan)
        assert status == 0, f"status {status}"
        assert all(buffer.intact for buffer in (space, *outputs.values())), "written outside an output or the workspace"
        assert self.library.emulation_bank_conflicts() == 0, "shared-memory rows of an ldmatrix share banks"
        self.used_workspace = bool((space.inside != UNWRITTEN).any())
        return [output.tensor for output in outputs.values()]

    def verify(self, case: Mapping[str, Any], data: Any, **run: Any) -> None:
        """Run on ``data`` and compare with the problem's reference in every element."""
        outputs = self.run(case, data, **run)
        passed, message = self.reference.check_implementation(data, tuple(outputs) if len(outputs) > 1 else outputs[0])
        assert passed, message

    def check(self, case: Mapping[str, Any], seed: int = 1, **run: Any) -> None:
        """``verify`` on generated data."""
        self.verify(case, self.reference.generate_input(**case, seed=seed, device="cpu"), **run)
