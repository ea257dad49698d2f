# SPDX-License-Identifier: MIT
"""Builds the Hopper attention forward for the host emulation (emulation/machine.h) and runs it on torch tensors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from tests.kernels.cuda.attention_host import PARAMETERS, POISON, ROOT, Poisoned, _c, problem_module

EMULATION = Path(__file__).resolve().parent / "emulation"


class EmulatedFlash:
    """``wgmma_tma`` compiled for the host."""

    def __init__(
        self, folder: Path, defines: dict[str, int], kernels: Path = ROOT / "kernels", optimise: str = "1"
    ):
        compiler = shutil.which("g++")
        assert compiler is not None, "the emulation needs g++"
        self.used_workspace = False      # whether the last run wrote to its workspace
        self.binding = problem_module("flash_attention", "binding")
        self.reference = problem_module("flash_attention", "reference")
        library = folder / "flash_attention.so"
        includes = [EMULATION, ROOT / "problems/flash_attention", kernels / "cuda", kernels / "common"]
        command = [
            compiler, "-std=c++20", f"-O{optimise}", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall",
            "-Wno-unknown-pragmas",
            "-D__CUDA_ARCH_LIST__=900", *(f"-D{key}={value}" for key, value in defines.items()), "-x", "c++",
            "-include", str(EMULATION / "launch.h"), *(f"-I{path}" for path in includes),
            str(kernels / "cuda/flash_attention/wgmma_tma.cu"), "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=300)
        self.library = ctypes.CDLL(str(library))
        self.library.emulation_allow.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def run(
        self, case: dict[str, Any], data: Any, eager: bool = False, processors: int = 4, workspace_bytes: int = 0,
    ) -> list[torch.Tensor]:
        """Call the kernel; asserts success and intact guard bands. Returns its outputs."""
        arguments = self.binding.arguments(case, data)
        outputs = {
            name: Poisoned(shape, getattr(torch, dtype)) for name, (shape, dtype) in self.binding.outputs(case).items()}
        space = Poisoned((workspace_bytes // 4,), torch.float32)
        self.library.emulation_eager(int(eager))
        self.library.emulation_processors(processors)
        self.library.emulation_allow(None, 0)
        for value in arguments.values():
            if isinstance(value, torch.Tensor):
                self.library.emulation_allow(value.data_ptr(), value.numel() * value.element_size())
        values = {**arguments, **{name: output.tensor for name, output in outputs.items()}}
        values |= {"workspace": space.tensor, "workspace_bytes": workspace_bytes, "queue": None}
        status = self.library.flash_attention(*(_c(name, values[name]) for name in PARAMETERS["flash_attention"]))
        assert status == 0, f"status {status}"
        assert space.intact
        self.used_workspace = bool((space.bytes != POISON).any())
        assert all(output.intact for output in outputs.values())
        return [output.tensor for output in outputs.values()]

    def check(self, case: dict[str, Any], seed: int = 1, **run: Any) -> None:
        """Run on generated data and compare with the problem's reference in every element."""
        data = self.reference.generate_input(**case, seed=seed, device="cpu")
        passed, message = self.reference.check_implementation(data, tuple(self.run(case, data, **run)))
        assert passed, message


def check_jump(kernel: EmulatedFlash, size: dict[str, Any], first: float, factor: float) -> None:
    """Multiply the first keys, that part of them, with `factor`, the others with 1/2, and check the outputs."""
    q, k, v, causal, scale = kernel.reference.generate_input(**size, seed=7, device="cpu")
    factors = torch.where(torch.arange(size["sk"]) < first * size["sk"], factor, 0.5)
    data = (q, (k * factors[None, :, None, None]).to(k.dtype), v, causal, scale)
    passed, message = kernel.reference.check_implementation(data, tuple(kernel.run(size, data, processors=1)))
    assert passed, message
