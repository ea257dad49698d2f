# SPDX-License-Identifier: MIT
"""Our MI300 kernels beside the AMD challenge's published ones, all modelled: same run, same model, same sample.

    python benchmarks/tools/rivals.py --sources DIR [--shapes 1024x576x7168,…] [--check] [--only ours] [--json FILE]
    python benchmarks/tools/rivals.py --sources DIR --attention [--check]

``DIR`` has checkouts named ``owner+repository`` (published_programs.py lists them); nothing of them is committed. A row
is a whole call of amd_fp8_mm: every launch from the operands as the contest passes them to c, as each author's host
code chooses for the shape. Every call begins with cold caches. ``--check`` runs whole calls with real data instead,
compares their results with the reference and prints no time. ``--attention`` sets flash_attention beside moonmath's
kernel (bf16, head dimension 128) instead.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from emulated import ROOT, Emulator, Kernel, modelled
from published_programs import LUONG, Program, contest, moonmath
from validate_model import BUFFERS, Device, built, geometric, headers

from backends.source import KernelSource
from scoring.problem import Problem

A, B, C, WORKSPACE, A_SCALE, B_SCALE = 0, 1, 4, 5, 6, 7         # places in BUFFERS
OURS = "warpwave"
ATTENTION = ((2, 16, 8192), (1, 16, 16384))     # batch, heads, length
Shape = tuple[int, ...]
Call = Callable[[Any, Shape], int]      # buffers, shape -> status


@dataclass
class Time:
    microseconds: float
    band: float
    launches: list[dict[str, Any]] = field(repr=False)

    @property
    def scratch(self) -> bool:
        """The time describes this compiler's spills, not the kernel."""
        return any(each["resources"]["scratch_bytes"] for each in self.launches)

    @property
    def limit(self) -> str:
        return str(max(self.launches, key=lambda one: one["modelled_us"])["model"]["limited_by"])


def our_call(emulator: Emulator, path: Path, root: Path = ROOT, defines: Mapping[str, str] | None = None) -> Call:
    """A kernel of the checkout ``root``; the size of the workspace is this one's."""
    source = KernelSource.read(path, root)
    signature = source.signature()
    function = getattr(emulator.compiled(source, defines), signature.symbol)
    function.argtypes, function.restype = signature.argtypes(), ctypes.c_int
    workspace_bytes = Problem(ROOT / "problems" / source.problem).binding.workspace_bytes

    def call(buffers: Any, shape: Shape) -> int:
        m, n, k = shape
        size = workspace_bytes({"m": m, "n": n, "k": k})
        assert size <= BUFFERS[WORKSPACE] << 20
        return int(function(*(buffers[each] for each in (A, B, A_SCALE, B_SCALE, C)), m, n, k, buffers[WORKSPACE], size,
                            None))
    return call


def rival_call(library: ctypes.CDLL, symbol: str) -> Call:
    def call(buffers: Any, shape: Shape) -> int:
        return int(getattr(library, symbol)(buffers, (ctypes.c_int * len(shape))(*shape)))
    return call


def timed(device: Device, call: Call, shape: Shape) -> Time:
    device.emulator.counters()          # empties the caches, too
    if status := call(device.buffers, shape):
        raise SystemExit(f"{shape}: status {status}")
    launches = device.emulator.counters()
    return Time(modelled(launches), max(each["modelled_band"] for each in launches), launches)


def verdict(device: Device, call: Call, shape: Shape, problem_name: str = "amd_fp8_mm") -> str:
    """What the problem's check says of a whole call with random data."""
    problem = Problem(ROOT / "problems" / problem_name)
    case = dataclasses.replace(problem.cases[0], params=dict(zip("mnk", shape, strict=True)))
    data = problem.generate(case, 7, "cpu", "e4m3fnuz")
    for place, tensor in zip((A, B, A_SCALE, B_SCALE), data[:4], strict=True):
        # All four have their rows innermost; of fp8_gemm's only the scales of a.
        across = problem_name == "amd_fp8_mm" or place == A_SCALE
        device.put(place, (tensor.t() if across else tensor).contiguous())
    result = torch.full((shape[0], shape[1]), torch.nan, dtype=torch.bfloat16)
    device.put(C, result)
    if status := call(device.buffers, shape):
        return f"status {status}"
    device.get(C, result)
    right, why = problem.check(data, result)
    return "right" if right else f"WRONG: {why}"


