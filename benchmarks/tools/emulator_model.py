# SPDX-License-Identifier: MIT
"""Modelled times of loops and of our kernels beside published MI300X figures of other kernels for the same problems.

    python benchmarks/tools/emulator_model.py [--only loops] [--library FILE] [--sample 16] [--threads N] [--json FILE]

No kernel of ours has been timed on an MI300X, and none of the published kernels is here to be run: but for the loops, a
row sets the modelled time of our kernel beside the published time of another kernel for the same problem. A sample of
the workgroups runs; what they compute is thrown away. Workgroups of ``masked`` differ in length by turns, so there an
eighth of them runs whatever ``--sample`` says: neighbours on the eight dies are alike.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from emulated import ROOT, Emulator, Kernel, modelled

from backends.source import KernelSource

# µs, GPU MODE's AMD challenge: RadeonFlow (first) and luongthecong (fifth) by (m, n, k), wall time with launch.
FP8 = {
    (1024, 1536, 7168): (76.3, 147), (1024, 3072, 1536): (42.8, 50.6), (1024, 576, 7168): (45.1, 75.9),
    (1024, 7168, 256): (20.4, 30.9), (1024, 7168, 2048): (75.3, 106), (1024, 4608, 7168): (136.4, 193),
    (1024, 7168, 2304): (None, 120), (1024, 512, 7168): (None, 75.1), (1024, 4096, 512): (None, 30.9),
    (6144, 1536, 7168): (None, 341), (6144, 3072, 1536): (None, 160), (6144, 576, 7168): (None, 173),
    (6144, 7168, 256): (None, 88.6), (6144, 7168, 2048): (None, 426), (6144, 4608, 7168): (None, 948),
    (6144, 7168, 2304): (None, 479), (6144, 512, 7168): (None, 163), (6144, 4096, 512): (None, 97.7),
}
# TFLOP/s; the shape is not stated, its authors' examples are 8192³.
SQUARE = {8192: (963, "HipKittens, open pull request")}
# ms of moonmath's kernel and TFLOP/s of aiter v3 (both round to nearest even), bf16, head dimension 128, full.
ATTENTION = {(2, 24, 8192): (3.083, 435), (2, 24, 16384): (11.67, 449), (1, 32, 16384): (8.013, 487)}
# Attention with a mask: kernel, batch, heads, length, head dimension, its tunables; and an eighth of its workgroups.
MASKED: list[tuple[str, int, int, int, int, dict[str, int], int]] = [
    ("flash_attention", 32, 16, 512, 128, {}, 128),
    ("flash_attention", 32, 16, 512, 128, {"QUERY_TILES": 1}, 256),
    ("flash_attention", 8, 16, 2048, 128, {}, 128),
    ("flash_attention", 8, 8, 2048, 256, {}, 128),
    ("flash_attention", 8, 32, 2048, 64, {}, 256),
    ("flash_attention_fp8", 8, 16, 2048, 128, {}, 256),
    ("flash_attention_bwd", 32, 16, 512, 128, {}, 512),
]
# The backward pass: kernel, batch, heads, length, head dimension, mask, workgroups that run (0: --sample).
BACKWARD = [
    ("mfma", 2, 16, 8192, 128, 0, 0), ("one_pass", 2, 16, 8192, 128, 0, 0), ("one_pass", 2, 32, 8192, 64, 0, 0),
    ("one_pass", 8, 16, 2048, 128, 0, 0), ("one_pass", 8, 16, 2048, 128, 1, 256),
    ("one_pass", 32, 16, 512, 128, 1, 256),
]
# Query heads, keys; batch 128. Nobody published a time: the floor is the bytes' or the products', whichever is longer.
MLA = [(16, 4096), (16, 8192), (128, 4096), (128, 8192)]
# Whole layers, launch by launch: problem, case, workgroups that run. amd_moe's list of rows has 33, which must all run.
LAYERS: list[tuple[str, dict[str, int], int]] = [
    *(("amd_moe", {"bs": 1, "seqlen": tokens, "dhidden": 7168, "dexpert": 2048, "nroutedexperts": 32,
                   "nsharedexperts": 1, "nexpertspertoken": 4}, 40) for tokens in (2048, 8192)),
    *(("amd_mla_decode", {"batchsize": 128, "dim": 7168, "dq": 1536, "prefill": prefill}, 16)
      for prefill in (4096, 6144)),
]
HBM, BF16 = 4.3e12, 708e12      # bytes and FLOP a second, as in LOOPS
# Which of emulator_kernels.hip, FLOP or bytes a workgroup and round, unit, published rate, where from.
LOOPS = [
    ("matrix cores, fp8", 0, 4 * 4 * 32768, "TFLOP/s", 1273e12, "AMD, max achievable"),
    ("matrix cores, bf16", 1, 4 * 4 * 16384, "TFLOP/s", 708e12, "AMD, max achievable"),
    ("matrix cores, f16", 2, 4 * 4 * 16384, "TFLOP/s", 654e12, "AMD, max achievable"),
    ("vector unit, f32 FMA", 3, 16 * 256 * 2, "TFLOP/s", 81.7e12, "data sheet, half of 163.4: not packed"),
    ("LDS loads, 16 bytes", 4, 8 * 256 * 16, "TB/s", 304 * 128 * 2.1e9, "white paper, 128 bytes a cycle and CU"),
    ("copy of 512 MiB, HBM", 5, 2 * 256 * 16, "TB/s", 4.3e12, "public copies, 4.0 to 4.4"),
]


@dataclass
class Row:
    name: str
    modelled: float
    published: float
    unit: str
    limit: str
    note: str = ""

    @property
    def error(self) -> float:
        return self.modelled / self.published - 1


def loops(emulator: Emulator, sample: int) -> Iterator[Row]:
    source = ROOT / "benchmarks" / "tools" / "emulator_kernels.hip"
    call = emulator.compiled(KernelSource.read(source, ROOT, "emulator_loop")).emulator_loop
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    bytes_each = 2**28
    buffers = [(ctypes.c_char * bytes_each)() for _ in range(2)]
    for name, which, each, unit, published, where in LOOPS:
        copies = unit == "TB/s" and "copy" in name
        groups, rounds = (bytes_each // 4096 // 8, 8) if copies else (304 * 16, 1000)
        emulator.set(sample=0 if copies else sample)
        emulator.counters()
        if call(which, groups, rounds, ctypes.addressof(buffers[0]), ctypes.addressof(buffers[1])) != 0:
            raise SystemExit(f"{name}: the launch failed")
        (found,) = emulator.counters()
        rate = groups * rounds * each / (found["modelled_us"] * 1e-6)
        yield Row(name, rate / 1e12, published / 1e12, unit, found["model"]["limited_by"], where)


def fp8(emulator: Emulator, sample: int) -> Iterator[tuple[Row, float | None]]:
    kernel = Kernel(emulator, "hip/amd_fp8_mm/mfma.hip")
    emulator.set(sample=sample)
    for (m, n, k), (first, fifth) in FP8.items():
        kernel.run(m=m, n=n, k=k)
        launches = emulator.counters()
        yield Row(f"{m}×{n}×{k}", modelled(launches), fifth, "µs", _limit(launches)), first


def attention(emulator: Emulator, sample: int) -> Iterator[tuple[Row, float]]:
    kernel = Kernel(emulator, "hip/flash_attention/mfma.hip")
    emulator.set(sample=sample)
    for (batch, heads, length), (milliseconds, aiter) in ATTENTION.items():
        kernel.run(batch=batch, sq=length, sk=length, hq=heads, hk=heads, dim=128, causal=0, half=0)
        launches = emulator.counters()
        flops = 4 * batch * heads * length**2 * 128
        rate, published = flops / modelled(launches) * 1e-6, flops / milliseconds * 1e-9
        yield Row(f"{batch}, {heads}, {length}", rate, published, "TFLOP/s", _limit(launches)), aiter


def masked(emulator: Emulator) -> Iterator[tuple[str, float, float, str]]:
    """Kernel and shape, modelled µs, TFLOP/s of visible pairs, parts."""
    for name, batch, heads, length, dim, tunables, sample in MASKED:
        kernel = Kernel(emulator, f"hip/{name}/mfma.hip", **tunables)
        emulator.set(sample=sample)
        case: dict[str, int | str] = {
            "batch": batch, "sq": length, "sk": length, "hq": heads, "hk": heads, "dim": dim, "causal": 1,
            **({"scales": "head"} if "fp8" in name else {"half": 0})}
        kernel.run(**case)
        launches = emulator.counters()
        time = modelled(launches)
        label = ", ".join((name, *map(str, (batch, heads, length, dim)), *(f"{k}={v}" for k, v in tunables.items())))
        yield label, time, kernel.problem.binding.flops(case) / time * 1e-6, _parts(launches)


def backward(emulator: Emulator, sample: int) -> Iterator[tuple[str, float, float, str]]:
    """Kernel and shape, modelled µs, TFLOP/s of visible pairs, parts."""
    for name, batch, heads, length, dim, causal, run in BACKWARD:
        kernel = Kernel(emulator, f"hip/flash_attention_bwd/{name}.hip")
        emulator.set(sample=run or sample)
        case: dict[str, int | str] = {
            "batch": batch, "sq": length, "sk": length, "hq": heads, "hk": heads, "dim": dim, "causal": causal,
            "half": 0}
        kernel.run(**case)
        launches = emulator.counters()
        time = modelled(launches)
        label = ", ".join((name, *map(str, (batch, heads, length, dim)), "causal" if causal else "full"))
        yield label, time, kernel.problem.binding.flops(case) / time * 1e-6, _parts(launches)


def mla(emulator: Emulator, sample: int) -> Iterator[tuple[Row, str]]:
    kernel = Kernel(emulator, "hip/mla_decode/mfma.hip")
    emulator.set(sample=sample)
    for heads, length in MLA:
        case = {"batch": 128, "sq": 1, "hq": heads, "sk": length, "lens": "uniform", "causal": 0}
        kernel.run(**case)
        launches = emulator.counters()
        binding = kernel.problem.binding
        floor, what = max((binding.bytes_moved(case) / HBM, "memory"), (binding.flops(case) / BF16, "products"))
        row = Row(f"{heads} heads, {length} keys", modelled(launches), floor * 1e6, "µs", _limit(launches), what)
        yield row, _parts(launches)


def layers(emulator: Emulator, problem: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each of the problem's cases in LAYERS: what differs between them, and its launches."""
    kernel = Kernel(emulator, f"hip/{problem}/mfma.hip")
    for name, case, sample in LAYERS:
        if name == problem:
            emulator.set(sample=sample)
            kernel.run(prepare=_routed if name == "amd_moe" else None, **case)
            yield ", ".join(f"{key} {case[key]}" for key in ("seqlen", "prefill") if key in case), emulator.counters()


