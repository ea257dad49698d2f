# SPDX-License-Identifier: MIT
"""Synthetic but plausible records for the tests of everything that shows or keeps results.

Times follow from shape, peak rates and an efficiency, so that rooflines and speed-ups are consistent with one another.
``sample()`` is a whole day's work on four machines; ``history()`` the weeks before it.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

from scoring.record import Case, CaseResult, Evidence, Facts, Mode, Record, Stats, Status, score, worst

# (backend, arch, device name, peaks): dense FLOP/s by dtype and bytes/s.
GPUS: dict[str, tuple[str, str, str, dict[str, float]]] = {
    "H200": ("cuda", "sm_90a", "NVIDIA H200", {"fp8": 1.979e15, "bf16": 989.5e12, "fp16": 989.5e12, "bytes": 4.8e12}),
    "L4": ("cuda", "sm_89", "NVIDIA L4", {"fp8": 242e12, "bf16": 121e12, "fp16": 121e12, "bytes": 300e9}),
    "MI300": ("rocm", "gfx942", "", {"fp8": 2.615e15, "bf16": 1.307e15, "fp16": 1.307e15, "bytes": 5.3e12}),
    "CPU": ("cpu", "x86_64", "host", {}),
}
SHAPES: dict[str, list[dict[str, int | str]]] = {
    "fp8_gemm": [{"m": m, "n": n, "k": k} for m, n, k in (
        (64, 7168, 2048), (128, 2112, 7168), (1024, 1536, 7168), (1024, 7168, 2304), (4096, 4096, 7168),
        (6144, 7168, 2304))],
    "flash_attention": [
        {"batch": batch, "sq": length, "sk": length, "hq": 32, "hk": 8, "dim": 128, "causal": causal, "half": 0}
        for batch, length, causal in ((16, 1024, 1), (4, 4096, 1), (4, 4096, 0), (1, 16384, 1))],
    "mla_decode": [
        {"batch": batch, "sq": 1, "hq": 128, "sk": sk, "lens": lens, "causal": 1}
        for batch, sk, lens in ((1, 8192, "uniform"), (32, 4096, "ragged"), (128, 4096, "uniform"),
                                (128, 8192, "mixed"))],
}
USAGE: dict[str, dict[str, Any]] = {
    "cuda": {"registers": 168, "spill_bytes": 0, "shared_bytes": 213_504, "scratch_bytes": 0,
             "scalar_registers": None, "agprs": None, "threads": 384, "occupancy": 0.1875},
    "rocm": {"registers": 128, "spill_bytes": 24, "shared_bytes": 65_536, "scratch_bytes": 32,
             "scalar_registers": 96, "agprs": 128, "threads": 256, "occupancy": 0.25},
}


def stats(median: float, spread: float = 0.01, runs: int = 100) -> Stats:
    """Statistics around ``median`` seconds; ``spread`` is the relative half-width of the confidence interval."""
    std = median * spread * 3
    return Stats(runs=runs, median=median, ci_low=median * (1 - spread), ci_high=median * (1 + spread),
                 mean=median * 1.004, std=std, err=std / math.sqrt(runs), best=median * (1 - 2 * spread),
                 worst=median * (1 + 5 * spread))


def work(problem: str, params: dict[str, Any]) -> tuple[float, float, str]:
    """(FLOP, bytes, dtype whose peak applies) of one call."""
    p = params
    if problem == "fp8_gemm":
        m, n, k = p["m"], p["n"], p["k"]
        return 2.0 * m * n * k, m * k + n * k + 2.0 * m * n, "fp8"
    if problem == "flash_attention":
        flops = 4.0 * p["batch"] * p["hq"] * p["sq"] * p["sk"] * p["dim"] * (0.5 if p["causal"] else 1.0)
        return flops, 2.0 * p["batch"] * p["dim"] * (2 * p["sq"] * p["hq"] + 2 * p["sk"] * p["hk"]), "bf16"
    filled = {"uniform": 1.0, "ragged": 0.55, "mixed": 0.7}[p["lens"]] * p["batch"] * p["sk"]
    return 2.0 * filled * p["hq"] * (576 + 512), filled * 576 * 2.0, "bf16"


def wobble(*parts: object) -> float:
    """A repeatable number in [0, 1) from its arguments."""
    return hashlib.sha256(repr(parts).encode()).digest()[0] / 256


def environment(params: dict[str, Any], gpu: bool) -> dict[str, Any]:
    """The circumstances of a timing: every reading with its range."""
    clock = 1755 + int(90 * wobble(params))
    readings = {
        "sm_clock_mhz": {"min": clock - 15, "median": clock, "max": clock + 45},
        "power_w": {"min": 502.0, "median": 540.5, "max": 610.25},
        "temperature_c": {"min": 56.0, "median": 58.0, "max": 61.0},
        "throttle_reasons": ["sw_power_cap"] if clock < 1790 else []}
    return {"slots": 12, "rounds": 14, "request": "replay" if gpu else "sweep", "judge_clock_rounds": 0,
            **(readings if gpu else {}), "protocol": "graph_cold/2" if gpu else "wall_cold/2",
            "cache": "cold: 12 slots, 181 MiB over a 50 MiB cache"}


def case_result(
    problem: str, params: dict[str, Any], gpu: str = "H200", efficiency: float = 0.6, peers: tuple[str, ...] = (),
    status: Status = Status.PASSED, message: str = "", timed: bool = True, kernel: str = "",
) -> CaseResult:
    """One case of ``problem``; with peaks its time is the roofline over ``efficiency``, else a host's."""
    flops, moved, dtype = work(problem, params)
    peaks = GPUS[gpu][3]
    flop_time = flops / peaks[dtype] if peaks else flops / 2e10
    byte_time = moved / peaks["bytes"] if peaks else moved / 2e10
    roofline = max(flop_time, byte_time)
    passed = status is Status.PASSED
    small = 3e-6 if peaks else 0.0                      # launch latency: what keeps small shapes off the roof
    seconds = roofline / (efficiency * (0.92 + 0.16 * wobble(kernel, problem, params))) + small
    return CaseResult(
        case=Case(params, "benchmarks" if timed else "tests"), status=status, seed=4711, message=message,
        stats=stats(seconds, 0.002 + 0.02 * wobble(params, kernel)) if passed and timed else None,
        flops=flops, bytes_moved=moved, roofline_seconds=roofline if peaks else None,
        bound=("flop" if flop_time >= byte_time else "bytes") if peaks else "",
        peers={name: stats(seconds * (0.82 + 0.45 * wobble(name, params)), 0.004) for name in peers}
        if passed and timed else {},
        environment=environment(params, bool(peaks)) if passed and timed else {},
    )


