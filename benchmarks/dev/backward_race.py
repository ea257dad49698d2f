# SPDX-License-Identifier: MIT
"""Build, check and time variants of attention backward on a machine with an NVIDIA GPU, torch and nvcc.

    python benchmarks/dev/backward_race.py build FOLDER LABEL=VARIANT[@KERNELS][/KEY:VALUE ...] ...
    python benchmarks/dev/backward_race.py check FOLDER [--seconds 30] [--seeds 1] [--labels REGEX]
    python benchmarks/dev/backward_race.py race FOLDER [--seconds 40] [--budget 250] [--labels REGEX] [--cases REGEX]
        [--peers REGEX] [--parts N]

``build`` compiles kernels/cuda/flash_attention_bwd/VARIANT.cu (of another folder KERNELS, with ":" for "/", if given)
for sm_90a into FOLDER/LABEL.so, all at once. ``check`` runs the problem's tests, and some cases with many heads, on
each against its fp64 reference, with poisoned outputs and workspaces and guard bands, twice, and says whose bits
repeat. ``race`` times by CUDA-graph replays in turns with torch's cuDNN and FlashAttention-2 backward and, where
flash_attn_interface can be imported, FlashAttention-3's; with --parts it lists what the kernels of one call take.
Labels that begin with "x" are for timing alone: they may leave work out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_attention as shared
import gpu

PROBLEM = "flash_attention_bwd"
CASES = [shared.flash(16384 // s, s, s, h, h, dim, causal)
         for dim, h in ((128, 16), (64, 32)) for s in (2048, 8192) for causal in (1, 0)]
CASES += [shared.flash(16384 // s, s, s, h, h, dim, causal)
          for dim, h in ((64, 32), (128, 16)) for s in (512, 16384) for causal in (0, 1)]
CASES += [shared.flash(2, 8192, 8192, 16, 2, 128, 1)]
# Checked beside the problem's tests: more heads than all blocks take at a time, and where fp16 weights were too small.
MORE = [
    {**case, "seed": 7} for case in (
        shared.flash(4, 4096, 4096, 16, 16, 64, 1), shared.flash(8, 2048, 2048, 16, 16, 128, 0),
        shared.flash(4, 600, 2100, 32, 8, 128, 0, 1), shared.flash(8, 1000, 1030, 64, 16, 64, 1))
] + [{**shared.flash(1, 777, 777, 4, 4, 128, 1, 1), "seed": 336343576}]
say = shared.say


def build(folder: Path, texts: list[str]) -> int:
    """Compile all at once; returns how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = os.environ.get("NVCC") or shutil.which("nvcc") or "nvcc"
    jobs = []
    for text in texts:
        label, _, rest = text.partition("=")
        variant, *defines = rest.split("/")
        variant, _, kernels = variant.partition("@")
        root = Path(kernels.replace(":", "/")) if kernels else shared.ROOT / "kernels"
        command = [
            nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-Xcompiler",
            "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode", "arch=compute_90a,code=sm_90a",
            *(f"-D{define.replace(':', '=')}" for define in defines), f"-I{shared.ROOT / 'problems' / PROBLEM}",
            f"-I{root / 'cuda'}", f"-I{root / 'common'}", str(root / "cuda" / PROBLEM / f"{variant}.cu"),
            "-o", str(folder / f"{label}.so"),
        ]
        jobs.append((label, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    failed = 0
    for label, process in jobs:
        log, _ = process.communicate(timeout=240)
        notes = sorted(set(re.findall(r"C75\d\d|[1-9]\d* bytes spill stores", log)))
        failed += process.returncode != 0
        say(f"{label}: {'built' if process.returncode == 0 else 'FAILED ' + log[-1500:]} {' '.join(notes)}")
    return failed


def load(problem: shared.Problem, folder: Path, labels: str) -> list[shared.Kernel]:
    return [shared.Kernel(problem, path.stem, path) for path in sorted(folder.glob("*.so"))
            if re.fullmatch(labels, path.stem)]


def test_cases(problem: str) -> list[dict[str, int]]:
    """The tests of task.yml, which are written one per line."""
    text = (shared.ROOT / "problems" / problem / "task.yml").read_text()
    lines = re.findall(r"^  - \{(.*)\}$", text.split("\ntests:")[1].split("\nbenchmarks:")[0], re.MULTILINE)
    return [{key: int(value) for key, value in re.findall(r"(\w+): (\d+)", line)} for line in lines]


def check(problem: shared.Problem, kernels: list[shared.Kernel], seconds: float, seeds: int) -> int:
    """All tests on all builds but those for timing alone; returns how many were wrong."""
    wrong: dict[str, int] = {}
    differ: dict[str, int] = {}
    count = 0
    tests = test_cases(PROBLEM)
    again = [{**case, "seed": case["seed"] + 7919 * turn} for turn in range(1, seeds) for case in tests]
    for case in tests + MORE + again:
        if shared.elapsed() > seconds:
            say(f"out of time before {case}")
            break
        seed = case.pop("seed")
        data = problem.data(case, seed)
        sample = None if case["sk"] * case["sq"] * case["hq"] * case["batch"] < 3e7 else 2000
        expected = problem.reference.expected(data, sample=sample)
        space = problem.binding.workspace_bytes(case)
        for kernel in kernels:
            if kernel.label.startswith("x"):
                continue
            count += 1
            message = shared.check(kernel, case, data, expected, space)
            if message == "two runs differ":
                differ[kernel.label] = differ.get(kernel.label, 0) + 1
            elif message:
                wrong[kernel.label] = wrong.get(kernel.label, 0) + 1
                say(f"WRONG [{kernel.label}] {case}: {message[:400]}")
                if message.startswith("status"):
                    return 1
    say(f"checked {count} runs, wrong: {wrong or 'none'}, bits differ between runs: {differ or 'nowhere'}, "
        f"{shared.elapsed():.1f} s")
    return sum(wrong.values())


def inputs(case: dict[str, Any], seed: int) -> Any:
    """Random normal data; o and lse from torch's forward."""
    rng = torch.Generator("cuda").manual_seed(seed)
    q_shape = (case["batch"], case["sq"], case["hq"], case["dim"])
    k_shape = (case["batch"], case["sk"], case["hk"], case["dim"])
    q, k, v, dout = (torch.randn(shape, generator=rng, device="cuda", dtype=torch.bfloat16)
                     for shape in (q_shape, k_shape, k_shape, q_shape))
    group, scale = case["hq"] // case["hk"], case["dim"] ** -0.5
    first = [x.transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2))]
    o, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(*first, 0.0, bool(case["causal"]), scale=scale)
    return q, k, v, o.transpose(1, 2).contiguous(), dout, lse.contiguous(), bool(case["causal"]), scale