def _routed(values: dict[str, Any]) -> None:
    """Write the experts that tokens take to where amd_moe/mfma's router puts them: a sample of it leaves most out."""
    hidden, inner, chosen = (values[name] for name in ("hidden", "inner", "chosen"))
    experts = torch.topk(values["x"].view(-1, hidden).float() @ values["router"].float().T, chosen).indices.int()
    rows = values["tokens"] * (chosen + 1)      # of h, which lie before them, in pieces of 256 bytes
    place = -values["workspace"].data_ptr() % 256 - -rows * inner * 2 // 256 * 256
    values["workspace"][place:place + 4 * experts.numel()] = experts.view(-1).view(torch.uint8)


def square(emulator: Emulator, sample: int) -> Iterator[Row]:
    kernel = Kernel(emulator, "hip/fp8_gemm/mfma.hip")
    emulator.set(sample=sample)
    for size, (published, note) in SQUARE.items():
        kernel.run(m=size, n=size, k=size)
        launches = emulator.counters()
        yield Row(f"{size}³", 2 * size**3 / modelled(launches) * 1e-6, published, "TFLOP/s", _limit(launches), note)


def _limit(launches: Sequence[dict[str, Any]]) -> str:
    return str(max(launches, key=lambda each: each["modelled_us"])["model"]["limited_by"])


