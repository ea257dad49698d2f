# SPDX-License-Identifier: MIT
"""HipKittens' 8-wave bf16 product of square matrices beside our bf16 and FP8 ones, all modelled: same run, same model.

    python benchmarks/tools/rivals_square.py --sources DIR [--size 8192] [--check]

``DIR`` is rivals.py's, with HipKittens' branch cdna3. Every product begins with cold caches. FP8 has twice the peak of
bf16: its row is a ratio across types. ``--check`` runs whole products with random data and compares their results with
the exact ones; 512 or 1024 is enough, the code is the same but for that number.
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path
from typing import Any

import torch
from emulated import ROOT, Emulator
from published_programs import hipkittens
from rivals import OURS, A, B, C, Call, Shape, Time, compiled, our_call, timed, verdict
from validate_model import Device, headers

from backends.source import KernelSource

BUFFERS = [128, 128, 1, 1, 128, 64, 1, 1]    # MiB: 8192 x 8192 of 16 bits


def calls(emulator: Emulator, rival: Call) -> dict[str, Call]:
    """Products of square matrices by name; those of bf16 take no scales."""
    source = KernelSource.read(ROOT / "benchmarks" / "tools" / "bf16_product.hip", ROOT, "bf16_product")
    function = emulator.compiled(source).bf16_product
    function.argtypes, function.restype = [*[ctypes.c_void_p] * 3, *[ctypes.c_int] * 3], ctypes.c_int

    def bf16(buffers: Any, shape: Shape) -> int:
        return int(function(buffers[A], buffers[B], buffers[C], *shape))
    return {"hipkittens bf16": rival, f"{OURS} bf16": bf16,
            f"{OURS} fp8_gemm": our_call(emulator, ROOT / "kernels" / "hip" / "fp8_gemm" / "mfma.hip")}


def verdict_of(device: Device, name: str, call: Call, size: int) -> str:
    """Is the result that of random operands? HipKittens cuts bf16 off where ours round."""
    if "fp8" in name:
        return verdict(device, call, (size,) * 3, "fp8_gemm")
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randn(size, size, generator=generator).bfloat16() for _ in range(2))
    result = torch.full((size, size), torch.nan, dtype=torch.bfloat16)
    for place, tensor in ((A, a), (B, b), (C, result)):
        device.put(place, tensor)
    if status := call(device.buffers, (size,) * 3):
        return f"status {status}"
    device.get(C, result)
    return bf16_verdict(a, b, result, 2.0**-8 if OURS in name else 2.0**-7)


def bf16_verdict(a: torch.Tensor, b: torch.Tensor, result: torch.Tensor, rounding: float) -> str:
    """[m, k] and [n, k] operands. ``rounding``: of the result, as a share of it, 2⁻⁸ to nearest and 2⁻⁷ cut off; and
    fp32's roundings of the sum."""
    want, magnitude = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    wrong = ~((result.double() - want).abs() <= want.abs() * rounding + magnitude * 2.0**-20)    # NaN is wrong
    return f"WRONG: {int(wrong.sum())} of {wrong.numel()}" if wrong.any() else "right"


def table(size: int, times: dict[str, Time], against: str) -> list[str]:
    """Lines of a table: time, rate, how many times as fast as ``against``, and where its time goes."""
    parts = ("mfma_us", "l2_us", "latency_us", "tail_us")
    titles = ("product", "modelled µs", "TFLOP/s", f"{against} / it", "band", "limited by",
              *(part.replace("_us", " µs") for part in parts), "MHz", "LDS conflicts")
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for name, time in times.items():
        longest = max(time.launches, key=lambda one: one["modelled_us"])
        model = longest["model"]
        conflicts = sum(each["lds"]["conflict_cycles"] for each in time.launches)
        cells = (f"{name}{' s' if time.scratch else ''}", f"{time.microseconds:.0f}",
                 f"{2 * size**3 / time.microseconds * 1e-6:.0f}",
                 f"{times[against].microseconds / time.microseconds:.2f}", f"{time.band:.2f}", time.limit,
                 *(f"{sum(each['model'][part] for each in time.launches):.0f}" for part in parts),
                 f"{model['clock_mhz']:.0f}", f"{conflicts:.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=Path("/tmp/warpwave-published"))
    parser.add_argument("--size", type=int, default=8192, help="a multiple of 256")
    parser.add_argument("--check", action="store_true", help="are the results right, instead of how long it takes")
    parser.add_argument("--sample", type=int, default=16, help="workgroups of each launch that run")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    options = parser.parse_args()
    options.build.mkdir(parents=True, exist_ok=True)
    rival = compiled(hipkittens(options.sources, options.size), headers(options.sources, options.build), options.build)
    if isinstance(rival, str):
        raise SystemExit(f"HipKittens' product {rival}")
    emulator = Emulator()
    emulator.set(counters=1, checks="none", threads=options.threads, sample=0 if options.check else options.sample)
    device = Device(emulator, BUFFERS)
    times = {}
    for name, call in calls(emulator, rival).items():
        if options.check:
            print(f"{name} at {options.size}³: {verdict_of(device, name, call, options.size)}", flush=True)
        else:
            times[name] = timed(device, call, (options.size,) * 3)
    if times:
        print("\n".join(table(options.size, times, next(iter(times)))))


if __name__ == "__main__":
    main()
