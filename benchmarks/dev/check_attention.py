# SPDX-License-Identifier: MIT
"""Check and time the attention kernels on a machine with an NVIDIA GPU, torch and nvcc.

    python benchmarks/dev/check_attention.py [--seconds 80] [--only flash_attention] [--no-variants] [--no-time]
        [--build LABEL=VARIANT,KEY=VALUE,...] [--labels REGEX]

Builds each kernel for the GPU's own arch, as sm_89 PTX that the driver translates at load time (so that the code of the
L4 build runs, too) and, for flash_attention, with other tile shapes. Checks every build against the problem's own fp64
reference and bounds, with poisoned outputs and workspaces, guard bands and a second run that must give the same bits;
each case runs with no workspace, a small one and the problem's. Then times by CUDA-graph replays that rotate over more
than twice the L2 cache, in turns with torch's cuDNN and FlashAttention-2 backends, or with the absorbed products in
plain torch and, where `flash_mla` can be imported, FlashMLA. Exit status 1 if any check fails. With $OUT set, all that
is written to $OUT/check_attention.json, too.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "cuda"
GUARD = 4096                # bytes of poison on either side of every output and the workspace
POISON = 0xFF               # NaN in bf16, fp16 and fp32
START = time.monotonic()

# Builds: label -> (variant, arch: "native" or "sm_89 ptx", defines). Labels that begin with "tiles" are optional.
BUILDS: dict[str, dict[str, tuple[str, str, dict[str, int]]]] = {
    "flash_attention": {
        "wgmma": ("wgmma_tma", "native", {}),
        "ours": ("mma_sync", "native", {}),
        "ada": ("mma_sync", "sm_89 ptx", {}),
        "tilesA": ("mma_sync", "native", {"D64_WARPS": 8, "D128_KEYS": 48, "D256_KEYS": 32}),
    },
    "mla_decode": {
        "wgmma": ("wgmma_tma", "native", {}),
        "ours": ("mma_sync", "native", {}),
        "ada": ("mma_sync", "sm_89 ptx", {}),
        "tilesA": ("mma_sync", "native", {"ROWS16_STAGES": 5, "ROWS16_BLOCKS": 1, "ROWS32_STAGES": 4}),
    },
}


def flash(batch: int, sq: int, sk: int, hq: int, hk: int, dim: int, causal: int, half: int = 0) -> dict[str, Any]:
    return {"batch": batch, "sq": sq, "sk": sk, "hq": hq, "hk": hk, "dim": dim, "causal": causal, "half": half}


def mla(batch: int, hq: int, sk: int, lens: str = "uniform", sq: int = 1, causal: int = 0) -> dict[str, Any]:
    return {"batch": batch, "sq": sq, "hq": hq, "sk": sk, "lens": lens, "causal": causal}


CHECKS = {
    "flash_attention": [
        *(flash(*size, dim, causal, half) for dim in (64, 128, 256) for causal in (0, 1)
          for half, size in enumerate([(1, 512, 512, 8, 8), (2, 113, 203, 4, 2)])),
        *(flash(1, 1, 1, 1, 1, dim, 1) for dim in (64, 128, 256)),
        flash(3, 17, 1, 2, 1, 64, 1), flash(1, 300, 77, 3, 1, 128, 1), flash(1, 129, 64, 3, 3, 256, 1, 1),
        flash(1, 1, 8191, 16, 2, 64, 1), flash(4, 1, 4099, 32, 8, 128, 1), flash(1, 33, 1000, 8, 1, 256, 1),
        flash(2, 1024, 1024, 16, 16, 64, 1), flash(1, 2048, 2048, 8, 2, 128, 1), flash(1, 777, 1999, 4, 4, 256, 1, 1),
        flash(1, 1030, 515, 8, 4, 128, 1), flash(1, 4096, 4096, 8, 8, 128, 0), flash(1, 8192, 8192, 4, 4, 64, 0, 1),
        flash(1, 16384, 16384, 1, 1, 128, 1), flash(5, 64, 65, 7, 7, 64, 0), flash(1, 127, 129, 2, 2, 256, 0),
    ],
    "mla_decode": [
        mla(1, 16, 1), mla(1, 16, 64), mla(4, 16, 130, "mixed"), mla(5, 16, 333, "mixed", 2, 1),
        mla(6, 16, 200, "mixed", 2, 0), mla(3, 64, 65), mla(4, 64, 300, "mixed", 2, 1),
        mla(2, 128, 100, "ragged", 2, 1), mla(5, 128, 1000, "mixed"), mla(7, 64, 3001, "mixed", 2, 1),
        mla(32, 16, 4096, "mixed"),
        mla(128, 16, 500, "ragged"), mla(1, 16, 16384, "uniform", 2, 1), mla(128, 128, 512, "mixed", 2, 1),
        mla(1, 128, 32768), mla(16, 128, 2048, "ragged"), mla(128, 16, 2048),
    ],
}
TIMED = {
    "flash_attention": [
        flash(1, 512, 512, 8, 8, 64, 0, 1), flash(1, 512, 512, 8, 8, 64, 0), flash(1, 512, 512, 8, 8, 64, 1),
        *(flash(16384 // s, s, s, h, h, dim, causal)
          for dim, h in ((64, 32), (128, 16), (256, 8)) for s in (512, 2048, 8192, 16384) for causal in (0, 1)),
        flash(4, 1, 4096, 32, 8, 128, 1), flash(1, 64, 16384, 16, 2, 128, 1),
    ],
    "mla_decode": [
        mla(128, 16, 4096), mla(128, 16, 8192), mla(4, 16, 1024), mla(4, 16, 8192), mla(32, 16, 8192),
        mla(64, 16, 8192), mla(1, 16, 32768), mla(1, 128, 32768), mla(128, 64, 4096), mla(128, 128, 4096),
        mla(32, 128, 8192), mla(64, 128, 8192, "ragged"), mla(128, 16, 8192, "ragged"),
        mla(64, 16, 4096, "uniform", 2, 1),
    ],
}


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


def build(folder: Path, nvcc: str, problems: list[Problem], variants: bool, labels: str) -> list[Kernel]:
    major, minor = torch.cuda.get_device_capability()
    native = f"{major}{minor}{'a' if major == 9 else ''}"
    gencodes = {"native": f"arch=compute_{native},code=sm_{native}", "sm_89 ptx": "arch=compute_89,code=compute_89"}
    jobs = []
    for problem in problems:
        for label, (variant, arch, defines) in BUILDS[problem.name].items():
            if (label.startswith("tiles") and not variants) or not re.fullmatch(labels, label):
                continue
            library = folder / f"{problem.name}_{label}.so"
            command = [
                nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
                "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode", gencodes[arch],
                *(f"-D{key}={value}" for key, value in defines.items()),
                *(f"-I{ROOT / path}" for path in (f"problems/{problem.name}", "kernels/cuda", "kernels/common")),
                str(ROOT / f"kernels/cuda/{problem.name}/{variant}.cu"), "-o", str(library),
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            jobs.append((problem, label, library, process))
    kernels = []
    for problem, label, library, process in jobs:
        log, _ = process.communicate(timeout=150)
        if process.returncode != 0:
            sys.exit(f"nvcc failed on {problem.name} {label}:\n{log[-4000:]}")
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", log))
        if spills:
            say(f"note: {problem.name} [{label}] spills {spills} bytes")
        kernels.append(Kernel(problem, label, library))
    return kernels


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


def check_all(kernels: list[Kernel], deadline: float) -> list[dict[str, Any]]:
    rows = []
    for problem in dict.fromkeys(kernel.problem for kernel in kernels):
        for number, case in enumerate(CHECKS[problem.name]):
            if elapsed() > deadline:
                say(f"out of time: checks of {problem.name} end before {case}")
                break
            data = problem.data(case, seed=100 + number)
            sample = None if max(case["sk"] * case["sq"] * case["hq"], 1) * case["batch"] < 3e7 else 3000
            expected = problem.reference.expected(data, sample=sample)
            full = problem.binding.workspace_bytes(case)
            for kernel in (k for k in kernels if k.problem is problem):
                for space in (0, full) if kernel.label.startswith("tiles") else (0, full // 16 // 256 * 256, full):
                    wrong = check(kernel, case, data, expected, space)
                    rows.append({"problem": problem.name, "build": kernel.label, "case": case, "workspace": space,
                                 "wrong": wrong})
                    if wrong:
                        say(f"WRONG {problem.name} [{kernel.label}] {case} workspace {space}: {wrong[:700]}")
                        if wrong.startswith("status"):
                            return rows
    bad = sum(bool(row["wrong"]) for row in rows)
    say(f"checked {len(rows)} runs, {bad} wrong, {elapsed():.1f} s")
    return rows


def capture(calls: list[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """One graph of all calls. Not through torch.cuda.graph: its garbage collection takes longer than our timing."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for call in calls:
            call()
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return graph


