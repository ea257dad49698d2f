# SPDX-License-Identifier: MIT
"""Builds the Hopper attention from e4m3 for the host emulation (emulation/machine.h) and runs it on torch tensors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from tests.kernels.cuda.attention_host import ROOT, Poisoned, problem_module

EMULATION = Path(__file__).resolve().parent / "emulation"
PARAMETERS = [
    "q", "k", "v", "q_scale", "k_scale", "v_scale", "o", "lse", "batch", "seqlen_q", "seqlen_k", "heads_q", "heads_k",
    "head_dim", "scales", "causal", "softmax_scale", "workspace", "workspace_bytes", "queue",
]


def _c(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if name == "queue" or value is None:
        return ctypes.c_void_p(None)
    if name == "workspace_bytes":
        return ctypes.c_size_t(value)
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)


class EmulatedFp8Flash:
    """``wgmma_tma`` compiled for the host."""

    def __init__(self, folder: Path, defines: dict[str, str], kernels: Path = ROOT / "kernels"):
        compiler = shutil.which("g++")
        assert compiler is not None, "the emulation needs g++"
        self.binding = problem_module("flash_attention_fp8", "binding")
        self.reference = problem_module("flash_attention_fp8", "reference")
        library = folder / "flash_attention_fp8.so"
        includes = [EMULATION, ROOT / "problems/flash_attention_fp8", kernels / "cuda", kernels / "common"]
        command = [
            compiler, "-std=c++20", "-Og", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall",
            "-Wno-unknown-pragmas",
            "-D__CUDA_ARCH_LIST__=900", *(f"-D{key}={value}" for key, value in defines.items()), "-x", "c++",
            "-include", str(EMULATION / "launch.h"), *(f"-I{path}" for path in includes),
            str(kernels / "cuda/flash_attention_fp8/wgmma_tma.cu"), "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=300)
        self.library = ctypes.CDLL(str(library))
        self.library.emulation_bank_conflicts.restype = ctypes.c_uint64
        self.library.emulation_allow.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def run(
        self, case: dict[str, Any], data: Any, eager: bool = False, processors: int = 4, workspace: bool = True,
        count: bool = True,
    ) -> list[torch.Tensor]:
        """Call the kernel with room for transposed values and a count of tiles, or without the latter, or with no
        workspace at all; asserts success and intact guard bands. Returns its outputs.
        """
        arguments = self.binding.arguments(case, data)
        outputs = {
            name: Poisoned(shape, getattr(torch, dtype)) for name, (shape, dtype) in self.binding.outputs(case).items()}
        size = case["batch"] * case["hk"] * case["dim"] * (-(-case["sk"] // 128) * 128)
        size = size + 4 * count if workspace else 0
        space = Poisoned((size,), torch.uint8)
        self.library.emulation_eager(int(eager))
        self.library.emulation_processors(processors)
        self.library.emulation_allow(None, 0)
        for value in arguments.values():
            if isinstance(value, torch.Tensor):
                self.library.emulation_allow(value.data_ptr(), value.numel() * value.element_size())
        values = {**arguments, **{name: output.tensor for name, output in outputs.items()}}
        self.library.emulation_allow(space.tensor.data_ptr(), size)
        values |= {"workspace": space.tensor if workspace else None, "workspace_bytes": size, "queue": None}
        status = self.library.flash_attention_fp8(*(_c(name, values[name]) for name in PARAMETERS))
        assert status == 0, f"status {status}"
        assert space.intact
        assert all(output.intact for output in outputs.values())
        return [output.tensor for output in outputs.values()]

    def check(self, case: dict[str, Any], seed: int = 1, **run: Any) -> None:
        """Run on generated data and compare with the problem's reference in every element."""
        data = self.reference.generate_input(**case, seed=seed, device="cpu")
        passed, message = self.reference.check_implementation(data, tuple(self.run(case, data, **run)))
        assert passed, message
