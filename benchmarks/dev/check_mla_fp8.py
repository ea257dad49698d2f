# SPDX-License-Identifier: MIT
"""Build, check and time mla_decode_fp8 against our bf16 mla_decode on a machine with an NVIDIA GPU, torch and nvcc.

    python benchmarks/dev/check_mla_fp8.py build FOLDER bf16 ours early0=wgmma_bulk,EARLY_START=0 ada bf16ada=mma_sync
    timeout 60 python benchmarks/dev/check_mla_fp8.py check FOLDER ours
    python benchmarks/dev/check_mla_fp8.py time FOLDER bf16 ours early0 [--seconds 40]
    python benchmarks/dev/check_mla_fp8.py accuracy FOLDER ours
    ncu --kernel-name regex:coded_pages python benchmarks/dev/check_mla_fp8.py once FOLDER ours --cases 0

LABEL is "bf16" (mla_decode/wgmma_tma), "ours" (wgmma_bulk), "ada" (mma_sync) or a name with a variant and defines; one
that starts with bf16 is of mla_decode, one with "ada" in it the sm_89 code, translated by the driver. Checks are those
of check_attention.py, calls that start before the kernel that writes their lengths or page numbers does so, and
repeated calls. Times: CUDA-graph replays over more than twice L2, contestants in turns in one process.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_attention as base
import gpu
from check_attention import ROOT, Kernel, Problem, mla

CHECKS = [
    mla(1, 16, 1), mla(1, 16, 64), mla(4, 16, 130, "mixed"), mla(5, 16, 333, "mixed", 2, 1), mla(6, 16, 90, "mixed", 2),
    mla(3, 64, 65), mla(4, 64, 300, "mixed", 2, 1), mla(2, 128, 100, "ragged", 2, 1), mla(5, 128, 1000, "mixed"),
    mla(7, 64, 3001, "mixed", 2, 1), mla(32, 16, 4096, "mixed"), mla(128, 16, 500, "ragged"), mla(128, 16, 2048),
    mla(1, 16, 16384, "uniform", 2, 1), mla(128, 128, 512, "mixed", 2, 1), mla(16, 128, 2048, "ragged"),
    mla(64, 16, 700), mla(4, 16, 1024), mla(32, 16, 1000), mla(33, 16, 64), mla(64, 16, 1024, "ragged"),
]
TIMED = [
    mla(128, 16, 4096), mla(128, 16, 8192), mla(64, 16, 8192), mla(32, 16, 8192), mla(4, 16, 8192), mla(4, 16, 1024),
    mla(1, 16, 32768), mla(128, 16, 8192, "ragged"), mla(128, 64, 4096), mla(128, 128, 4096), mla(32, 128, 8192),
    mla(64, 128, 8192, "ragged"), mla(1, 128, 32768), mla(64, 16, 4096, "uniform", 2, 1),
    mla(64, 16, 8192, "ragged"), mla(32, 16, 8192, "ragged"),
]


def problem_of(label: str) -> str:
    return "mla_decode" if label.startswith("bf16") else "mla_decode_fp8"


def build(folder: Path, labels: list[str], nvcc: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for text in labels:
        label, _, rest = text.partition("=")
        default = {"bf16": "wgmma_tma", "ours": "wgmma_bulk"}.get(label, "mma_sync")
        variant, *defines = rest.split(",") if rest else [default]
        target = "arch=compute_89,code=compute_89" if "ada" in label else "arch=compute_90a,code=sm_90a"
        command = [
            nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
            "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode", target,
            *(f"-D{define}" for define in defines),
            *(f"-I{ROOT / path}" for path in (f"problems/{problem_of(label)}", "kernels/cuda", "kernels/common")),
            str(ROOT / f"kernels/cuda/{problem_of(label)}/{variant}.cu"), "-o", str(folder / f"{label}.so"),
        ]
        jobs.append((label, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    late = [nvcc, "-std=c++17", "-O3", "-Xcompiler", "-fPIC", "-shared", "-cudart", "static", "-gencode",
            "arch=compute_90a,code=sm_90a", str(ROOT / "benchmarks/dev/late_lengths.cu"), "-o", str(folder / "late.so")]
    jobs.append(("late", subprocess.Popen(late, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    failed = 0
    for label, process in jobs:
        log, _ = process.communicate(timeout=200)
        failed += process.returncode != 0
        spilled = [line.strip() for line in log.splitlines() if "spill" in line and " 0 bytes spill stores" not in line]
        base.say(f"built {label}: {process.returncode} {log[-1500:] if process.returncode else ''} {spilled or ''}")
    return failed


def load(folder: Path, problems: dict[str, Problem], label: str) -> Kernel:
    return Kernel(problems[problem_of(label)], label, folder / f"{label}.so")


def check(folder: Path, label: str, problems: dict[str, Problem]) -> int:
    kernel, problem = load(folder, problems, label), problems[problem_of(label)]
    wrong = 0
    for number, case in enumerate(CHECKS):
        data = problem.data(case, seed=100 + number)
        expected = problem.reference.expected(
            data, sample=None if case["sk"] * case["sq"] * case["hq"] * case["batch"] < 3e7 else 3000)
        full = problem.binding.workspace_bytes(case)
        for space in (0, full // 16 // 256 * 256, full):
            message = base.check(kernel, case, data, expected, space)
            wrong += bool(message)
            if message:
                base.say(f"WRONG [{label}] {case} workspace {space}: {message[:900]}")
                if message.startswith("status"):
                    return 1
    base.say(f"{label}: {3 * len(CHECKS)} runs, {wrong} wrong")
    return int(wrong > 0)


def late(folder: Path, label: str, problems: dict[str, Problem]) -> int:
    """Calls whose lengths or page numbers are written while they run, by themselves and captured."""
    kernel, problem = load(folder, problems, label), problems[problem_of(label)]
    write, wrong, runs = ctypes.CDLL(str(folder / "late.so")).late_lengths, 0, 0
    cases = mla(32, 16, 2000), mla(64, 16, 1500, "ragged"), mla(128, 16, 300, "mixed"), mla(3, 16, 5000, "ragged")
    for case in cases:
        data = problem.data(case, seed=7)
        expected = problem.reference.expected(data, sample=1000)
        keep: list[Any] = []
        call = bound(kernel, case, [data], problem.binding.workspace_bytes(case), keep)[0]
        outputs = keep[0][1]
        for array, name in ((data[3], "lengths"), (data[2], "page numbers")):
            true = array.clone()

            def both(array: torch.Tensor = array, true: torch.Tensor = true, call: Callable[[], int] = call) -> int:
                queue = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                status = write(ctypes.c_void_p(array.data_ptr()), ctypes.c_void_p(true.data_ptr()), true.numel(),
                               ctypes.c_longlong(60000), queue)
                return int(status) or call()

            graph = base.capture([both])
            beyond = torch.full_like(true, case["sk"] if name == "lengths" else (1 << 31) - 1)
            for before in (torch.zeros_like(true), beyond, true.flip(0), true + (1 if name == "lengths" else -1)):
                for run in (both, graph.replay):
                    array.copy_(before)
                    for output in outputs.values():
                        output.fill_(math.nan)
                    torch.cuda.synchronize()
                    run()
                    torch.cuda.synchronize()
                    passed, message = problem.reference.check_outputs(expected, tuple(outputs.values()))
                    wrong, runs = wrong + (not passed), runs + 1
                    if not passed:
                        base.say(f"WRONG late {name} [{label}] {case}: {message[:300]}")
    base.say(f"{label}: lengths and page numbers written late, {runs} runs, {wrong} wrong")
    return int(wrong > 0)


def again(folder: Path, label: str, problems: dict[str, Problem]) -> int:
    """The same call gives the same bits, whichever blocks are first."""
    kernel, problem = load(folder, problems, label), problems[problem_of(label)]
    different = 0
    cases = mla(32, 16, 1000), mla(32, 16, 8192), mla(31, 16, 4096), mla(64, 16, 2000), mla(32, 16, 4096, "ragged")
    for case in cases:
        keep: list[Any] = []
        call = bound(kernel, case, [problem.data(case, seed=3)], problem.binding.workspace_bytes(case), keep)[0]
        outputs = list(keep[0][1].values())
        graph = base.capture([call] * 4)
        call()
        first = [output.clone() for output in outputs]
        for _ in range(10):
            for output in outputs:
                output.fill_(math.nan)
            graph.replay()
            different += not all(torch.equal(a, b) for a, b in zip(first, outputs, strict=True))
    base.say(f"{label}: 50 runs of 4 calls again, {different} with other bits")
    return int(different > 0)


def answer(kernel: Kernel, case: dict[str, Any], data: Any) -> torch.Tensor:
    """The kernel's o."""
    keep: list[Any] = []
    status = bound(kernel, case, [data], kernel.problem.binding.workspace_bytes(case), keep)[0]()
    torch.cuda.synchronize()
    assert status == 0
    o = keep[0][1]["o"]
    assert isinstance(o, torch.Tensor)
    return o.double()