REFUSED: dict[str, str] = {}


def race(contestants: dict[str, list[Callable[[], Any]]], budget_ms: float = 250) -> dict[str, float]:
    """Median microseconds per call; one graph replay per contestant and round, in turns."""
    graphs = {}
    for name, calls in contestants.items():
        try:
            graphs[name] = (capture(calls), len(calls))
        except (RuntimeError, ValueError, AttributeError, TypeError) as error:
            torch.cuda.synchronize()
            REFUSED.setdefault(name, str(error).splitlines()[0][:200])
    times: dict[str, list[float]] = {name: [] for name in graphs}
    begin_all = time.monotonic()
    for turn in range(25):
        for name, (graph, calls) in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / calls)
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


def flash_mla_calls(sets: list[Any]) -> list[Callable[[], Any]]:
    """FlashMLA on mla_decode's inputs, its schedule computed beforehand; none where the package is missing."""
    try:
        import flash_mla
    except ImportError:
        return []
    calls: list[Callable[[], Any]] = []
    for q, cache, table, lengths, causal, scale in sets:
        schedule, _ = flash_mla.get_mla_metadata()
        calls.append(partial(
            flash_mla.flash_mla_with_kvcache, q, cache, table, lengths, 512, schedule, softmax_scale=scale,
            causal=causal))
        calls[-1]()     # computes the schedule
    return calls


