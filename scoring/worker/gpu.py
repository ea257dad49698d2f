# SPDX-License-Identifier: MIT
"""What Python is told of a GPU that is emulated, or only compiled for: torch.cuda's facts, and Triton's driver.

Triton's own drivers run the kernels, on the emulator's library. Of MI300 its times are modelled ones, the same every
time; of NVIDIA's GPUs there are none.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from scoring.ipc import absent
from scoring.ipc.emulator import Emulator
from scoring.ipc.requests import Extensions

if TYPE_CHECKING:
    from scoring.worker.extensions import Builder

UNKNOWN = 1.0        # milliseconds, where no time can be modelled


def replacements(how: Extensions, builder: Builder) -> Mapping[Any, Mapping[str, Any]]:
    """New values by the module they belong to, for as long as the submission's code runs."""
    from torch.utils import cpp_extension

    facts = SimpleNamespace(**how.gpu)
    capability = facts.major, facts.minor
    versions = {"hip": how.version, "cuda": None} if how.language == "hip" else {"hip": None, "cuda": how.version}
    found: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "get_device_name": lambda device=None: facts.name,
            "get_device_capability": lambda device=None: capability,
            "get_device_properties": lambda device=None: facts,
            "get_arch_list": lambda: [f"sm_{facts.major}{facts.minor}"] if how.language == "cuda" else ["gfx942"],
            "mem_get_info": lambda device=None: (facts.total_memory, facts.total_memory),
        },
        torch.version: versions,
        cpp_extension: {"load_inline": builder.load_inline},
    }
    if how.link:         # what comes from elsewhere moves to the device, so the checks know its bytes
        found[torch] = {name: partial(_copied, getattr(torch, name)) for name in ("from_numpy", "frombuffer")}
    return found


def _copied(function: Callable[..., torch.Tensor], *arguments: Any, **options: Any) -> torch.Tensor:
    return function(*arguments, **options).clone()


def uses_triton(folders: Sequence[str], path: Path) -> bool:
    """Whether a submission, or a file beside it, imports Triton, and Triton is here."""
    files = [path, *(file for folder in folders for file in Path(folder).glob("*.py"))]
    named = any(re.search(r"^\s*(?:import|from)\s+triton\b", file.read_text(errors="replace"), re.MULTILINE)
                for file in files)
    return named and absent.installed("triton")


def activate_triton(emulator: Emulator, gpu: Mapping[str, Any]) -> None:
    """Have Triton compile for the emulated GPU and launch on it."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")      # as ever; unset, Triton warns that this will change
    testing = importlib.import_module("triton.testing")
    theirs = _hip_driver(emulator) if emulator.api == "hip" else _cuda_driver(emulator)

    class Driver(theirs):         # type: ignore[misc,valid-type]
        """Triton's driver, with one device and its default queue."""

        def __init__(self) -> None:
            super().__init__()
            self.get_device_capability = lambda *_device: (gpu["major"], gpu["minor"])
            self.get_current_stream = lambda *_device: 0
            self.get_current_device = lambda: 0
            self.set_current_device = lambda _device: None

        @staticmethod
        def is_active() -> bool:
            return True

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_benchmarker(self) -> Callable[..., Any]:
            return partial(_bench, emulator)

        def get_empty_cache_for_benchmark(self) -> torch.Tensor:
            return torch.empty(0, dtype=torch.int32)

    importlib.import_module("triton").runtime.driver.set_active(Driver())
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(testing, name, partial(_bench, emulator))


def _hip_driver(emulator: Emulator) -> Any:
    os.environ["TRITON_LIBHIP_PATH"] = emulator.path
    return importlib.import_module("triton.backends.amd.driver").HIPDriver


def _cuda_driver(emulator: Emulator) -> Any:
    """Triton's driver, which asks for ``libcuda.so.1`` by name; its compiler stops at PTX, which the emulator runs."""
    folder = tempfile.mkdtemp(prefix="libcuda-")
    Path(folder, "libcuda.so.1").symlink_to(emulator.path)
    os.environ["TRITON_LIBCUDA_PATH"] = folder
    driver: Any = importlib.import_module("triton.backends.nvidia.driver")
    driver.compile_module_from_file = partial(driver.compile_module_from_file, ccflags=[f"-Wl,-rpath,{folder}"])
    stop_at_ptx()
    return driver.CudaDriver


def stop_at_ptx() -> None:
    """Have Triton take PTX for machine code from now on, in this process."""
    backend = importlib.import_module("triton.backends.nvidia.compiler").CUDABackend
    backend.make_cubin = lambda _self, text, *_rest: text.encode()


def _bench(
    emulator: Emulator, function: Callable[[], Any], *_arguments: Any, quantiles: Sequence[float] | None = None,
    return_mode: str = "mean", **_options: Any,
) -> Any:
    """Milliseconds of one run, modelled from what it executes, in the form that Triton's ``do_bench`` gives."""
    seconds = emulator.modelled(function)
    time = UNKNOWN if seconds is None else seconds * 1e3
    if quantiles is not None:
        return [time] * len(quantiles) if len(quantiles) > 1 else time
    return [time] if return_mode == "all" else time