def record(
    problem: str = "fp8_gemm", kernel: str = "cuda/wgmma", gpu: str = "H200", *, efficiency: float = 0.6,
    created: str = "2026-11-18T09:30:00.123+00:00", mode: Mode = Mode.BENCHMARK, evidence: Evidence = Evidence.MEASURED,
    peers: tuple[str, ...] = (), status: Status = Status.PASSED, message: str = "", case_message: str = "",
    failing: int = 0, cases: int | None = None, **changes: Any,
) -> Record:
    """A record that keeps every invariant. ``failing`` cases take ``status``; without any, the record itself does.

    ``changes`` replace fields of the finished record.
    """
    backend, arch, device, peaks = GPUS[gpu]
    timed = mode in (Mode.BENCHMARK, Mode.LEADERBOARD)
    shapes = SHAPES[problem][:cases] if failing or status is Status.PASSED else []
    results = tuple(
        case_result(problem, params, gpu, efficiency, peers, status if number < failing else Status.PASSED,
                    case_message if number < failing else "", timed, kernel)
        for number, params in enumerate(shapes))
    overall = worst([status, *(result.status for result in results)])
    ranked = timed and overall is Status.PASSED and results
    usage = ({"name": f"{problem}_kernel", **USAGE[backend]},) if backend in USAGE else ()
    made = Record(
        id=hashlib.sha256(repr((problem, kernel, gpu, created, mode, status)).encode()).hexdigest()[:32],
        created=created, problem=problem, kernel=kernel, digest=hashlib.sha256(repr(kernel).encode()).hexdigest(),
        backend=backend, target=arch, gpu=gpu, device=device, mode=mode, status=overall, evidence=evidence,
        message=message, cases=results, seed=4711, seconds=12.5,
        score=score([r.stats.median for r in results if r.stats], "geom") if ranked else None,
        protocol=("graph_cold/2" if peaks else "wall_cold/2") if timed and results else "",
        usage=usage if overall is not Status.COMPILE_ERROR else (),
        compile={"command": ["nvcc" if backend == "cuda" else "clang", "-O3"],
                 "version": "nvcc 13.0.88" if backend == "cuda" else "clang 22.1.0", "seconds": 4.2,
                 "cached": False, "diagnostics": []},
        system={"python": "3.11.7", "platform": "Linux-6.8.0-85-generic-x86_64-with-glibc2.36", "machine": "x86_64",
                "driver": "580.95.05" if device.startswith("NVIDIA") else "", "torch": "2.13.0+cu130"},
        facts=Facts(peaks=peaks, peaks_source=f"{gpu} data sheet" if peaks else "", llc_bytes=50 << 20))
    return replace(made, **changes)


