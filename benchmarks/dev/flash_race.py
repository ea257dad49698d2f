# SPDX-License-Identifier: MIT
"""Race builds of flash_attention's kernels with cuDNN and, where its module can be imported, FlashAttention-3.

    python benchmarks/dev/flash_race.py build DIR LABEL=KEY:VALUE,... ...     (no GPU; one nvcc each, all at once)
    python benchmarks/dev/flash_race.py race DIR [--seconds 45] [--dims 64,128,256] [--lengths 512,2048,8192,16384]
        [--peers cudnn,fa3] [--checked] [--like LABEL]

A label starts with the head dimension to race the build at, or with "all". Two keys are no macros: `kernel:mma_sync`
builds that file instead of wgmma_tma, `arch:89` builds for Ada and translates that for Hopper, as the driver would.
Peers are files of benchmarks/peers/flash_attention: `flash` is torch's FlashAttention-2. `race` first runs each build
in a process of its own, with a time limit, on small cases against the problem's reference; what is wrong, crashes or
hangs does not take part. Then 16 384 tokens in all, bf16, heads x dimension = 2048, and at 64 one small problem:
contestants in turns as in check_attention.py.
With $OUT set, the times are written to $OUT/flash_race.json, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import check_attention as lib
import gpu
import torch

HEADS = {64: 32, 128: 16, 256: 8}
SMALL = [
    (2, 193, 130, 2, 1, 0), (1, 400, 400, 1, 1, 1), (1, 300, 420, 2, 1, 1), (2, 300, 100, 1, 1, 1),
    (2, 600, 600, 80, 40, 0), (2, 600, 600, 80, 40, 1), (1, 2100, 2100, 8, 8, 1), (1, 64, 200, 300, 300, 1),
    (1, 700, 700, 40, 40, 0), (1, 700, 700, 40, 40, 1), (1, 1300, 1300, 16, 16, 0),
]
JUMPS = {8: 0.5, 9: 0.5, 10: 0.04}


def build(folder: Path, builds: list[str]) -> int:
    """One nvcc for each LABEL=KEY:VALUE,..., or PROBLEM/LABEL=... of another problem than flash_attention."""
    jobs = []
    for text in builds:
        label, _, rest = text.partition("=")
        problem = label.partition("/")[0] if "/" in label else "flash_attention"
        (folder / label).parent.mkdir(parents=True, exist_ok=True)
        keys = dict(part.split(":") for part in rest.split(",") if part)
        kernel, arch = keys.pop("kernel", "wgmma_tma"), keys.pop("arch", "90a")
        code = "sm_90" if arch == "89" else f"sm_{arch}"
        defines = [f"-D{key}={value}" for key, value in keys.items()]
        command = [
            os.environ.get("NVCC", "nvcc"), "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr",
            "-Xptxas", "-v", "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static",
            "-gencode", f"arch=compute_{arch},code={code}", *defines,
            *(f"-I{lib.ROOT / path}" for path in (f"problems/{problem}", "kernels/cuda", "kernels/common")),
            str(lib.ROOT / f"kernels/cuda/{problem}/{kernel}.cu"), "-o", str(folder / f"{label}.so")]
        jobs.append((label, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    failed = 0
    for label, process in jobs:
        log, _ = process.communicate(timeout=400)
        failed += process.returncode != 0
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", log))
        notes = [line for line in log.splitlines() if re.search(r"error|Performance Loss", line)]
        print(label, f"status {process.returncode}, {spills} bytes spilled", *notes[:5], flush=True)
    return failed


def takes(label: str, dim: int) -> bool:
    return label.startswith("all") or label.startswith(f"{dim}")


def check(library: Path, dims: list[int]) -> int:
    problem = lib.Problem("flash_attention")
    kernel = lib.Kernel(problem, library.stem, library)
    for dim in dims:
        for number, (batch, sq, sk, hq, hk, causal) in enumerate(SMALL):
            case = lib.flash(batch, sq, sk, hq, hk, dim, causal, number % 2)
            data = problem.data(case, seed=number)
            if number in JUMPS:     # scores far above those before: keys are walked from the last to the first
                q, k, v, *rest = data
                early = torch.arange(sk, device=k.device) < JUMPS[number] * sk
                data = (q, (k * torch.where(early, 60.0, 0.5)[None, :, None, None]).to(k.dtype), v, *rest)
            expected = problem.reference.expected(data, sample=3000 if batch * sq * hq > 4000 else None)
            for space in (0, problem.binding.workspace_bytes(case)):
                wrong = lib.check(kernel, case, data, expected, space)
                if wrong:
                    print(f"WRONG {library.stem} {case} {wrong[:300]}", flush=True)
                    return 1
    return 0


def peers(sets: list[Any], names: list[str]) -> dict[str, list[Any]]:
    calls = {}
    for name in (name for name in names if name != "fa3"):
        peer = lib.module(lib.ROOT / f"benchmarks/peers/flash_attention/{name}.py", f"peer_{name}")
        calls[name] = [partial(peer.custom_kernel, data) for data in sets]
    if "fa3" not in names:
        return calls
    try:
        from flash_attn_interface import flash_attn_func  # type: ignore[import-not-found]
    except (ImportError, OSError):
        return calls
    calls["fa3"] = [partial(flash_attn_func, q, k, v, scale, causal=bool(causal)) for q, k, v, causal, scale in sets]
    return calls


def compare(like: str, outputs: dict[str, dict[str, torch.Tensor]]) -> None:
    """Say whose outputs are not to the bit those of the build `like`."""
    for label, tensors in outputs.items():
        if any(not torch.equal(tensor.view(torch.uint8), outputs[like][name].view(torch.uint8))
               for name, tensor in tensors.items()):
            lib.say(f"{label}: other bits than {like}")


def race(
    folder: Path, deadline: float, dims: list[int], lengths: list[int], budget: float, rivals: list[str],
    checked: bool, like: str = "",
) -> int:
    libraries = sorted(folder.glob("*.so"))
    checks = {} if checked else {
        (path, dim): subprocess.Popen(
            [sys.executable, __file__, "check", str(path), "--dims", str(dim)], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        for path in libraries for dim in HEADS if takes(path.stem, dim)}
    wrong: set[Path] = set()
    for (path, dim), process in checks.items():
        try:
            log, _ = process.communicate(timeout=max(1.0, 16 - lib.elapsed()))
        except subprocess.TimeoutExpired:
            process.kill()
            log = "out of time"
        if process.returncode != 0:
            wrong.add(path)
            lib.say(f"{path.stem}, {dim}: {log.strip()[-400:]}")
    right = [path for path in libraries if path not in wrong]
    lib.say(f"{len(right)} of {len(libraries)} builds right, {lib.elapsed():.0f} s; {lib.clocks()}")
    problem = lib.Problem("flash_attention")
    kernels = [lib.Kernel(problem, path.stem, path) for path in right]
    rows = []
    for dim in dims:
        for length in [0, *lengths] if dim == 64 else lengths:
            for causal in (0, 1):
                if lib.elapsed() > deadline:
                    lib.say("out of time")
                    return 1
                case = lib.flash(16384 // length, length, length, HEADS[dim], HEADS[dim], dim, causal) if length \
                    else lib.flash(1, 512, 512, 8, 8, 64, causal)     # one small problem, as the first seeds had it
                moved, flops = problem.binding.bytes_moved(case), problem.binding.flops(case)
                cache = torch.cuda.get_device_properties(0).L2_cache_size
                sets = [problem.data(case, seed=i) for i in range(max(2, math.ceil(2.2 * cache / moved)))]
                space = torch.empty(problem.binding.workspace_bytes(case) // 4, device="cuda")
                contestants: dict[str, list[Any]] = {}
                keep: list[Any] = []
                last: dict[lib.Kernel, dict[str, torch.Tensor]] = {}
                for kernel in (k for k in kernels if takes(k.label, dim)):
                    calls = []
                    for data in sets:
                        outputs = {name: torch.empty(shape, dtype=lib.dtype_of(dtype), device="cuda")
                                   for name, (shape, dtype) in problem.binding.outputs(case).items()}
                        keep.append(outputs)
                        calls.append(kernel.bind(problem.binding.arguments(case, data), outputs, space))
                    contestants[kernel.label] = calls
                    last[kernel] = outputs
                contestants.update(peers(sets, rivals))
                times = lib.race(contestants, budget)
                if like:
                    compare(like, {kernel.label: outputs for kernel, outputs in last.items()})
                lib.say(f"{dim} {length or '512 (B 1, H 8)'} {'causal' if causal else 'full'}: " + "  ".join(
                    f"{name} {us:.1f} ({flops / us * 1e-6:.0f})" for name, us in times.items()))
                rows.append({"dim": dim, "length": length, "causal": causal, "us": times})
                del sets, contestants, keep, last
    for name, reason in lib.REFUSED.items():
        lib.say(f"refused: {name}: {reason}")
    lib.say(f"{lib.clocks()} | {lib.elapsed():.0f} s")
    if out := os.environ.get("OUT"):
        Path(out, "flash_race.json").write_text(json.dumps(rows))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["build", "check", "race"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("builds", nargs="*")
    parser.add_argument("--seconds", type=float, default=45, help="start nothing new after this long")
    parser.add_argument("--dims", default="64,128,256")
    parser.add_argument("--lengths", default="512,2048,8192,16384")
    parser.add_argument("--peers", default="cudnn,fa3")
    parser.add_argument("--checked", action="store_true", help="all builds are known to be right")
    parser.add_argument("--like", default="", metavar="LABEL", help="say whose outputs differ from that build's")
    parser.add_argument("--budget", type=float, default=150, help="milliseconds of turns per row")
    options = parser.parse_args()
    if options.verb == "build":
        return build(options.folder, options.builds)
    gpu.need()
    dims, lengths = ([int(n) for n in text.split(",")] for text in (options.dims, options.lengths))
    if options.verb == "check":
        return check(options.folder, dims)
    start = time.monotonic()
    status = race(options.folder, options.seconds, dims, lengths, options.budget, options.peers.split(","),
                  options.checked, options.like)
    lib.say(f"{time.monotonic() - start:.0f} s in all")
    return status


if __name__ == "__main__":
    sys.exit(main())
