# SPDX-License-Identifier: MIT
"""Race kernels of flash_attention_varlen, or of flash_attention for few queries of grouped heads, with their peers.

    python benchmarks/dev/sequences_race.py build DIR PROBLEM/LABEL=KEY:VALUE,... ...     (keys as in flash_race.py)
    python benchmarks/dev/sequences_race.py race DIR PROBLEM ... [--seconds 25] [--only REGEX] [--budget 60]
    python benchmarks/dev/sequences_race.py chain DIR flash_attention_varlen/LABEL [--calls 200]

`chain` calls one build on inputs behind which no memory is mapped, then many times without a wait between, in any
order of batches, head sizes, outputs and workspaces, and then the same in a graph: each call must leave the bits that
it leaves alone, which are checked before.
A PROBLEM is flash_attention_varlen or flash_attention. `race` first runs the builds, in a process for each problem and
with a time limit, on small cases against the problem's reference; what is wrong, crashes or hangs does not take part.
Then the rows below whose text matches, contestants in turns as in check_attention.py. Peers: those of benchmarks/peers,
and for few queries torch's FlashAttention-2 called so that its causal mask is aligned as ours is, cuDNN for one query.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import check_attention as lib
import flash_race
import gpu
import torch
from guarded_memory import guarded


def varlen(batch: int, total: int, lens: str, hq: int, hk: int, dim: int, causal: int, queries: int = 0) -> Any:
    return {"batch": batch, "tq": queries or total, "tk": total, "lens": lens, "hq": hq, "hk": hk, "dim": dim,
            "causal": causal, "half": 0}


SMALL = {
    "flash_attention_varlen": [
        *(varlen(15, 2500, "mixed", 4, 2, dim, 1) for dim in (128, 64, 256)), varlen(15, 2500, "mixed", 4, 2, 128, 0),
        varlen(9, 3000, "mixed", 8, 1, 128, 1, 200), varlen(7, 4000, "decode", 8, 2, 64, 1, 7),
        varlen(5, 2000, "decode", 8, 2, 256, 1, 40), varlen(4, 3000, "tail", 2, 1, 256, 0),
    ],
    "flash_attention": [          # what mma_sync's tiles for few queries, or others in their place, are for
        *(lib.flash(1, 16, 4000, 32, 4, dim, 1) for dim in (128, 64, 256)), lib.flash(2, 1, 700, 8, 1, 128, 1),
        lib.flash(1, 5, 1500, 12, 2, 128, 1), lib.flash(1, 64, 8192, 32, 4, 128, 1), lib.flash(2, 40, 20, 8, 2, 64, 1),
        lib.flash(3, 2, 3000, 8, 2, 256, 0), lib.flash(1, 128, 20000, 8, 1, 128, 1),
    ],
}
ROWS = {
    "flash_attention_varlen": [
        *(varlen(16, 16384, lens, 2048 // dim, 2048 // dim, dim, causal)
          for dim in (128, 64, 256) for causal in (1, 0) for lens in ("uniform", "tail")),
        varlen(64, 16384, "tail", 16, 16, 128, 1), varlen(16, 16384, "tail", 32, 8, 128, 1),
        varlen(256, 16384, "tail", 16, 16, 128, 1), varlen(2, 16384, "tail", 16, 16, 128, 1),
        varlen(16, 65536, "decode", 32, 8, 128, 1, 16), varlen(64, 262144, "decode", 32, 8, 128, 1, 64),
        varlen(16, 65536, "decode", 32, 4, 128, 1, 64),
    ],
    "flash_attention": [
        *(lib.flash(batch, sq, sk, 32, hk, 128, 1) for batch, sk in ((1, 8192), (1, 32768), (8, 8192))
          for hk in (4, 8) for sq in (1, 4, 16, 64)),
        *(lib.flash(1, sq, 32768, 32, 4, dim, 1) for dim in (64, 256) for sq in (16, 64)),
        lib.flash(1, 128, 32768, 8, 1, 128, 1), lib.flash(1, 256, 32768, 8, 8, 128, 1)],
}


def check(name: str, libraries: list[Path]) -> None:
    """Say of each build whether it is right, one after the other."""
    problem = lib.Problem(name)
    cases: list[Any] = []
    for number, case in enumerate(SMALL[name]):
        data = problem.data(case, seed=number)
        rows = case["hq"] * (case["tq"] if "tq" in case else case["batch"] * case["sq"])
        cases.append((case, data, problem.reference.expected(data, sample=1000 if rows > 2500 else None)))
    print(f"{len(cases)} cases after {lib.elapsed():.1f} s", flush=True)
    for library in libraries:
        kernel = lib.Kernel(problem, library.stem, library)
        for number, (case, data, expected) in enumerate(cases):
            print(f"{library.stem}: case {number}, {lib.elapsed():.1f} s", flush=True)      # where a hang is
            space = problem.binding.workspace_bytes(case)
            wrong = lib.check(kernel, case, data, expected, space)
            if not wrong and name == "flash_attention" and case["sq"] == 1:
                wrong = lib.check(kernel, case, data, expected, 0)
            if wrong:
                print(f"wrong {library} {case}: {wrong[:400]}", flush=True)
                break
        else:
            print(f"right {library}", flush=True)      # a line that right_builds looks for


CHAIN = [
    *(varlen(16, 8192, lens, hq, hk, dim, causal) for dim, hq, hk in ((64, 16, 16), (128, 16, 4), (256, 8, 8))
      for causal, lens in ((1, "uniform"), (1, "tail"), (0, "tail"), (1, "mixed"))),
    varlen(16, 16384, "uniform", 32, 32, 64, 1), varlen(7, 4000, "decode", 8, 2, 64, 1, 7),
]


def chain(library: Path, calls: int) -> int:
    """How many calls, one behind the other, left other bits than the same call alone."""
    problem = lib.Problem("flash_attention_varlen")
    kernel = lib.Kernel(problem, library.stem, library)
    spaces = [torch.full((8 << 20,), math.nan, device="cuda") for _ in range(2)]

    def bound(case: Any, data: Any, space: torch.Tensor) -> tuple[Any, list[torch.Tensor]]:
        outputs = {key: torch.full(shape, math.nan, dtype=lib.dtype_of(dtype), device="cuda")
                   for key, (shape, dtype) in problem.binding.outputs(case).items()}
        return kernel.bind(problem.binding.arguments(case, data), outputs, space), list(outputs.values())

    known = []
    for number, case in enumerate(CHAIN):
        data = problem.data(case, seed=number)
        call, outputs = bound(case, data, spaces[0])
        call()
        torch.cuda.synchronize()
        expected = problem.reference.expected(data, sample=300)
        right, message = problem.reference.check_outputs(expected, tuple(outputs))
        lib.say(f"{library.stem} alone {case}: {'right' if right else message[:300]}, {lib.elapsed():.1f} s")
        known.append((case, data, outputs))
    for case, data, alone in known:
        ends = (case["tq"], case["tk"], case["tk"], case["batch"] + 1, case["batch"] + 1)
        inputs = [guarded(x[:end]) for x, end in zip(data[:5], ends, strict=True)]
        call, outputs = bound(case, (*inputs, *data[5:]), spaces[1])
        try:
            call()
            torch.cuda.synchronize()
        except RuntimeError as error:
            lib.say(f"{library.stem} with nothing behind its inputs, {case}: {str(error).splitlines()[0]}")
            return 1
        same = all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(alone, outputs, strict=True))
        lib.say(f"{library.stem} with nothing behind its inputs, {case}: {'the same' if same else 'differs'}")
    order = torch.randint(len(known), (calls,), generator=torch.Generator().manual_seed(1)).tolist()
    bursts = [(known[i], *bound(*known[i][:2], spaces[place * 5 // 3 % 2])) for place, i in enumerate(order)]
    torch.cuda.synchronize()

    def others(how: str) -> int:
        torch.cuda.synchronize()
        wrong = [case for (case, _, alone), _, outputs in bursts
                 if not all(torch.equal(a.view(torch.uint8), b.view(torch.uint8))
                            for a, b in zip(alone, outputs, strict=True))]
        lib.say(f"{library.stem} {how}: {len(wrong)} of {calls} calls differ, {lib.elapsed():.1f} s {wrong[:2]}")
        for *_, outputs in bursts:
            for output in outputs:
                output.fill_(math.nan)
        torch.cuda.synchronize()
        return len(wrong)

    for _, call, _ in bursts:
        call()
    failed = others("in a row")
    graph = lib.capture([call for _, call, _ in bursts])
    failed += others("captured")
    graph.replay()
    return failed + others("captured, again")


def packed_peers(sets: list[Any]) -> dict[str, list[Any]]:
    """What is installed of benchmarks/peers/flash_attention_varlen."""
    calls = {}
    for path in sorted((lib.ROOT / "benchmarks/peers/flash_attention_varlen").glob("*.py")):
        try:
            peer = lib.module(path, f"peer_{path.stem}")
        except (ImportError, OSError):
            continue
        calls[path.stem] = [partial(peer.custom_kernel, data) for data in sets]
    return calls


def few_query_peers(case: Any, sets: list[Any]) -> dict[str, list[Any]]:
    """torch's kernels for a causal mask aligned to the last key."""
    flash = torch.ops.aten._flash_attention_forward
    calls = {"flash": [
        partial(flash, q, k, v, None, None, case["sq"], case["sk"], 0.0, bool(causal), False, scale=scale)
        for q, k, v, causal, scale in sets]}
    if case["sq"] == 1:      # which sees all keys, masked or not
        peer = lib.module(lib.ROOT / "benchmarks/peers/flash_attention/cudnn.py", "peer_cudnn")
        calls["cudnn"] = [partial(peer.custom_kernel, (q, k, v, False, scale)) for q, k, v, _, scale in sets]
    return calls


