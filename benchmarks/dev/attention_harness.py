# SPDX-License-Identifier: MIT
"""Kernels of a problem built, bound to poisoned memory, checked against the problem's reference, and raced in graphs.

For the scripts beside it, on a machine with an NVIDIA GPU, torch and nvcc; nothing is run by itself.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from graphs import capture

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "cuda"
GUARD = 4096                # bytes of poison on either side of every output and the workspace
POISON = 0xFF               # NaN in bf16, fp16 and fp32
START = time.monotonic()

def say(text: str) -> None:
    print(text, flush=True)


def elapsed() -> float:
    return time.monotonic() - START


def module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Problem:
    """Interface, reference and kernel.h of one problem."""

    def __init__(self, name: str):
        folder = ROOT / "problems" / name
        sys.path[:0] = [str(folder), str(folder.parent)]      # the reference imports flat, as on a runner
        sys.modules.pop("task", None)
        try:
            self.name = name
            self.binding = module(folder / "binding.py", f"{name}_binding")
            self.reference = module(folder / "reference.py", f"{name}_reference")
        finally:
            del sys.path[:2]
        header = re.sub(r"/\*.*?\*/", "", (folder / "kernel.h").read_text(), flags=re.DOTALL)
        prototype = re.search(rf"int {name}\((.*?)\);", header, flags=re.DOTALL)
        assert prototype is not None
        self.parameters = [text.split() for text in prototype.group(1).split(",")]   # [... type words, name]

    def data(self, case: dict[str, Any], seed: int) -> Any:
        return self.reference.generate_input(**case, seed=seed, device=DEVICE)


class Kernel:
    """One build of a problem's kernel."""

    def __init__(self, problem: Problem, label: str, library: Path):
        self.problem, self.label = problem, label
        self.symbol = getattr(ctypes.CDLL(str(library)), problem.name)
        types = {"int": ctypes.c_int, "float": ctypes.c_float, "size_t": ctypes.c_size_t}
        self.symbol.argtypes = [
            ctypes.c_void_p if "*" in "".join(words) else types[words[0]] for words in problem.parameters]
        self.names = [words[-1].lstrip("*") for words in problem.parameters]

    def bind(
        self, arguments: dict[str, Any], outputs: dict[str, torch.Tensor], space: torch.Tensor | None,
    ) -> Callable[[], int]:
        """A call with everything but the launch queue fixed. The caller keeps the tensors alive."""
        values = {**arguments, **outputs}
        values["workspace"] = space
        values["workspace_bytes"] = 0 if space is None else space.numel() * space.element_size()
        values["queue"] = None
        fixed = [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in (values[name] for name in self.names)]
        queue = self.names.index("queue")

        def call() -> int:
            fixed[queue] = torch.cuda.current_stream().cuda_stream if DEVICE == "cuda" else None
            return int(self.symbol(*fixed))

        return call


class Poisoned:
    """A buffer between guard bands."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype):
        size = math.prod(shape) * dtype.itemsize
        self.bytes = torch.empty(-(-size // 16) * 16 + 2 * GUARD, dtype=torch.uint8, device=DEVICE)
        self.tensor = self.bytes[GUARD : GUARD + size].view(dtype).view(shape)
        self.size = size
        self.poison()

    def poison(self) -> None:
        self.bytes.fill_(POISON)

    @property
    def intact(self) -> bool:
        return bool((self.bytes[:GUARD] == POISON).all() and (self.bytes[GUARD + self.size :] == POISON).all())


def dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def check(kernel: Kernel, case: dict[str, Any], data: Any, expected: Any, workspace_bytes: int) -> str:
    """Empty if right, else what is wrong first."""
    binding = kernel.problem.binding
    outputs = {name: Poisoned(shape, dtype_of(dtype)) for name, (shape, dtype) in binding.outputs(case).items()}
    space = Poisoned((workspace_bytes // 4,), torch.float32) if workspace_bytes else None
    call = kernel.bind(
        binding.arguments(case, data), {name: buffer.tensor for name, buffer in outputs.items()},
        space.tensor if space else None)
    runs = []
    for _ in range(2):
        for buffer in [*outputs.values(), *([space] if space else [])]:
            buffer.poison()
        try:
            status = call()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
        except RuntimeError as error:
            return f"status: crashed, {str(error).splitlines()[0]}"
        if status != 0:
            return f"status {status}"
        if not all(buffer.intact for buffer in [*outputs.values(), *([space] if space else [])]):
            return "wrote outside its arrays"
        runs.append([buffer.tensor.clone() for buffer in outputs.values()])
    passed, message = kernel.problem.reference.check_outputs(expected, tuple(runs[0]))
    if not passed:
        return str(message)
    same = all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(*runs, strict=True))
    return "" if same else "two runs differ"


REFUSED: dict[str, str] = {}


def race(
    contestants: dict[str, list[Callable[[], Any]]], budget_ms: float = 250, least_calls: int = 1,
) -> dict[str, float]:
    """Median microseconds per call; one graph replay per contestant and round, in turns.

    Each round has another order: at the power limit the clock swings in step with rounds of one order, by up to 4 %.
    A graph repeats its calls until it has ``least_calls``: its own start and end count in what is measured.
    """
    contestants = {name: calls * -(-least_calls // len(calls)) for name, calls in contestants.items() if calls}
    graphs = {}
    for name, calls in contestants.items():
        try:
            graphs[name] = (capture(calls), len(calls))
        except (RuntimeError, ValueError, AttributeError, TypeError) as error:
            REFUSED.setdefault(name, str(error).splitlines()[0][:200])
            say(f"{name}: {REFUSED[name]}")      # now, since what follows may fail for good
            torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in graphs}
    begin_all = time.monotonic()
    order = list(graphs)
    for turn in range(25):
        random.Random(turn).shuffle(order)
        for name in order:
            graph, count = graphs[name]
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / count)
        if turn >= 4 and (time.monotonic() - begin_all) * 1e3 > budget_ms:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def torch_calls(problem: Problem, sets: list[Any]) -> dict[str, list[Callable[[], Any]]]:
    """The peers of benchmarks/peers on the same inputs."""
    calls = {}
    for path in sorted((ROOT / "benchmarks/peers" / problem.name).glob("*.py")):
        peer = module(path, f"peer_{problem.name}_{path.stem}")
        calls[path.stem] = [partial(peer.custom_kernel, data) for data in sets]
    return calls


def clocks() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.draw", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"