def _name(launch: dict[str, Any]) -> str:
    """The function's name, from its mangled one, without what it is a template of."""
    mangled: str = launch["kernel"]
    nested = mangled.startswith("_ZN")
    name, rest = mangled, mangled.removeprefix("_ZN" if nested else "_Z")
    while match := re.match(r"\d+", rest):
        begin, length = match.end(), int(match[0])
        name, rest = rest[begin:begin + length], rest[begin + length:]
        if not nested:
            break
    return name


def _parts(launches: Sequence[dict[str, Any]]) -> str:
    """What the longest launch spends on each resource, and idle: µs of the model's parts, longest first."""
    parts = max(launches, key=lambda each: each["modelled_us"])["model"]
    named = {name.removesuffix("_us"): time for name, time in parts.items() if name.endswith("_us")}
    for whole in ("launch", "compute_units"):
        named.pop(whole, None)
    longest = sorted(named.items(), key=lambda each: -each[1])[:6]
    return ", ".join(f"{name} {time:.0f}" for name, time in longest)


def _table(*titles: str) -> None:
    print("\n| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles), flush=True)


def _line(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def _loops(emulator: Emulator, sample: int) -> list[Row]:
    rows = []
    _table("loop", "modelled", "published", "error", "limited by", "published by")
    for row in loops(emulator, sample):
        rows.append(row)
        line = (row.name, f"{row.modelled:.4g} {row.unit}", f"{row.published:.4g}", f"{row.error:+.1%}")
        _line(*line, row.limit, row.note)
    return rows


def _fp8(emulator: Emulator, sample: int) -> list[Row]:
    rows = []
    _table("M×N×K", "ours, modelled µs", "1st, µs", "difference", "5th of 163, µs", "difference", "limited by")
    for row, first in fp8(emulator, sample):
        rows.append(row)
        best = (first, f"{row.modelled / first - 1:+.0%}") if first else ("–", "–")
        _line(row.name, f"{row.modelled:.1f}", *best, row.published, f"{row.error:+.0%}", row.limit)
    mean = statistics.geometric_mean(row.modelled for row in rows)
    _line("geometric mean", f"{mean:.1f}", 92.0, f"{mean / 92 - 1:+.0%}", 136, f"{mean / 136 - 1:+.0%}", "")
    return rows


def _square(emulator: Emulator, sample: int) -> list[Row]:
    rows = []
    _table("M = N = K", "ours, modelled TFLOP/s", "published", "difference", "limited by", "published by")
    for row in square(emulator, sample):
        rows.append(row)
        _line(row.name, f"{row.modelled:.0f}", f"{row.published:.0f}", f"{row.error:+.0%}", row.limit, row.note)
    return rows


def _attention(emulator: Emulator, sample: int) -> list[Row]:
    rows = []
    _table("B, H, S", "ours, modelled TFLOP/s", "moonmath", "difference", "aiter v3", "difference", "limited by")
    for row, aiter in attention(emulator, sample):
        rows.append(row)
        difference = f"{row.modelled / aiter - 1:+.0%}"
        line = (row.name, f"{row.modelled:.0f}", f"{row.published:.0f}", f"{row.error:+.0%}")
        _line(*line, aiter, difference, row.limit)
    return rows


def _mla(emulator: Emulator, sample: int) -> list[Row]:
    rows = []
    _table("batch 128", "ours, modelled µs", "floor, µs", "of", "ours / floor", "limited by", "parts, µs")
    for row, parts in mla(emulator, sample):
        rows.append(row)
        ratio = f"{row.modelled / row.published:.2f}"
        _line(row.name, f"{row.modelled:.0f}", f"{row.published:.0f}", row.note, ratio, row.limit, parts)
    return rows


def _masked(emulator: Emulator, _sample: int) -> list[Row]:
    """No row: nobody published a time."""
    return _unpublished(masked(emulator))


def _backward(emulator: Emulator, sample: int) -> list[Row]:
    return _unpublished(backward(emulator, sample))


def _moe(emulator: Emulator, _sample: int) -> list[Row]:
    return _layers(emulator, "amd_moe")


def _mla_layer(emulator: Emulator, _sample: int) -> list[Row]:
    return _layers(emulator, "amd_mla_decode")


def _layers(emulator: Emulator, problem: str) -> list[Row]:
    """No row: nobody published such a launch's time."""
    for case, launches in layers(emulator, problem):
        _table(f"{problem}, {case}", "workgroups", "modelled µs", "limited by", "MHz", "parts, µs")
        for each in launches:
            _line(_name(each), each["workgroups"], f"{each['modelled_us']:.1f}", _limit([each]),
                  f"{each['model']['clock_mhz']:.0f}", _parts([each]))
        _line("all", "", f"{modelled(launches):.1f}", "", "", "")
    return []


def _unpublished(found: Iterator[tuple[str, float, float, str]]) -> list[Row]:
    _table("kernel, B, H, S, D", "ours, modelled µs", "TFLOP/s", "parts, µs")
    for shape, time, rate, parts in found:
        _line(shape, f"{time:.1f}", f"{rate:.0f}", parts)
    return []


TABLES = {"loops": _loops, "fp8": _fp8, "square": _square, "attention": _attention, "masked": _masked,
          "backward": _backward, "mla": _mla, "moe": _moe, "mla_layer": _mla_layer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES, action="append")
    parser.add_argument("--library", type=Path, help="libamdhip64.so; without it, it is built")
    parser.add_argument("--sample", type=int, default=16, help="workgroups of each launch that run")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    emulator = Emulator(options.library)
    emulator.set(counters=1, checks="none", threads=options.threads)
    rows = {name: TABLES[name](emulator, options.sample) for name in options.only or TABLES}
    if options.json:
        found = {name: [asdict(row) for row in each] for name, each in rows.items()}
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