def accuracy(folder: Path, labels: list[str], problems: dict[str, Problem]) -> None:
    """Errors of o over its rms: of both kernels from the exact answers of their caches, and of one from the other."""
    exact, coded = problems["mla_decode"], problems["mla_decode_fp8"]
    for case in (mla(8, 16, 1024), mla(8, 16, 8192), mla(4, 128, 4096)):
        wide = exact.data(case, seed=1)
        narrow = (wide[0], coded.reference.quantise(wide[1], torch.float8_e4m3fn), *wide[2:])
        truth = exact.reference.expected(wide)[0].values.double()
        of_codes = coded.reference.expected(narrow)[0].values.double()

        def rms(a: torch.Tensor, b: torch.Tensor, size: torch.Tensor = truth) -> str:
            return f"{float((a - b).square().mean().sqrt() / size.square().mean().sqrt()):.2e}"

        bf16 = answer(load(folder, problems, "bf16"), case, wide)
        for label in labels:
            fp8 = answer(load(folder, problems, label), case, narrow)
            base.say(f"{case}: bf16 from its exact answer {rms(bf16, truth)}, "
                     f"{label} from its own {rms(fp8, of_codes)}, "
                     f"{label} from bf16 {rms(fp8, bf16)}, exact answers {rms(of_codes, truth)}")