def compile_error() -> Record:
    """A record whose source the compiler refused."""
    return record(
        "mla_decode", "cuda/cluster", status=Status.COMPILE_ERROR, message="nvcc refused the source",
        compile={"command": ["nvcc"], "version": "13.0.88", "seconds": 1.4, "cached": False, "diagnostics": [
            {"file": "kernels/cuda/mla_decode/cluster.cu", "line": 42, "severity": "error",
             "message": 'identifier "barier" is undefined'},
            {"file": "kernels/cuda/mla_decode/cluster.cu", "line": 57, "severity": "warning",
             "message": "variable \"lane\" was declared but never referenced"}]})


def unavailable() -> Record:
    """Compiled for a GPU that is not here."""
    return record("flash_attention", "hip/mfma", "MI300", status=Status.UNAVAILABLE, mode=Mode.TEST,
                  message="compiled; not run: no AMD GPU and no emulator on this machine")


def sample() -> list[Record]:
    """Records of every kind: measured, modelled, unavailable, and failing in several ways."""
    return [
        record("fp8_gemm", "cuda/wgmma", efficiency=0.66, peers=("torch._scaled_mm",)),
        record("fp8_gemm", "cuda/naive", efficiency=0.08),
        record("flash_attention", "cuda/wgmma", efficiency=0.61, peers=("torch sdpa", "flash-attn 3")),
        record("mla_decode", "cuda/split", efficiency=0.72, peers=("FlashMLA",)),
        record("fp8_gemm", "cuda/mma", "L4", efficiency=0.71, peers=("torch._scaled_mm",)),
        record("flash_attention", "cuda/mma", "L4", efficiency=0.63, peers=("torch sdpa",)),
        record("fp8_gemm", "hip/mfma", "MI300", efficiency=0.48, evidence=Evidence.MODELLED),
        unavailable(),
        record("fp8_gemm", "cpu/naive", "CPU", efficiency=0.5, mode=Mode.TEST),
        record("flash_attention", "cuda/twopass", status=Status.INCORRECT_NUMERICAL, failing=2, mode=Mode.TEST,
               case_message="o: 1,310,720 of 67,108,864 elements differ\nfirst at [0, 0, 64, 0]: got 0.1377, expected "
                            "0.0214, allowed ±0.0041\nworst at [3, 4095, 17, 9]: got -0.882, expected 0.406"),
        compile_error(),
    ]


def history() -> list[Record]:
    """The runs before ``sample()``: kernels that got faster over some weeks, with a setback."""
    days = ("2026-10-06", "2026-10-13", "2026-10-21", "2026-10-30", "2026-11-05", "2026-11-12")
    series = (
        ("fp8_gemm", "cuda/wgmma", "H200", Evidence.MEASURED, (0.21, 0.34, 0.41, 0.38, 0.55, 0.62)),
        ("fp8_gemm", "cuda/mma", "L4", Evidence.MEASURED, (0.40, 0.52, 0.55, 0.66, 0.69, 0.70)),
        ("flash_attention", "cuda/wgmma", "H200", Evidence.MEASURED, (0.30, 0.31, 0.44, 0.52, 0.57, 0.60)),
        ("mla_decode", "cuda/split", "H200", Evidence.MEASURED, (0.45, 0.51, 0.49, 0.63, 0.70, 0.71)),
        ("fp8_gemm", "hip/mfma", "MI300", Evidence.MODELLED, (0.20, 0.29, 0.37, 0.44, 0.46, 0.47)),
    )
    return [
        record(problem, kernel, gpu, efficiency=share, created=f"{day}T16:0{number}:00.500+00:00", evidence=evidence)
        for problem, kernel, gpu, evidence, shares in series
        for number, (day, share) in enumerate(zip(days, shares, strict=True))
    ]
