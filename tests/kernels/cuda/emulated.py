# SPDX-License-Identifier: MIT
"""Runs CUDA kernels on an emulated GPU, on torch tensors and with all of its checks.

Sizes, numbers of multiprocessors and workspaces may be others than those of a problem's own cases.

A problem's kernel.h says what an entry point takes, its binding.py what a case's arguments and outputs are, and its
reference.py what is right.
"""

from __future__ import annotations

import ctypes
import json
import math
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import backends
from backends import _emulated
from backends.errors import ToolchainMissing
from backends.source import KernelSource
from tests.emulator.ptx.driver import Cuda
from tests.problems.folders import problem, signature

ROOT = Path(__file__).resolve().parents[3]
GPUS = {"sm_90a": "H100", "sm_89": "L4"}
GUARD = 4096          # bytes of poison on either side of every output and the workspace
POISON = 0xF7         # as bf16 -1e34, as fp16 a NaN, as fp32 -1e34: no value a kernel writes by chance
UNWRITTEN = 0xFF      # a workspace's bytes: NaN of every format, so that what is read without having been written shows
SECONDS = 900         # that nvcc may take, on a machine that does other things as well


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


@cache
def device() -> Cuda:
    return Cuda()


def needs_nvcc() -> None:
    """Skips where it is not here."""
    try:
        backends.get("cuda").compiler()
    except ToolchainMissing as error:
        pytest.skip(str(error))


@contextmanager
def emulating() -> Iterator[None]:
    """Within: kernels are compiled for the emulated GPUs."""
    before = list(_emulated._chosen)
    _emulated.use(True)
    try:
        yield
    finally:
        _emulated._chosen[:] = before


def copied(folder: Path, *edits: tuple[str, str, str], home: Path = ROOT) -> Path:
    """``folder`` with a copy of the kernels of ``home`` below it.

    Of ``edits``, (file of kernels/cuda, text, other text), each replaces a text wherever it stands in the file.
    """
    kernels = folder / "kernels"
    if not kernels.exists():
        shutil.copytree(home / "kernels", kernels)
        for header in (home / "problems").glob("*/kernel.h"):
            (folder / "problems" / header.parent.name).mkdir(parents=True)
            shutil.copy(header, folder / "problems" / header.parent.name)
    for file, text, other in edits:
        path = kernels / "cuda" / file
        source = path.read_text()
        assert text in source, f"{file} lacks {text}"
        path.write_text(source.replace(text, other))
    return folder