def right_builds(folder: Path, names: list[str], seconds: float) -> dict[str, list[lib.Kernel]]:
    """Of each problem the builds that pass `check`, in a process for each problem."""
    libraries = {name: sorted(folder.glob(f"{name}/*.so")) for name in names}
    checks = {}
    for name in names:
        log = (folder / f"{name}.txt").open("w")
        command = [sys.executable, __file__, "check", str(folder), name, *map(str, libraries[name])]
        checks[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    right = {}
    for name, process in checks.items():
        try:
            process.wait(timeout=max(1.0, seconds - lib.elapsed()))
        except subprocess.TimeoutExpired:
            process.kill()
        log = (folder / f"{name}.txt").read_text()
        right[name] = [lib.Kernel(lib.Problem(name), path.stem, path) for path in libraries[name]
                       if f"right {path}\n" in log]
        if len(right[name]) < len(libraries[name]):
            lib.say(log.strip()[-1500:])
        lib.say(f"{name}: {len(right[name])} of {len(libraries[name])} builds right, {lib.elapsed():.0f} s")
    return right


def race(name: str, kernels: list[lib.Kernel], options: argparse.Namespace) -> None:
    problem = lib.Problem(name)
    for case in ROWS[name]:
        text = " ".join(str(value) for value in case.values())
        if not re.search(options.only, text):
            continue
        if lib.elapsed() > options.seconds:
            lib.say("out of time")
            break
        moved, flops = problem.binding.bytes_moved(case), problem.binding.flops(case)
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        sets = [problem.data(case, seed=i) for i in range(max(2, min(8, math.ceil(2.2 * cache / moved))))]
        space = torch.empty(problem.binding.workspace_bytes(case) // 4, device="cuda")
        contestants: dict[str, list[Any]] = {}
        keep: list[Any] = []
        for kernel in kernels:
            calls = []
            for data in sets:
                outputs = {key: torch.empty(shape, dtype=lib.dtype_of(dtype), device="cuda")
                           for key, (shape, dtype) in problem.binding.outputs(case).items()}
                keep.append(outputs)
                calls.append(kernel.bind(problem.binding.arguments(case, data), outputs, space))
            contestants[kernel.label] = calls
        contestants.update(few_query_peers(case, sets) if name == "flash_attention" else packed_peers(sets))
        times = lib.race(contestants, options.budget)
        lib.say(f"{text}: " + "  ".join(
            f"{label} {us:.1f} ({flops / us * 1e-6:.0f}, {moved / us * 1e-6:.2f})" for label, us in times.items()))
        del sets, contestants, keep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["build", "check", "race", "chain"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("rest", nargs="+", help="builds, or problems")
    parser.add_argument("--seconds", type=float, default=25, help="start nothing new after this long")
    parser.add_argument("--calls", type=int, default=200, help="in a chain")
    parser.add_argument("--check-seconds", type=float, default=12)
    parser.add_argument("--unchecked", action="append", default=[], type=Path, metavar=".../PROBLEM/LABEL.so",
                        help="one more build, known to be right")
    parser.add_argument("--only", default=".", help="a pattern: only rows whose text matches")
    parser.add_argument("--budget", type=float, default=60, help="milliseconds of turns per row")
    options = parser.parse_args()
    if options.verb == "build":
        return flash_race.build(options.folder, options.rest)
    gpu.need()
    if options.verb == "check":
        check(options.rest[0], [Path(path) for path in options.rest[1:]])
        return 0
    if options.verb == "chain":
        return sum(chain(options.folder / f"{path}.so", options.calls) for path in options.rest)
    for name, kernels in right_builds(options.folder, options.rest, options.check_seconds).items():
        lib.say(f"{name}: us (TFLOP/s, TB/s)")
        trusted = [path for path in options.unchecked if path.parent.name == name]
        race(name, [lib.Kernel(lib.Problem(name), path.stem, path) for path in trusted] + kernels, options)
    for label, reason in lib.REFUSED.items():
        lib.say(f"refused: {label}: {reason}")
    lib.say(f"{lib.clocks()} | {lib.elapsed():.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
