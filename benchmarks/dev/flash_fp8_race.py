# SPDX-License-Identifier: MIT
"""Build, check and race tile shapes of cuda/flash_attention_fp8/wgmma_tma, with an NVIDIA GPU, torch and nvcc.

    python benchmarks/dev/flash_fp8_race.py build FOLDER LABEL=DIM[/NAME:VALUE]...
    python benchmarks/dev/flash_fp8_race.py check FOLDER [--seconds 40]
    python benchmarks/dev/flash_fp8_race.py race FOLDER [--seconds 40] [--rows 2048,16384] [--peers fa3]
    python benchmarks/dev/flash_fp8_race.py decide FOLDER ...

A build holds one head dimension (0: all of them) and takes its defines from NAME:VALUE: 128s=128/STAGES:3. ``check``
runs each build in a process of its own, so that one that hangs can be ended, against the problem's reference: its test
cases of that head dimension and larger ones, with and without a workspace, with poisoned outputs and guard bands, twice
for the same bits. ``race`` times the builds that passed, in turns with the problem's peers. ``decide`` does both in one
process, for builds that are not expected to hang.
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

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_attention as attention
import gpu
import torch

ROOT = Path(__file__).resolve().parents[2]
NAME = "flash_attention_fp8"


def case(
    batch: int, sq: int, heads: int, dim: int, causal: int, scales: str = "head", outliers: int = 0,
) -> dict[str, Any]:
    return {"batch": batch, "sq": sq, "sk": sq, "hq": heads, "hk": heads, "dim": dim, "causal": causal,
            "scales": scales, "rotated": 0, "outliers": outliers}


def build(folder: Path, specs: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = os.environ.get("NVCC", "nvcc")
    jobs = []
    for spec in specs:
        label, _, rest = spec.partition("=")
        dim, *defines = rest.split("/")
        named = [define.partition(":") for define in defines] + ([("ONLY_DIM", "", dim)] if dim != "0" else [])
        library = folder / f"{label}.so"
        command = [
            nvcc, "-std=c++17", "-O3", "-lineinfo", "--expt-relaxed-constexpr", "-Xptxas", "-v",
            "-Xcompiler", "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static",
            "-gencode", "arch=compute_90a,code=sm_90a",
            *(f"-D{key}={value}" for key, _, value in named),
            *(f"-I{ROOT / path}" for path in (f"problems/{NAME}", "kernels/cuda", "kernels/common")),
            str(ROOT / f"kernels/cuda/{NAME}/wgmma_tma.cu"), "-o", str(library),
        ]
        jobs.append((label, int(dim), spec, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    builds = {}
    for label, only, spec, process in jobs:
        log, _ = process.communicate(timeout=200)
        if process.returncode != 0:
            print(f"nvcc failed on {label}:\n{log[-1500:]}", flush=True)
            continue
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", log))
        serial = ", wgmma serialised" if "Performance Loss" in log else ""
        print(f"{spec}: {spills} bytes spilled{serial}", flush=True)
        builds[label] = only
    (folder / "builds.json").write_text(json.dumps(builds))
    return 0


def cases_of(dim: int) -> list[tuple[dict[str, Any], int]]:
    """(case, seed): the problem's tests of one head dimension (0: all), then some that walk many tiles."""
    known = []
    for line in (ROOT / f"problems/{NAME}/task.yml").read_text().partition("benchmarks:")[0].splitlines():
        entry = dict(re.findall(r"(\w+): (\w+)", line)) if line.startswith("  - {batch") else {}
        if entry:
            seed = int(entry.pop("seed"))
            known.append(({key: int(x) if x.isdigit() else x for key, x in entry.items()}, seed))
    for d in (64, 128, 256):
        known += [(case(2, 2048, 2048 // d, d, causal, scales), 7) for causal in (0, 1) for scales in ("head", "block")]
        known += [(case(1, 8192, 8, d, 0, "tensor", 1), 8), (case(1, 5000, 8, d, 1), 9)]
    return [(c, seed) for c, seed in known if dim in (0, c["dim"])]


def check_builds(folder: Path, builds: dict[str, int], deadline: float) -> None:
    """Mark the builds that are right; those with nothing to say against them when time ran out, too."""
    problem = attention.Problem(NAME)
    kernels = [attention.Kernel(problem, label, folder / f"{label}.so") for label in builds]
    wrong: dict[str, int] = dict.fromkeys(builds, 0)
    checked = 0
    for size, seed in cases_of(0):
        concerned = [k for k in kernels if builds[k.label] in (0, size["dim"])]
        if not concerned:
            continue
        if time.monotonic() > deadline:
            print(f"out of time after {checked} cases")
            break
        data = problem.data(size, seed)
        sample = None if size["sk"] * size["sq"] * size["hq"] * size["batch"] < 3e7 else 3000
        expected, space = problem.reference.expected(data, sample=sample), problem.binding.workspace_bytes(size)
        for kernel in concerned:
            if wrong[kernel.label] > 3:
                continue
            found = attention.check(kernel, size, data, expected, space)
            found = found or attention.check(kernel, size, data, expected, 0)
            if found:
                wrong[kernel.label] += 1
                print(f"WRONG [{kernel.label}] {' '.join(map(str, size.values()))}: {found[:600]}", flush=True)
        checked += 1
    for label, count in wrong.items():
        if count == 0:
            (folder / f"{label}.right").touch()
    print(f"{checked} cases, wrong: {wrong}", flush=True)


def check(folder: Path, builds: dict[str, int], seconds: float) -> None:
    """The same with a process per build."""
    start = time.monotonic()
    running = {
        label: subprocess.Popen(
            [sys.executable, __file__, "check", str(folder), "--one", label],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for label in builds}
    for label, process in running.items():
        try:
            out, _ = process.communicate(timeout=max(1.0, seconds - (time.monotonic() - start)))
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            out += f"[{label}] ran past its time\n"
        print(out[-2500:], end="", flush=True)


def race(
    folder: Path, builds: dict[str, int], deadline: float, lengths: list[int], budget: float, only_peers: str,
) -> None:
    problem = attention.Problem(NAME)
    kernels = [attention.Kernel(problem, label, folder / f"{label}.so")
               for label in builds if (folder / f"{label}.right").exists()]
    rows = []
    sizes = [case(16384 // s, s, 2048 // dim, dim, causal)
             for s in lengths for dim in (128, 64, 256) for causal in (0, 1) if {0, dim} & set(builds.values())]
    if {0, 128} & set(builds.values()):
        sizes += [case(2, 8192, 16, 128, causal, "block", 1) for causal in (0, 1)]
    print(f"{attention.clocks()}", flush=True)
    for size in sizes:
        if time.monotonic() > deadline:
            print(f"out of time before {size}")
            break
        moved, flops = problem.binding.bytes_moved(size), problem.binding.flops(size)
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        sets = [problem.data(size, seed=i) for i in range(max(2, min(8, math.ceil(2.2 * cache / moved))))]
        keep, contestants = [], {}
        for kernel in kernels:
            if builds[kernel.label] not in (0, size["dim"]):
                continue
            contestants[kernel.label] = []
            for data in sets:
                outputs = {name: torch.empty(shape, dtype=attention.dtype_of(dtype), device=attention.DEVICE)
                           for name, (shape, dtype) in problem.binding.outputs(size).items()}
                space = torch.empty(
                    problem.binding.workspace_bytes(size), dtype=torch.uint8, device=attention.DEVICE)
                keep.append((outputs, space))
                contestants[kernel.label].append(kernel.bind(problem.binding.arguments(size, data), outputs, space))
        contestants.update(peers(sets, only_peers))
        result = attention.race(contestants, budget)
        best = min((us for name, us in result.items() if name in builds), default=math.nan)
        short = f"{size['dim']} {size['sq']} {'causal' if size['causal'] else 'full'} {size['scales']}"
        print(f"{short}: " + "  ".join(
            f"{name} {us:.1f} ({flops * 1e-6 / us:.0f})" + ("*" if us == best else "") for name, us in result.items()),
            flush=True)
        rows.append({"case": size, "flops": flops, "us": result})
        del sets, keep, contestants
    for name, reason in attention.REFUSED.items():
        print(f"at least once refused: {name}: {reason}")
    print(f"{attention.clocks()}")
    if out := os.environ.get("OUT"):
        Path(out, "flash_fp8_race.json").write_text(json.dumps(rows))


def peers(sets: list[Any], pattern: str) -> dict[str, list[Any]]:
    """Calls of benchmarks/peers that can be made here."""
    calls = {}
    for path in sorted((ROOT / "benchmarks/peers" / NAME).glob("*.py")):
        if not re.fullmatch(pattern, path.stem):
            continue
        try:
            peer = attention.module(path, f"peer_{path.stem}")
        except ImportError as error:
            attention.REFUSED.setdefault(path.stem, str(error).splitlines()[0][:200])
            continue
        try:                              # what a peer does besides attention is done beforehand, where it can
            calls[path.stem] = [partial(peer.attention, peer.prepare(data)) for data in sets]
        except AttributeError:
            calls[path.stem] = [partial(peer.custom_kernel, data) for data in sets]
        except ValueError as error:
            attention.REFUSED.setdefault(path.stem, str(error))
    return calls


def main() -> int:
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "check", "race", "decide"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("specs", nargs="*")
    parser.add_argument("--seconds", type=float, default=40, help="start nothing new after this long")
    parser.add_argument("--check-seconds", type=float, default=10, help="of these for checks, where both are done")
    parser.add_argument("--budget", type=float, default=200, help="milliseconds per row of the race")
    parser.add_argument("--rows", default="2048,16384", help="sequence lengths")
    parser.add_argument("--peers", default=".*", help="a pattern")
    parser.add_argument("--one", help="check this build only, in this process")
    options = parser.parse_args()
    if options.action == "build":
        return build(options.folder, options.specs)
    gpu.need()
    builds = json.loads((options.folder / "builds.json").read_text())
    lengths = [int(s) for s in options.rows.split(",")]
    if options.action == "check" and not options.one:
        check(options.folder, builds, options.seconds)
    elif options.action in ("check", "decide"):
        some = {label: dim for label, dim in builds.items() if options.one in (None, label)}
        check_builds(options.folder, some, start + (options.check_seconds if options.one is None else options.seconds))
    if options.action in ("race", "decide"):
        race(options.folder, builds, start + options.seconds, lengths, options.budget, options.peers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
