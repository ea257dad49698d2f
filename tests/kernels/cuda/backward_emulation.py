# SPDX-License-Identifier: MIT
"""Builds the Hopper attention backward for the host emulation (emulation/machine.h) and runs it on torch tensors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from tests.kernels.cuda.attention_host import PARAMETERS, ROOT, Poisoned, _c, problem_module

EMULATION = Path(__file__).resolve().parent / "emulation"
PROBLEM = "flash_attention_bwd"


class EmulatedBackward:
    """``wgmma_tma`` compiled for the host."""

    def __init__(
        self, folder: Path, defines: dict[str, int], kernels: Path = ROOT / "kernels", optimise: str = "1",
    ):
        compiler = shutil.which("g++")
        assert compiler is not None, "the emulation needs g++"
        self.binding = problem_module(PROBLEM, "binding")
        self.reference = problem_module(PROBLEM, "reference")
        library = folder / f"{PROBLEM}.so"
        includes = [EMULATION, ROOT / "problems" / PROBLEM, kernels / "cuda", kernels / "common"]
        command = [
            compiler, "-std=c++20", f"-O{optimise}", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall",
            "-Wno-unknown-pragmas", "-D__CUDA_ARCH_LIST__=900",
            *(f"-D{key}={value}" for key, value in defines.items()), "-x", "c++", "-include",
            str(EMULATION / "launch.h"), *(f"-I{path}" for path in includes),
            str(kernels / "cuda" / PROBLEM / "wgmma_tma.cu"), "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=300)
        self.library = ctypes.CDLL(str(library))

    def run(
        self, case: dict[str, Any], data: Any, eager: bool = False, processors: int = 1, short: int = 0,
    ) -> list[torch.Tensor]:
        """Call the kernel, with ``short`` bytes of workspace less; asserts success and intact guard bands."""
        arguments = self.binding.arguments(case, data)
        outputs = {
            name: Poisoned(shape, getattr(torch, dtype)) for name, (shape, dtype) in self.binding.outputs(case).items()}
        size = self.binding.workspace_bytes(case) - short
        space = Poisoned((size // 4,), torch.float32)
        self.library.emulation_eager(int(eager))
        self.library.emulation_processors(processors)
        values = {**arguments, **{name: output.tensor for name, output in outputs.items()}}
        values |= {"workspace": space.tensor, "workspace_bytes": size, "queue": None}
        status = self.library.flash_attention_bwd(*(_c(name, values[name]) for name in PARAMETERS[PROBLEM]))
        assert status == 0, f"status {status}"
        assert self.library.emulation_bank_conflicts() == 0
        assert space.intact
        assert all(output.intact for output in outputs.values())
        return [output.tensor for output in outputs.values()]

    def check(self, case: dict[str, Any], seed: int = 1, **run: Any) -> None:
        """Run on generated data and compare with the problem's reference in every element."""
        data = self.reference.generate_input(**case, seed=seed, device="cpu")
        passed, message = self.reference.check_implementation(data, tuple(self.run(case, data, **run)))
        assert passed, message