class EmulatedKernel:
    """One kernel file, ``problem/variant``, of the checkout, or of ``root``, a folder with a copy of its kernels.

    ``arch`` is what it is compiled for, and so the GPU. Tunables have the values of ``defines``, which may be any, else
    those of the file itself. Builds are cached like those of users.
    """

    def __init__(
        self, kernel: str, defines: Mapping[str, int | str] | None = None, *, arch: str = "sm_90a",
        root: Path | None = None,
    ):
        self.problem = kernel.split("/", 1)[0]
        self.binding, self.reference = problem(self.problem).binding, problem(self.problem).reference
        self.arch = arch
        self.used_workspace = False      # whether the last run wrote to its workspace
        self.fault = 0                   # the number of the planted one (planting.py) that is on
        self._spaces: dict[int, Poisoned] = {}
        self._libraries: dict[int, ctypes.CDLL] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="warpwave-kernel-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        home = root or ROOT
        source = KernelSource.read(home / f"kernels/cuda/{kernel}.cu", home)
        values = source.resolve() | {name: str(value) for name, value in (defines or {}).items()}
        cuda = backends.get("cuda")
        needs_nvcc()
        with emulating():
            source = replace(source, tunables={}, defines=values)
            self._built = cuda.compile(source, cuda.target(arch), timeout=SECONDS).path

    def library(self, multiprocessors: int = 4) -> ctypes.CDLL:
        """For a GPU of so many multiprocessors: kernels keep what they once were told of it."""
        device()            # the runtime that the library finds when it is loaded
        if multiprocessors not in self._libraries:
            path = self._folder / f"{multiprocessors}.so"
            shutil.copy(self._built, path)
            self._libraries[multiprocessors] = ctypes.CDLL(str(path))
        return self._libraries[multiprocessors]

    def call(self, values: Mapping[str, Any], *plan: int, multiprocessors: int = 4, schedule: str = "late") -> int:
        """The status of a call with ``values`` by the names of kernel.h: tensors, numbers, None.

        With ``plan``, (shape, splits) of a product, through plan_run (gemm/plan_entries.h). Fails on a finding.
        """
        gpu, abi = device(), signature(self.problem)
        library = self.library(multiprocessors)
        function = library.plan_run if plan else getattr(library, abi.symbol)
        types = abi.argtypes()
        arguments = [values[param.name] for param in abi.params]
        function.argtypes = [ctypes.c_int] * len(plan) + types
        gpu.set(gpu=GPUS[self.arch], multiprocessors=multiprocessors, threads=2, schedule=schedule, checks="all")
        if self.fault:
            assert library.choose_fault(self.fault) == 0
        gpu.taken("message"), gpu.taken("findings")
        known = {name: value for name, value in values.items() if isinstance(value, torch.Tensor) and value.numel()}
        with gpu.memory({name: (value.data_ptr(), value.numel() * value.element_size())
                         for name, value in known.items()}):
            status = int(function(*plan, *(x.data_ptr() if isinstance(x, torch.Tensor) else x for x in arguments)))
        findings = json.loads(gpu.taken("findings"))
        first = findings[0] if findings else {}
        assert not first, f"{first['check']}: {first['message']} ({first['file']}:{first['line']})"
        return status

    def run(
        self, case: Mapping[str, Any], data: Any, plan: tuple[int, ...] = (), *, schedule: str = "late",
        multiprocessors: int = 4, workspace_bytes: int = 0,
    ) -> list[torch.Tensor]:
        """The outputs of a call on ``data``. Asserts success, intact guard bands, and that no check finds anything."""
        outputs = {name: Poisoned(shape, getattr(torch, dtype))
                   for name, (shape, dtype) in self.binding.outputs(case).items()}
        # One workspace for calls of one size: what a kernel keeps for each must be as new after each call.
        space = self._spaces.setdefault(workspace_bytes, Poisoned((workspace_bytes,), torch.uint8))
        space.inside.fill_(UNWRITTEN)
        values = {**self.binding.arguments(case, data), **{name: output.tensor for name, output in outputs.items()},
                  "workspace": space.tensor if workspace_bytes else None, "workspace_bytes": workspace_bytes,
                  "queue": None}
        status = self.call(values, *plan, multiprocessors=multiprocessors, schedule=schedule)
        assert status == 0, f"status {status}: {device().taken('message')}"
        assert all(buffer.intact for buffer in (space, *outputs.values())), "written outside an output or the workspace"
        self.used_workspace = bool((space.inside != UNWRITTEN).any())
        return [output.tensor for output in outputs.values()]

    def verify(self, case: Mapping[str, Any], data: Any, **run: Any) -> None:
        """Run on ``data`` and compare with the problem's reference in every element."""
        outputs = self.run(case, data, **run)
        passed, message = self.reference.check_implementation(data, tuple(outputs) if len(outputs) > 1 else outputs[0])
        assert passed, f"wrong: {message}"

    def check(self, case: Mapping[str, Any], seed: int = 1, **run: Any) -> None:
        """``verify`` on generated data."""
        self.verify(case, self.reference.generate_input(**case, seed=seed, device="cpu"), **run)

    def same_in_every_schedule(self, case: Mapping[str, Any], seed: int = 5, **run: Any) -> None:
        """Copies at once, as late as they may be, and blocks and warps in any order give the same bits."""
        data = self.reference.generate_input(**case, seed=seed, device="cpu")
        first, *others = (self.run(case, data, schedule=schedule, **run) for schedule in ("late", "eager", "random:1"))
        assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))

    def counted(self, case: Mapping[str, Any], **run: Any) -> list[dict[str, Any]]:
        """``check``, and the counters of its launches."""
        gpu = device()
        gpu.set(counters=1)
        gpu.taken("counters")
        try:
            self.check(case, **run)
            return json.loads(gpu.taken("counters"))
        finally:
            gpu.set(counters=0)

    def conflicts(self, case: Mapping[str, Any], **run: Any) -> list[str]:
        """``check``, and the instructions by which rows of matrices met in a bank of shared memory."""
        found = [each for report in self.counted(case, **run) for each in report["shared"]["conflicts"]]
        assert len(found) < 10, "no more lines are told"
        return [each["instruction"] for each in found if "matrix" in each["instruction"]]
