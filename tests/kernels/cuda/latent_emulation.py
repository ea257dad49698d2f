# SPDX-License-Identifier: MIT
"""Builds MLA decode for the host emulation (emulation/machine.h) and runs it on torch tensors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from tests.kernels.cuda.attention_host import PARAMETERS, ROOT, Poisoned, _c, problem_module

EMULATION = Path(__file__).resolve().parent / "emulation"


def case(batch: int, hq: int, sk: int, lens: str = "uniform", sq: int = 1, causal: int = 0) -> dict[str, Any]:
    return {"batch": batch, "sq": sq, "hq": hq, "sk": sk, "lens": lens, "causal": causal}


def name(value: Any) -> str:
    """Of a case, or of what stands beside one, for pytest."""
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


class EmulatedLatent:
    """A kernel of MLA decode compiled for the host, as the build for ``arch`` (89 or 90) would choose its tiles."""

    def __init__(
        self, folder: Path, defines: dict[str, int], kernels: Path = ROOT / "kernels",
        problem: str = "mla_decode", variant: str = "wgmma_tma", arch: int = 90,
    ):
        compiler = shutil.which("g++")
        assert compiler is not None, "the emulation needs g++"
        self.binding = problem_module(problem, "binding")
        self.reference = problem_module(problem, "reference")
        library = folder / f"{problem}_{arch}.so"
        includes = [EMULATION, ROOT / "problems" / problem, kernels / "cuda", kernels / "common"]
        command = [
            compiler, "-std=c++20", "-Og", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall", "-Wno-unknown-pragmas",
            f"-D__CUDA_ARCH_LIST__={arch}0", *(f"-D{key}={value}" for key, value in defines.items()), "-x", "c++",
            "-include", str(EMULATION / "decode.h"), *(f"-I{path}" for path in includes),
            str(kernels / f"cuda/{problem}/{variant}.cu"), "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=300)
        self.library = ctypes.CDLL(str(library))
        self.library.emulation_allow.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.used_workspace = False
        self.spaces: dict[int, Poisoned] = {}

    def run(
        self, case: dict[str, Any], data: Any, eager: bool = False, processors: int = 4, workspace_bytes: int = 0,
        together: bool = False,
    ) -> list[torch.Tensor]:
        """Call the kernel; asserts success and intact guard bands. Returns its outputs.

        ``together``: blocks without clusters run at the same time, else one after the other.
        """
        arguments = self.binding.arguments(case, data)
        outputs = {
            name: Poisoned(shape, getattr(torch, dtype)) for name, (shape, dtype) in self.binding.outputs(case).items()}
        # One workspace for calls of one size: what a kernel keeps for each must be as new after each call.
        space = self.spaces.setdefault(workspace_bytes, Poisoned((workspace_bytes // 4,), torch.float32))
        self.library.emulation_allow(None, 0)
        self.library.emulation_allow(space.tensor.data_ptr(), workspace_bytes)
        bits = space.tensor.view(torch.int32).fill_(-1)      # NaN: what is read without having been written shows
        self.library.emulation_eager(int(eager))
        self.library.emulation_processors(processors)
        self.library.emulation_together(int(together))
        for value in arguments.values():
            if isinstance(value, torch.Tensor):
                self.library.emulation_allow(value.data_ptr(), value.numel() * value.element_size())
        values = {**arguments, **{name: output.tensor for name, output in outputs.items()}}
        values |= {"workspace": space.tensor, "workspace_bytes": workspace_bytes, "queue": None}
        call = getattr(self.library, self.binding.SYMBOL)
        status = call(*(_c(name, values[name]) for name in PARAMETERS["mla_decode"]))   # the same for both caches
        assert status == 0, f"status {status}"
        assert space.intact
        assert all(output.intact for output in outputs.values())
        self.used_workspace = bool((bits != -1).any())
        return [output.tensor for output in outputs.values()]

    def check(self, case: dict[str, Any], seed: int = 1, **run: Any) -> None:
        """Run on generated data and compare with the problem's reference in every element."""
        data = self.reference.generate_input(**case, seed=seed, device="cpu")
        passed, message = self.reference.check_implementation(data, tuple(self.run(case, data, **run)))
        assert passed, message


def check_late_scale(mla: EmulatedLatent, heads: int) -> None:
    """Of a cache in FP8: the largest scale comes late, in one group only, and is 2^20 times those before."""
    size = case(1, heads, 300)
    q, cache, *rest = mla.reference.generate_input(**size, seed=3, device="cpu")
    scales = cache.view(torch.uint8)[..., 512:528].contiguous().view(torch.float32)
    scales *= 2.0**-12
    scales[rest[0][0, 3].item(), 5, 0, 2] *= 2.0**20
    cache.view(torch.uint8)[..., 512:528] = scales.view(torch.uint8)
    data = (q * 2.0**-100, cache, *rest)     # queries below fp16's range, too: probabilities are equal
    passed, message = mla.reference.check_implementation(data, tuple(mla.run(size, data)))
    assert passed, message