def in_order(data: Any) -> Any:
    """The same mla_decode input with pages one behind the other: what random places cost is the difference."""
    q, cache, table, *rest = data
    return (q, cache, torch.arange(table.numel(), dtype=table.dtype, device=DEVICE).view(table.shape), *rest)


def time_all(kernels: list[Kernel], deadline: float) -> list[dict[str, Any]]:
    rows = []
    for problem in dict.fromkeys(kernel.problem for kernel in kernels):
        say(f"\n{problem.name}: us (" + ("TFLOP/s" if problem.name == "flash_attention" else "GB/s") + ")")
        for case in TIMED[problem.name]:
            if elapsed() > deadline:
                say("out of time")
                return rows
            binding = problem.binding
            moved, flops = binding.bytes_moved(case), binding.flops(case)
            cache = torch.cuda.get_device_properties(0).L2_cache_size
            count = max(2, min(16, math.ceil(2.2 * cache / moved)))
            sets = [problem.data(case, seed=i) for i in range(count)]
            keep: list[Any] = []
            contestants: dict[str, list[Callable[[], Any]]] = {}
            full = binding.workspace_bytes(case)
            for kernel in (k for k in kernels if k.problem is problem):
                variants = {"": (full, sets)}
                if kernel.label in ("ours", "wgmma"):
                    variants[" nosplit"] = (0, sets)
                    if kernel.label == "ours" and problem.name == "mla_decode" and case["lens"] == "uniform":
                        variants[" inorder"] = (full, [in_order(data) for data in sets])
                for suffix, (size, inputs) in variants.items():
                    calls = []
                    for data in inputs:
                        outputs = {
                            name: torch.empty(shape, dtype=dtype_of(dtype), device=DEVICE)
                            for name, (shape, dtype) in binding.outputs(case).items()}
                        space = torch.empty(size // 4, device=DEVICE) if size else None
                        keep.append((data, outputs, space))
                        calls.append(kernel.bind(binding.arguments(case, data), outputs, space))
                    contestants[kernel.label + suffix] = calls
            contestants.update(torch_calls(problem, sets))
            if problem.name == "mla_decode" and (calls := flash_mla_calls(sets)):
                contestants["flash_mla"] = calls
            result = race(contestants)
            rate = flops * 1e-6 if problem.name == "flash_attention" else moved * 1e-3
            short = " ".join(str(value) for value in case.values())
            say(f"{short}: " + "  ".join(f"{name} {us:.1f} ({rate / us:.0f})" for name, us in result.items()))
            rows.append({"problem": problem.name, "case": case, "flops": flops, "bytes": moved, "us": result})
            del sets, contestants, keep
    return rows


def clocks() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.draw", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=80, help="start nothing new after this long")
    parser.add_argument("--only", choices=sorted(BUILDS), help="one problem")
    parser.add_argument("--no-time", action="store_true", help="checks only")
    parser.add_argument("--no-variants", action="store_true", help="the shipped tile shapes only")
    parser.add_argument(
        "--build", action="append", default=[], metavar="LABEL=VARIANT,KEY=VALUE",
        help="one more, of the problem of --only")
    parser.add_argument("--labels", default=".*", help="a pattern: only builds whose labels match")
    parser.add_argument("--nvcc", default=os.environ.get("NVCC", "nvcc"))
    options = parser.parse_args()
    say(f"{clocks()} | torch {torch.__version__}")
    report: dict[str, Any] = {"machine": clocks()}
    for text in options.build:
        label, _, rest = text.partition("=")
        variant, *defines = rest.split(",")
        BUILDS[options.only][label] = (
            variant, "native", {key: int(value) for key, value in (define.split("=") for define in defines)})
    problems = [Problem(name) for name in BUILDS if options.only in (None, name)]
    with tempfile.TemporaryDirectory() as folder:
        kernels = build(Path(folder), options.nvcc, problems, not options.no_variants, options.labels)
        say(f"built after {elapsed():.1f} s")
        report["checks"] = check_all(kernels, options.seconds * 0.5)
        wrong = {(row["problem"], row["build"]) for row in report["checks"] if row["wrong"]}
        crashed = any(row["wrong"].startswith("status") for row in report["checks"])
        if not options.no_time and not crashed:
            right = [kernel for kernel in kernels if (kernel.problem.name, kernel.label) not in wrong]
            report["times"] = time_all(right, options.seconds)
        for name, reason in REFUSED.items():
            say(f"at least once refused: {name}: {reason}")
        report["clocks_after"] = clocks()
        say(f"{report['clocks_after']} | {elapsed():.1f} s")
    if out := os.environ.get("OUT"):
        Path(out, "check_attention.json").write_text(json.dumps(report))
    return 1 if wrong or not report["checks"] else 0


if __name__ == "__main__":
    sys.exit(main())
