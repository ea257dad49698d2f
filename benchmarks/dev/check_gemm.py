# SPDX-License-Identifier: MIT
"""Check and time the mma_sync FP8 products on a machine with an NVIDIA GPU, torch and nvcc; nothing else is needed.

    python benchmarks/dev/check_gemm.py [--seconds 55] [--no-sweep] [--no-time]

Builds each product twice, for the GPU's own arch and as sm_89 PTX that the driver translates at load time (so that
the code of the L4 build runs, too), checks both against fp64 with poisoned outputs and guard bands, then times the
native one by CUDA-graph replays that rotate over more than twice the L2 cache, taking turns with torch's block-scaled
and row-wise products. The sweep times every tile shape and split against what the heuristic chose. Exit status 1 if
any check fails. With $OUT set, everything is written to $OUT/check_gemm.json, too. Times are in microseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = ("fp8_gemm", "amd_fp8_mm")
GUARD = 256                 # elements of poison on either side of c
POISON = 0x7FA5             # a bf16 NaN no kernel would write
WORKSPACE = 64 << 20        # bytes offered to the kernels
START = time.monotonic()

# (m, n, k): every tail, one K block, long K, every m class of the heuristic.
CHECKS = {
    "fp8_gemm": [
        (1, 1, 128), (1, 576, 7168), (7, 577, 256), (7, 2112, 7168), (64, 576, 128), (64, 7168, 2048), (96, 2112, 1536),
        (128, 7168, 1536), (127, 129, 16384), (1024, 576, 7168), (1024, 7168, 256), (1024, 1536, 7168),
        (4096, 2112, 7168), (6144, 576, 1536), (6144, 4096, 512), (64, 7168, 16384),
    ],
    "amd_fp8_mm": [
        (32, 64, 128), (64, 576, 7168), (96, 2112, 1536), (1024, 576, 7168), (1024, 7168, 256), (1024, 1536, 7168),
        (6144, 576, 1536), (6144, 4096, 512),
    ],
}
FORCED = {   # every plan runs on these
    "fp8_gemm": [(5, 83, 640), (200, 330, 1280)],
    "amd_fp8_mm": [(32, 64, 640), (224, 320, 1280)],
}
AMD_SHAPES = [
    (m, n, k)
    for m in (1024, 6144)
    for n, k in (
        (1536, 7168), (3072, 1536), (576, 7168), (7168, 256), (7168, 2048), (4608, 7168), (7168, 2304), (512, 7168),
        (4096, 512),
    )
]
TIMED = {
    "fp8_gemm": [
        *AMD_SHAPES,
        (4096, 7168, 16384), (4096, 4096, 7168), (4096, 24576, 1536), (4096, 2112, 7168), (4096, 7168, 2048),
        *((m, n, k) for m in (1, 16, 64, 128)
          for n, k in ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (576, 7168))),
    ],
    "amd_fp8_mm": AMD_SHAPES,
}
SWEPT = {
    "fp8_gemm": [
        (1, 576, 7168), (1, 2112, 7168), (16, 4096, 7168), (16, 7168, 16384), (16, 24576, 1536), (64, 2112, 7168),
        (64, 7168, 16384), (64, 7168, 2048), (128, 576, 7168), (128, 7168, 2048), (1024, 576, 7168), (1024, 1536, 7168),
        (1024, 4096, 512), (1024, 7168, 2048),
    ],
    "amd_fp8_mm": [(1024, 512, 7168), (1024, 1536, 7168), (1024, 7168, 256), (6144, 576, 7168)],
}
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)


class Kernel:
    """One built library: the problem's symbol and the entry points of gemm_plan.cu."""

    def __init__(self, problem: str, label: str, library: Path):
        self.problem, self.label = problem, label
        self.library = ctypes.CDLL(str(library))
        operands = [ctypes.c_void_p] * 5
        tail = [ctypes.c_int] * 3 + [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.symbol = getattr(self.library, problem)
        self.symbol.argtypes = operands + tail
        self.library.plan_run.argtypes = [ctypes.c_int] * 2 + operands + tail
        self.library.plan_chosen.argtypes = [ctypes.c_int] * 3 + [ctypes.c_size_t, ctypes.c_int]
        self.shapes = self.library.plan_count()

    def chosen(self, m: int, n: int, k: int) -> tuple[int, int]:
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        return divmod(self.library.plan_chosen(m, n, k, WORKSPACE, processors), 256)

    def call(self, data: Data, plan: tuple[int, int] | None = None) -> int:
        queue = torch.cuda.current_stream().cuda_stream
        arguments = (*data.pointers(self.problem), *data.sizes, workspace().data_ptr(), WORKSPACE, queue)
        return self.symbol(*arguments) if plan is None else self.library.plan_run(*plan, *arguments)


_workspace: list[torch.Tensor] = []


def workspace() -> torch.Tensor:
    if not _workspace:
        _workspace.append(torch.full((WORKSPACE // 4,), math.nan, device="cuda"))
    return _workspace[0]


class Data:
    """Operands in both layouts, signed heavy-tailed scales with zeros and tiny ones, and a poisoned output."""

    def __init__(self, m: int, n: int, k: int, seed: int, problem: str, plain_scales: bool = False):
        generator = torch.Generator("cuda").manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device="cuda", generator=generator)

        self.sizes = (m, n, k)
        self.a, self.b = normal(m, k).to(torch.float8_e4m3fn), normal(n, k).to(torch.float8_e4m3fn)
        self.a_scale, self.b_scale = normal(m, k // 128), normal(-(-n // 128), k // 128)
        if plain_scales:
            self.a_scale, self.b_scale = self.a_scale.abs() + 0.1, self.b_scale.abs() + 0.1
        else:
            for scale in (self.a_scale, self.b_scale):
                scale.mul_(torch.exp2(3 * normal(*scale.shape)))
                scale[normal(*scale.shape) > 1.5] = 0.0
                scale[normal(*scale.shape) > 1.5] *= 1e-12
        amd = problem == "amd_fp8_mm"
        self.held = [   # in the kernel's layouts; kept alive here
            (self.a.t() if amd else self.a).contiguous(),
            (self.b.t() if amd else self.b).contiguous(),
            self.a_scale.t().contiguous(),
            (self.b_scale.t() if amd else self.b_scale).contiguous(),
        ]
        self.store = torch.full((m * n + 2 * GUARD,), POISON, device="cuda", dtype=torch.int16)

    def pointers(self, problem: str) -> tuple[int, ...]:
        return (*(tensor.data_ptr() for tensor in self.held), self.store.data_ptr() + 2 * GUARD)

    def c(self) -> torch.Tensor:
        m, n, _ = self.sizes
        return self.store[GUARD:-GUARD].view(torch.bfloat16).view(m, n)

    def poison(self) -> None:
        self.store.fill_(POISON)

    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[m, n] float64 each: the product and the allowed difference."""
        m, n, k = self.sizes
        a = (self.a.double().view(m, -1, 128) * self.a_scale.double()[:, :, None]).view(m, k)
        rows = self.b_scale.double().repeat_interleave(128, 0)[:n]
        b = (self.b.double().view(n, -1, 128) * rows[:, :, None]).view(n, k)
        value = a @ b.t()
        return value, value.abs() * 2.0**-8 + 2.0**-13 * (a.abs_() @ b.abs_().t())


def build(folder: Path, nvcc: str) -> list[Kernel]:
    major, minor = torch.cuda.get_device_capability()
    native = f"{major}{minor}{'a' if major == 9 else ''}"
    jobs = []
    for problem in PROBLEMS:
        for label, gencode in (
            (f"sm_{native}", f"arch=compute_{native},code=sm_{native}"),
            ("sm_89 ptx", "arch=compute_89,code=compute_89"),
        ):
            library = folder / f"{problem}_{label.replace(' ', '_')}.so"
            command = [
                nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
                "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode", gencode,
                f'-DWARPWAVE_KERNEL_FILE="{problem}/mma_sync.cu"',
                *(f"-I{ROOT / path}" for path in (f"problems/{problem}", "kernels/cuda", "kernels/common")),
                str(ROOT / "benchmarks/dev/gemm_plan.cu"), "-o", str(library),
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            jobs.append((problem, label, library, process))
    kernels = []
    for problem, label, library, process in jobs:
        log, _ = process.communicate(timeout=120)
        if process.returncode != 0:
            sys.exit(f"nvcc failed on {problem} for {label}:\n{log[-4000:]}")
        if any("spill" in line and " 0 bytes spill stores" not in line for line in log.splitlines()):
            say(f"WARNING {problem} {label}: spills")
        kernels.append(Kernel(problem, label, library))
    return kernels


def say(text: str) -> None:
    print(text, flush=True)


def elapsed() -> float:
    return time.monotonic() - START


def check(kernel: Kernel, data: Data, expected: tuple[torch.Tensor, torch.Tensor], plan: tuple[int, int] | None) -> str:
    """Empty if right, else what is wrong first."""
    workspace().fill_(math.nan)
    results = []
    for _ in range(2):
        data.poison()
        status = kernel.call(data, plan)
        torch.cuda.synchronize()
        if status != 0:
            return f"status {status}"
        results.append(data.store.clone())
    if not torch.equal(*results):
        return "two runs differ"
    store = results[0]
    if not (bool((store[:GUARD] == POISON).all()) and bool((store[-GUARD:] == POISON).all())):
        return "guard band written"
    value, bound = expected
    got = data.c().double()
    wrong = ~((got - value).abs() <= bound)
    count = int(wrong.sum())
    if count == 0:
        return ""
    row, column = divmod(int(wrong.flatten().int().argmax()), value.shape[1])
    return (
        f"{count} of {wrong.numel()} wrong, first c[{row}, {column}] = {got[row, column].item():.6g}, "
        f"expected {value[row, column].item():.6g} +- {bound[row, column].item():.3g}"
    )


def check_all(kernels: list[Kernel]) -> list[dict]:
    rows = []
    for problem in PROBLEMS:
        todo = [(size, None) for size in CHECKS[problem]] + [
            (size, (shape, splits))
            for size in FORCED[problem]
            for shape in range(next(k.shapes for k in kernels if k.problem == problem))
            for splits in (1, 2, 5)
        ]
        cached: tuple = ()
        for number, (size, plan) in enumerate(todo):
            if not cached or cached[0] != size:
                # Heavy tails hide a wrong small block; the forced plans get scales of one size, where nothing hides.
                data = Data(*size, seed=number, problem=problem, plain_scales=plan is not None)
                cached = (size, data, data.expected())
            for kernel in (k for k in kernels if k.problem == problem):
                if kernel.label.endswith("ptx") and size[0] * size[1] * size[2] > 2e10:
                    continue   # the translated build is about correctness; the small ones cover its code
                wrong = check(kernel, cached[1], cached[2], plan)
                used = plan or kernel.chosen(*size)
                rows.append({"problem": problem, "build": kernel.label, "size": size, "plan": used, "wrong": wrong})
                if wrong:
                    say(f"WRONG {problem} [{kernel.label}] {size} plan {used}: {wrong}")
    bad = sum(bool(row["wrong"]) for row in rows)
    say(f"checked {len(rows)} runs, {bad} wrong, {elapsed():.1f} s")
    return rows


def capture(calls: list) -> torch.cuda.CUDAGraph:
    """One graph of all calls. Not through torch.cuda.graph: its garbage collection takes longer than our timing."""
    calls[0]()
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


def race(contestants: dict[str, list], rounds: int) -> dict[str, float]:
    """Median microseconds per call; one graph replay per contestant and round, in turns."""
    graphs = {}
    for name, calls in contestants.items():
        try:
            graphs[name] = (capture(calls), len(calls))
        except (RuntimeError, ValueError, AttributeError) as error:
            torch.cuda.synchronize()
            UNAVAILABLE.setdefault(name, str(error).splitlines()[0][:160])
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, (graph, calls) in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / calls)
    return {name: statistics.median(values) for name, values in times.items()}


UNAVAILABLE: dict[str, str] = {}


def torch_calls(sets: list[Data]) -> dict[str, list]:
    """torch's block-scaled and row-wise products on the same operands (n padded to whole scale groups)."""
    import torch.nn.functional as F

    block, row = [], []
    for data in sets:
        m, n, k = data.sizes
        padded = -(-n // 128) * 128
        b = data.b if padded == n else torch.cat([data.b, data.b[: padded - n]])
        a_scale = data.a_scale.t().contiguous().t()
        b_scale = F.pad(data.b_scale, (0, -(k // 128) % 4), value=1.0).contiguous().t()
        ones_m, ones_n = torch.ones(m, 1, device="cuda"), torch.ones(1, padded, device="cuda")

        def blockwise(a=data.a, b=b, sa=a_scale, sb=b_scale):
            one, square = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
            return F.scaled_mm(a, b.t(), sa, one, sb, square, output_dtype=torch.bfloat16)

        def rowwise(a=data.a, b=b, sa=ones_m, sb=ones_n):
            return torch._scaled_mm(a, b.t(), scale_a=sa, scale_b=sb, out_dtype=torch.bfloat16)

        block.append(blockwise)
        row.append(rowwise)
    return {"block": block, "row": row}


def rotating(size: tuple[int, int, int], problem: str) -> list[Data]:
    m, n, k = size
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    count = max(2, min(24, math.ceil(2.2 * cache / (m * k + n * k + 2 * m * n))))
    return [Data(*size, seed=i, problem=problem, plain_scales=True) for i in range(count)]


def time_all(kernels: list[Kernel], deadline: float) -> list[dict]:
    rows = []
    for kernel in (k for k in kernels if not k.label.endswith("ptx")):
        say(f"\n{kernel.problem}: us (TFLOP/s), plan = tile shape index x splits of K")
        for size in TIMED[kernel.problem]:
            if elapsed() > deadline:
                say("out of time")
                return rows
            m, n, k = size
            sets = rotating(size, kernel.problem)
            contestants = {"ours": [partial(kernel.call, data) for data in sets]}
            contestants.update(torch_calls(sets))
            result = race(contestants, rounds=11 if m * n * k > 1e11 else 15)
            plan = kernel.chosen(*size)
            cells = "  ".join(f"{name} {us:7.1f} ({2e-6 * m * n * k / us:5.0f})" for name, us in result.items())
            say(f"{m}x{n}x{k} plan {plan[0]}x{plan[1]}: {cells}")
            rows.append({"problem": kernel.problem, "size": size, "plan": plan, "us": result})
            del sets, contestants
    return rows


def sweep(kernels: list[Kernel], deadline: float) -> list[dict]:
    rows = []
    for kernel in (k for k in kernels if not k.label.endswith("ptx")):
        say(f"\n{kernel.problem}: chosen plan against the best three of the sweep, us")
        for size in SWEPT[kernel.problem]:
            if elapsed() > deadline:
                say("out of time")
                return rows
            m, n, k = size
            sets = rotating(size, kernel.problem)
            plane = 4 * m * (-(-n // 8) * 8)
            plans = {
                f"{shape}x{splits}": (shape, splits)
                for shape in range(kernel.shapes)
                for splits in SPLITS
                if splits <= k // 128 and (splits == 1 or splits * plane <= WORKSPACE)
            }
            calls = {
                name: [partial(kernel.call, data, plan) for data in sets] for name, plan in plans.items()
            }
            result = race(calls, rounds=5)
            chosen = "{}x{}".format(*kernel.chosen(*size))
            if chosen not in result:
                result.update(race({chosen: [partial(kernel.call, data) for data in sets]}, rounds=5))
            best = sorted(result.items(), key=lambda item: item[1])[:3]
            say(
                f"{m}x{n}x{k}: chosen {chosen} {result[chosen]:.1f}; best "
                + ", ".join(f"{name} {us:.1f}" for name, us in best)
            )
            rows.append({"problem": kernel.problem, "size": size, "chosen": chosen, "us": result})
    return rows


def clocks() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.draw", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=55, help="start nothing new after this long")
    parser.add_argument("--no-time", action="store_true", help="checks only")
    parser.add_argument("--no-sweep", action="store_true", help="leave out the sweep over plans")
    parser.add_argument("--nvcc", default=os.environ.get("NVCC", "nvcc"))
    options = parser.parse_args()
    say(f"{clocks()} | torch {torch.__version__}")
    report: dict = {"machine": clocks()}
    with tempfile.TemporaryDirectory() as folder:
        kernels = build(Path(folder), options.nvcc)
        say(f"built after {elapsed():.1f} s")
        report["checks"] = check_all(kernels)
        wrong = any(row["wrong"] for row in report["checks"])
        if not wrong and not options.no_time:
            report["times"] = time_all(kernels, options.seconds * (1 if options.no_sweep else 0.7))
            if not options.no_sweep:
                report["sweep"] = sweep(kernels, options.seconds)
        for name, reason in UNAVAILABLE.items():
            say(f"at least once refused: {name}: {reason}")
        report["clocks_after"] = clocks()
        say(f"{report['clocks_after']} | {elapsed():.1f} s")
    if out := os.environ.get("OUT"):
        Path(out, "check_gemm.json").write_text(json.dumps(report))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