def attention(device: Device, sources: Path, extra: Path, build: Path, check: bool) -> None:
    """Modelled times of flash_attention and of moonmath's kernel, which has no mask; or whether the latter is right."""
    rivals = {name: compiled(moonmath(sources, name), extra, build) for name in ("RTNE", "RTZ")}
    for name, call in rivals.items():
        if isinstance(call, str):
            raise SystemExit(f"moonmath {name}: {call}")
        if check:
            batch, heads, length = 1, 2, 640
            q, k, v = torch.randn(3, batch, length, heads, 128, dtype=torch.bfloat16, generator=torch.manual_seed(7))
            for place, tensor in enumerate((q, k, v)):
                device.put(place, tensor.contiguous())
            result = torch.full_like(q, torch.nan)
            if status := call(device.buffers, (batch, heads, length, length)):
                raise SystemExit(f"moonmath {name}: status {status}")
            device.get(4, result)
            attend = torch.nn.functional.scaled_dot_product_attention
            wanted = attend(*(each.double().transpose(1, 2) for each in (q, k, v))).transpose(1, 2)
            print(f"moonmath {name}: off by {(result - wanted).abs().max():.4f} at most", flush=True)
    if check:
        return
    ours = Kernel(device.emulator, "hip/flash_attention/mfma.hip")
    print("\n| B, H, S | mask | ours, µs | TFLOP/s | moonmath RTNE, µs | RTZ | better / ours |")
    print("|" + "---|" * 7)
    for batch, heads, length in ATTENTION:
        for causal in (0, 1):
            ours.run(batch=batch, sq=length, sk=length, hq=heads, hk=heads, dim=128, causal=causal, half=0)
            time = modelled(device.emulator.counters())
            flops = 4 * 128 * batch * heads * (length * (length + 1) // 2 if causal else length**2)
            cells = ["–"] * 3
            if not causal:
                times = [timed(device, call, (batch, heads, length, length)) for call in rivals.values()]
                cells = [f"{each.microseconds:.0f}{' s' if each.scratch else ''}" for each in times]
                cells.append(f"{min(each.microseconds for each in times) / time:.2f}")
            mask = "causal" if causal else "full"
            ours_cells = [f"{batch}, {heads}, {length}", mask, f"{time:.0f}", f"{flops / time * 1e-6:.0f}"]
            print("| " + " | ".join((*ours_cells, *cells)) + " |", flush=True)
    print("\nmodelled; s: scratch, as compiled here")


def tell(shapes: list[Shape], times: dict[str, dict[Shape, Time]], missing: dict[str, str]) -> None:
    rivals = [name for name in times if name != OURS]
    titles = ["shape", *(f"{name} µs" for name in times), "best rival / ours", "band", "ours limited by"]
    print("\n| " + " | ".join(titles) + " |")
    print("|" + "---|" * (len(times) + 4))
    ratios = {}
    for shape in shapes:
        cells = []
        for of_shape in times.values():
            time = of_shape.get(shape)
            cells.append(f"{time.microseconds:.1f}{' s' if time.scratch else ''}" if time else "–")
        ours = times[OURS][shape]
        others = [times[name][shape].microseconds for name in rivals if shape in times[name]]
        if others:
            ratios[shape] = min(others) / ours.microseconds
        ratio = f"{ratios[shape]:.2f}" if others else "–"
        print("| " + " | ".join(["×".join(map(str, shape)), *cells, ratio, f"{ours.band:.2f}", ours.limit]) + " |")
    means = [f"{geometric([each.microseconds for each in of_shape.values()]):.1f}" for of_shape in times.values()]
    if ratios:
        worst = min(ratios, key=lambda shape: ratios[shape])
        print("| geometric mean | " + " | ".join(means) + f" | {geometric(list(ratios.values())):.2f} | | |")
        print(f"\nmodelled; worst row {'×'.join(map(str, worst))}, {ratios[worst]:.2f}; s: scratch, as compiled here")
    for name, why in missing.items():
        print(f"no {name}: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=Path("/tmp/warpwave-published"))
    parser.add_argument("--kernel", type=Path, default=ROOT / "kernels" / "hip" / "amd_fp8_mm" / "mfma.hip")
    parser.add_argument("--shapes", default="", help="M×N×K, separated by commas; without: the contest's 18")
    parser.add_argument("--only", action="append", help=f"{OURS}, radeonflow, luong_large, luong_small or snektron")
    parser.add_argument("--attention", action="store_true", help="flash_attention beside moonmath's")
    parser.add_argument("--check", action="store_true", help="are the results right, instead of how long it takes")
    parser.add_argument("--sample", type=int, default=16, help="workgroups of each launch that run")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    asked = options.shapes.replace("×", "x").split(",")
    shapes = [shape for shape in LUONG if not options.shapes or "x".join(map(str, shape)) in asked]
    options.build.mkdir(parents=True, exist_ok=True)
    extra = headers(options.sources, options.build)
    emulator = Emulator()
    emulator.set(counters=1, checks="none", threads=options.threads, sample=0 if options.check else options.sample)
    device = Device(emulator)
    if options.attention:
        attention(device, options.sources, extra, options.build, options.check)
        return

    ours = our_call(emulator, options.kernel.resolve())
    rivals = contest(options.sources)
    times: dict[str, dict[Shape, Time]] = {}
    missing: dict[str, str] = {}
    for name in (OURS, *rivals):
        if options.only and name not in options.only:
            continue
        times[name] = {}
        for shape in shapes:
            call = ours if name == OURS else compiled(rivals[name](shape), extra, options.build)
            if isinstance(call, str):
                missing[f"{name} at {'×'.join(map(str, shape))}"] = call
            elif options.check:
                print(f"{name} at {'×'.join(map(str, shape))}: {verdict(device, call, shape)}", flush=True)
            else:
                times[name][shape] = timed(device, call, shape)
    if not options.check and OURS in times:
        tell(shapes, times, missing)
    if options.json:
        options.json.write_text(json.dumps({name: {"x".join(map(str, shape)): dataclasses.asdict(time)
                                                   for shape, time in of_shape.items()}
                                            for name, of_shape in times.items()}))


def compiled(program: Program | str, extra: Path, build: Path) -> Call | str:
    """The program's ``run``, or why there is none."""
    if isinstance(program, str):
        return program
    library = built(program, extra, build)
    return rival_call(ctypes.CDLL(str(library)), "run") if isinstance(library, Path) else f"does not compile: {library}"



if __name__ == "__main__":
    main()
