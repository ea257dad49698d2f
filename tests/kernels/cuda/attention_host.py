# SPDX-License-Identifier: MIT
"""Builds the attention kernels for a CPU (attention_emulation/emulated.h), and runs them on torch tensors."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[3]
EMULATION = Path(__file__).resolve().parent / "attention_emulation"
GUARD = 4096          # bytes of poison on either side of every output and the workspace
POISON = 0xF7         # as bf16 -1e34, as fp16 a NaN, as fp32 -1e34: no value a kernel writes by chance
OPTIONS = {           # how far copies lag, which warp runs first
    "late": (1, 0),
    "early": (0, 1),
}


def problem_module(problem: str, name: str) -> ModuleType:
    """``problems/<problem>/<name>.py``, whose imports are flat as on a runner."""
    folder = ROOT / "problems" / problem
    path = [str(folder), str(folder.parent)]
    spec = importlib.util.spec_from_file_location(f"{problem}_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.pop("task", None)
    sys.path[:0] = path
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.path[: len(path)]
        sys.modules.pop("task", None)
        if before is not None:
            sys.modules["task"] = before
    return module


class Poisoned:
    """An output buffer between guard bands."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype):
        count = 1
        for size in shape:
            count *= size
        self.bytes = torch.full((count * dtype.itemsize + 2 * GUARD,), POISON, dtype=torch.uint8)
        self.tensor = self.bytes[GUARD : len(self.bytes) - GUARD].view(dtype).view(shape)

    @property
    def intact(self) -> bool:
        return bool((self.bytes[:GUARD] == POISON).all() and (self.bytes[-GUARD:] == POISON).all())


class EmulatedKernel:
    """One kernel file compiled for the host, as the build for ``arch`` (89 or 90) would choose its tiles."""

    def __init__(self, problem: str, folder: Path, arch: int, kernels: Path = ROOT / "kernels"):
        compiler = shutil.which("g++")
        assert compiler is not None, "the emulation needs g++"
        self.problem = problem
        self.used_workspace = False      # whether the last run wrote to its workspace
        self.binding = problem_module(problem, "binding")
        self.reference = problem_module(problem, "reference")
        library = folder / f"{problem}_{arch}.so"
        includes = [EMULATION, ROOT / "problems" / problem, kernels / "cuda", kernels / "common"]
        command = [
            compiler, "-std=c++20", "-Og", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall", "-Wno-unknown-pragmas",
            f"-D__CUDA_ARCH_LIST__={arch}0", "-x", "c++", "-include", str(EMULATION / "emulated.h"),
            *(f"-I{path}" for path in includes), str(kernels / "cuda" / problem / "mma_sync.cu"), "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=300)
        self.library = ctypes.CDLL(str(library))
        self.library.emulated_array.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def run(
        self, case: dict[str, Any], data: Any, workspace_bytes: int = 0, options: str = "late", processors: int = 4,
    ) -> list[torch.Tensor]:
        """Call the kernel; asserts success, intact guard bands and clean memory accesses. Returns its outputs."""
        binding = self.binding
        arguments = binding.arguments(case, data)
        outputs = {
            name: Poisoned(shape, getattr(torch, dtype)) for name, (shape, dtype) in binding.outputs(case).items()}
        space = Poisoned((workspace_bytes // 4,), torch.float32)
        self.library.emulated_options(*OPTIONS[options], processors)
        for value in arguments.values():
            if isinstance(value, torch.Tensor):
                self.library.emulated_array(value.data_ptr(), value.numel() * value.element_size())
        values = {**arguments, **{name: output.tensor for name, output in outputs.items()}}
        values["workspace"], values["workspace_bytes"], values["queue"] = space.tensor, workspace_bytes, None
        status = getattr(self.library, binding.SYMBOL)(*(_c(name, values[name]) for name in PARAMETERS[self.problem]))
        assert status == 0, f"status {status}"
        assert self.library.emulated_errors() == 0, "see standard error"
        assert self.library.emulated_conflicts() == 0, "shared-memory rows of an ldmatrix share banks"
        assert space.intact
        self.used_workspace = bool((space.bytes != POISON).any())
        assert all(output.intact for output in outputs.values())
        return [output.tensor for output in outputs.values()]

    def check(self, case: dict[str, Any], seed: int = 1, **run: Any) -> None:
        """Run on generated data and compare with the problem's reference in every element."""
        data = self.reference.generate_input(**case, seed=seed, device="cpu")
        passed, message = self.reference.check_implementation(data, tuple(self.run(case, data, **run)))
        assert passed, message


PARAMETERS = {
    "flash_attention": ("q", "k", "v", "o", "lse", "batch", "seqlen_q", "seqlen_k", "heads_q", "heads_k", "head_dim",
                        "half", "causal", "softmax_scale", "workspace", "workspace_bytes", "queue"),
    "flash_attention_varlen": ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "o", "lse", "batch", "total_q", "total_k",
                               "max_seqlen_q", "max_seqlen_k", "heads_q", "heads_k", "head_dim", "half", "causal",
                               "softmax_scale", "workspace", "workspace_bytes", "queue"),
    "flash_attention_bwd": ("q", "k", "v", "o", "dout", "lse", "dq", "dk", "dv", "batch", "seqlen_q", "seqlen_k",
                            "heads_q", "heads_k", "head_dim", "half", "causal", "softmax_scale", "workspace",
                            "workspace_bytes", "queue"),
    "mla_decode": ("q", "kv_cache", "block_table", "seqlens", "o", "lse", "batch", "seqlen_q", "heads_q", "num_blocks",
                   "max_blocks_per_seq", "causal", "softmax_scale", "workspace", "workspace_bytes", "queue"),
}


def _c(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if name == "workspace_bytes":
        return ctypes.c_size_t(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_void_p(None) if value is None else ctypes.c_int(value)