def bound(
    kernel: Kernel, case: dict[str, Any], inputs: list[Any], space_bytes: int, keep: list[Any],
) -> list[Callable[[], int]]:
    binding, calls = kernel.problem.binding, []
    for data in inputs:
        outputs = {name: torch.empty(shape, dtype=base.dtype_of(dtype), device=base.DEVICE)
                   for name, (shape, dtype) in binding.outputs(case).items()}
        space = torch.empty(space_bytes // 4, device=base.DEVICE) if space_bytes else None
        keep.append((data, outputs, space))
        calls.append(kernel.bind(binding.arguments(case, data), outputs, space))
    return calls


def time_all(
    folder: Path, labels: list[str], problems: dict[str, Problem], seconds: float, whole: bool, cases: str, least: int,
    least_sets: int,
) -> None:
    kernels = [load(folder, problems, label) for label in labels]
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    for case in (TIMED[int(i)] for i in cases.split(",")) if cases else TIMED:
        if base.elapsed() > seconds:
            base.say("out of time")
            return
        keep: list[Any] = []
        contestants: dict[str, list[Callable[[], Any]]] = {}
        for name in dict.fromkeys(problem_of(label) for label in labels):
            problem = problems[name]
            count = max(least_sets, min(16, math.ceil(2.2 * cache / problem.binding.bytes_moved(case))))
            sets = [problem.data(case, seed=i) for i in range(count)]
            full = problem.binding.workspace_bytes(case)
            for kernel in (k for k in kernels if k.problem is problem):
                contestants[kernel.label] = bound(kernel, case, sets, full, keep)
                if whole and kernel.label in ("bf16", "ours"):
                    contestants[kernel.label + " whole"] = bound(kernel, case, sets, 0, keep)
        result = base.race({label: calls * math.ceil(least / len(calls)) for label, calls in contestants.items()})
        moved = problems["mla_decode_fp8"].binding.bytes_moved(case) * 1e-3
        short = " ".join(str(value) for value in case.values())
        base.say(f"{short}: " + "  ".join(f"{name} {us:.1f} ({moved / us:.0f})" for name, us in result.items()))
        del contestants, keep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "check", "time", "accuracy", "once"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("labels", nargs="+")
    parser.add_argument("--seconds", type=float, default=60, help="start nothing new after this long")
    parser.add_argument("--cases", default="", help="numbers of the timed cases, with commas between; all by default")
    parser.add_argument("--calls", type=int, default=16, help="of a graph, at least: those of 2 show its start and end")
    parser.add_argument("--sets", type=int, default=2, help="of inputs in turns, at least; with few L2 may keep pages")
    parser.add_argument("--whole", action="store_true", help="time bf16 and ours without a workspace, too")
    parser.add_argument("--nvcc", default="nvcc")
    options = parser.parse_args()
    if options.what == "build":
        return build(options.folder, options.labels, options.nvcc)
    gpu.need()
    problems = {name: Problem(name) for name in ("mla_decode", "mla_decode_fp8")}
    if options.what == "check":
        return max(wrong(options.folder, label, problems) for label in options.labels for wrong in (check, late, again))
    if options.what == "once":
        case = TIMED[int(options.cases)]
        kernel = load(options.folder, problems, options.labels[0])
        answer(kernel, case, kernel.problem.data(case, seed=1))
        return 0
    if options.what == "accuracy":
        accuracy(options.folder, options.labels, problems)
        return 0
    base.say(base.clocks())
    time_all(options.folder, options.labels, problems, options.seconds, options.whole, options.cases, options.calls,
             options.sets)
    base.say(f"{base.clocks()} | {base.elapsed():.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
