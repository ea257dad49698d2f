# SPDX-License-Identifier: MIT
"""amd_mla_decode's Hopper kernel computes the right thing on the host; the library's products are plain loops there."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.cuda import faults
from tests.kernels.cuda.attention_host import ROOT, Poisoned, problem_module
from tests.kernels.cuda.faults import Fault

EMULATION = Path(__file__).resolve().parent / "emulation"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


class EmulatedLayer:
    """``wgmma_absorbed`` compiled for the host."""

    def __init__(self, folder: Path, defines: dict[str, int] | None = None, kernels: Path = ROOT / "kernels"):
        self.binding = problem_module("amd_mla_decode", "binding")
        self.reference = problem_module("amd_mla_decode", "reference")
        library = folder / "layer.so"
        includes = [EMULATION, ROOT / "problems/amd_mla_decode", kernels / "cuda", kernels / "common"]
        command = [
            "g++", "-std=c++20", "-Og", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall", "-Wno-unknown-pragmas",
            "-D__CUDA_ARCH_LIST__=900", *(f"-D{key}={value}" for key, value in (defines or {}).items()), "-x", "c++",
            "-include", str(EMULATION / "decode.h"), *(f"-I{path}" for path in includes),
            str(kernels / "cuda/amd_mla_decode/wgmma_absorbed.cu"), "-o", str(library),
        ]
        subprocess.run(command, check=True, timeout=300)
        self.library = ctypes.CDLL(str(library))
        self.library.emulation_allow.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def run(self, case: dict[str, int], data: Any, workspace_bytes: int | None = None) -> Any:
        """(status, outputs); every copy reads what was announced, nothing is written around outputs and workspace."""
        values = self.binding.arguments(case, data)
        outputs = [Poisoned(shape, torch.bfloat16) for shape, _ in self.binding.outputs(case).values()]
        size = self.binding.workspace_bytes(case) if workspace_bytes is None else workspace_bytes
        space = Poisoned((size,), torch.uint8)
        tensors = [values[name] for name in ("x", "q_down", "q_up", "kv_down", "kv_up", "wo", "kv_cache")]
        tensors += [output.tensor for output in outputs]
        self.library.emulation_allow(None, 0)
        for tensor in (*tensors, space.tensor):
            self.library.emulation_allow(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        status = self.library.amd_mla_decode(
            *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors),
            *(values[name] for name in ("batch", "dim", "q_rank", "length", "max_len")),
            ctypes.c_void_p(space.tensor.data_ptr()), ctypes.c_size_t(size), None)
        assert space.intact
        assert all(output.intact for output in outputs)
        return status, tuple(output.tensor for output in outputs)

    def check(self, case: dict[str, int], eager: bool, processors: int = 4) -> None:
        """On generated data: right in every element, the row appended, the rest of the cache as it was."""
        data = self.reference.generate_input(**case, seed=3, device="cpu")
        before = data[2].clone()
        self.library.emulation_eager(int(eager))
        self.library.emulation_processors(processors)
        status, outputs = self.run(case, data)
        assert status == 0
        passed, message = self.reference.check_implementation(data, outputs)
        assert passed, message
        at = case["prefill"]
        assert torch.equal(data[2][:, at], outputs[1][:, 0])
        before[:, at] = data[2][:, at]
        assert torch.equal(before.view(torch.int16), data[2].view(torch.int16))


def size(batchsize: int, prefill: int) -> dict[str, int]:
    return {"batchsize": batchsize, "dim": 32, "dq": 16, "prefill": prefill}


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> EmulatedLayer:
    return EmulatedLayer(tmp_path_factory.mktemp("layer"))


@pytest.mark.parametrize("eager", [False, True])
def test_it_matches_the_reference(layer: EmulatedLayer, eager: bool) -> None:
    layer.check(size(1, 0), eager)               # the newest token alone
    layer.check(size(1, 63), eager)              # it ends a page
    layer.check(size(2, 330), eager)             # both stages several times, positions that share angles


def test_requests_that_are_cut(layer: EmulatedLayer) -> None:
    layer.check(size(3, 300), False, processors=10)


def test_products_by_the_plain_kernel(tmp_path: Path) -> None:
    """What tools are given instead of the library's; an output is a thread, so one small case."""
    EmulatedLayer(tmp_path, {"LIBRARY": 0}).check(size(2, 70), False)


def test_what_it_declines(layer: EmulatedLayer) -> None:
    data = layer.reference.generate_input(**size(1, 1), seed=1, device="cpu")
    assert layer.run(size(1, 1), data, workspace_bytes=1 << 20)[0] == -2
    assert layer.run({**size(1, 1), "prefill": 8192}, data)[0] == -1
    assert layer.run({**size(1, 1), "dq": 12}, data)[0] == -1


FAULTS = {"keys of another position": Fault(   # every page with the rotary columns of the first
    "tile/wgmma_latent_produce.h", "(numbers.first + page)", "(numbers.first + (FAULT ? 0 : page))")}


def planted(kernels: Path, folder: Path) -> faults.Built:
    layer = EmulatedLayer(folder, None, kernels)

    def check(_fault: str) -> None:
        for eager in (False, True):
            layer.check(size(1, 330), eager)

    return layer.library, check


def test_the_emulation_notices(tmp_path: Path) -> None:
    """A check of the checks."""
    assert faults.outcomes(tmp_path, FAULTS, planted) == {faults.NONE: "passed", **dict.fromkeys(FAULTS, "refused")}