def third_version() -> Callable[..., Any] | None:
    """FlashAttention-3's backward, if it is installed."""
    try:
        backward = importlib.import_module("flash_attn_interface")._flash_attn_backward
    except (ImportError, OSError) as error:
        say(f"no FlashAttention-3: {str(error)[:200]}")
        return None

    def call(data: Any, gradients: tuple[torch.Tensor, ...], deterministic: bool) -> None:
        q, k, v, o, dout, lse, causal, scale = data
        dq, dk, dv = gradients
        backward(dout, q, k, v, o, lse, dq=dq, dk=dk, dv=dv, softmax_scale=scale, is_causal=causal,
                 deterministic=deterministic)

    return call


def take_turns(contestants: dict[str, list[Callable[[], Any]]], budget_ms: float) -> dict[str, float]:
    """Median microseconds per call; who begins changes from round to round, as long rows run at the power limit."""
    graphs = {}
    for name, calls in contestants.items():
        try:
            graphs[name] = (shared.capture(calls), len(calls))
        except (RuntimeError, ValueError, AttributeError, TypeError) as error:
            torch.cuda.synchronize()
            shared.REFUSED.setdefault(name, str(error).splitlines()[0][:200])
    times: dict[str, list[float]] = {name: [] for name in graphs}
    names, begin_all = list(graphs), time.monotonic()
    for turn in range(30):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            graph, count = graphs[name]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / count)
        if turn >= 5 and (time.monotonic() - begin_all) * 1e3 > budget_ms:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def race(problem: shared.Problem, kernels: list[shared.Kernel], options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    fa3 = third_version()
    for case in CASES:
        short = " ".join(str(value) for value in case.values())
        if not re.search(options.cases, short):
            continue
        if shared.elapsed() > options.seconds:
            say("out of time")
            break
        sets = [inputs(case, seed) for seed in range(2)]
        contestants: dict[str, list[Callable[[], Any]]] = {}
        keep: list[Any] = []
        size = problem.binding.workspace_bytes(case)
        space = torch.empty(size // 4, device="cuda")
        for kernel in kernels:
            calls = []
            for data in sets:
                outputs = {name: torch.empty(shape, dtype=shared.dtype_of(dtype), device="cuda")
                           for name, (shape, dtype) in problem.binding.outputs(case).items()}
                keep.append(outputs)
                calls.append(kernel.bind(problem.binding.arguments(case, data), outputs, space))
            contestants[kernel.label] = calls
        peers = shared.torch_calls(problem, sets)
        if fa3 is not None:
            made = [tuple(torch.empty_like(x) for x in data[:3]) for data in sets]
            for name, fixed in (("fa3", False), ("fa3 det", True)):
                peers[name] = [partial(fa3, data, out, fixed) for data, out in zip(sets, made, strict=True)]
        contestants.update({name: calls for name, calls in peers.items() if re.fullmatch(options.peers, name)})
        result = take_turns(contestants, options.budget)
        rate = problem.binding.flops(case) * 1e-6
        say(f"{short}: " + "  ".join(f"{name} {us:.1f} ({rate / us:.0f})" for name, us in result.items()))
        say(f"    {shared.clocks().split(',', 2)[2].strip()}")
        rows.append({"case": case, "us": result})
        if options.parts:
            for kernel in kernels[: options.parts]:
                say(f"    {kernel.label}: {parts(contestants[kernel.label][0])}")
        del contestants, keep, sets, space
    return rows


def parts(call: Callable[[], Any]) -> str:
    """What the kernels of one call take, in microseconds."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(3):
                call()
            torch.cuda.synchronize()
        events = profile.key_averages()
        return ", ".join(f"{re.sub('<.*', '', e.key).split()[-1]} {e.device_time_total / e.count:.1f}"
                         for e in events if e.device_time_total > 0)
    except RuntimeError as error:
        return str(error)[:100]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["build", "check", "race"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("builds", nargs="*")
    parser.add_argument("--seconds", type=float, default=40, help="start nothing new after this long")
    parser.add_argument("--budget", type=float, default=250, help="milliseconds per row")
    parser.add_argument("--labels", default=".*", help="a pattern: only builds whose labels match")
    parser.add_argument("--cases", default="", help="a pattern: only cases whose numbers match")
    parser.add_argument("--peers", default=".*", help="a pattern: only peers whose names match")
    parser.add_argument("--seeds", type=int, default=1, help="how often to draw the tests' data")
    parser.add_argument("--parts", type=int, default=0, help="list the kernels of so many builds")
    options = parser.parse_args()
    begin = time.monotonic()
    if options.task == "build":
        failed = build(options.folder, options.builds)
        say(f"built in {time.monotonic() - begin:.1f} s")
        return int(failed > 0)
    gpu.need()
    problem = shared.Problem(PROBLEM)
    kernels = load(problem, options.folder, options.labels)
    say(f"{shared.clocks()} | torch {torch.__version__}")
    if options.task == "check":
        return int(check(problem, kernels, options.seconds, options.seeds) > 0)
    rows = race(problem, kernels, options)
    for name, reason in shared.REFUSED.items():
        say(f"at least once refused: {name}: {reason}")
    say(shared.clocks())
    if out := os.environ.get("OUT"):
        Path(out, "backward_race.json").write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
