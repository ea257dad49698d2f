# SPDX-License-Identifier: MIT
"""amd_mla_decode on the GPU that is here: checked, then timed beside the plain absorbed form of torch.

    python benchmarks/dev/layer_race.py [--library FILE] [--compile] [--parts] [--profile] [PREFILL ...]

Every contestant is captured in graphs, one per set of inputs; sets take turns, so that weights and cache (1 GB and
more) are never in L2 when a call begins. Prints microseconds: the median of all rounds, the fastest, and the SM clock.
``--library``: the kernel file built as a shared library. ``--parts``: the plain form's products by themselves.
``--packed FILE`` looks at a packed submission instead.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "problems" / "amd_mla_decode"), str(ROOT / "problems"),
                str(ROOT / "benchmarks" / "peers" / "amd_mla_decode")]

import binding  # noqa: E402
import reference  # noqa: E402
import torch_absorbed  # noqa: E402
from utils import examine  # noqa: E402

SETS = 3


def native(path: str) -> Any:
    """``custom_kernel`` of a built kernel file, with workspace and outputs of its own per call."""
    function = ctypes.CDLL(str(Path(path).resolve())).amd_mla_decode
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer] * 9 + [integer] * 5 + [pointer, ctypes.c_size_t, pointer]
    room: dict[int, torch.Tensor] = {}

    def call(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
        case = binding.case_of(data)
        given = binding.arguments(case, data)
        y, row = (torch.full(shape, torch.nan, dtype=torch.bfloat16, device="cuda")
                  for shape, _ in binding.outputs(case).values())
        size = binding.workspace_bytes(case)
        if size not in room:
            room[size] = torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda")
        tensors = [given[name] for name in ("x", "q_down", "q_up", "kv_down", "kv_up", "wo", "kv_cache")] + [y, row]
        numbers = [given[name] for name in ("batch", "dim", "q_rank", "length", "max_len")]
        status = function(*(t.data_ptr() for t in tensors), *numbers, room[size].data_ptr(), size,
                          torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"amd_mla_decode returned {status}")
        return y, row
    return call


def packed(path: str) -> Any:
    """``custom_kernel`` of a packed file, which is built when it is imported."""
    spec = importlib.util.spec_from_file_location("packed_layer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.custom_kernel


def as_in_the_challenge(function: Any) -> Any:
    """Gives ``function`` the challenge's kind of objects, and this problem's outputs back."""
    def call(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
        config, x, kv_cache = data
        at = config["prefill"]
        y, cache = function((SimpleNamespace(**config), x, SimpleNamespace(data=kv_cache, seq_len=at)))
        assert cache is kv_cache
        return y, cache[:, at : at + 1].clone()
    return call


def check(name: str, function: Any, cases: list[dict[str, int]]) -> bool:
    good = True
    for case in cases:
        data = reference.generate_input(**case, seed=11, device="cuda")
        wanted = reference.expected(data, 256, seed=3) if case["batchsize"] > 8 else reference.expected(data)
        before = data[2].clone()
        got = function(data)
        torch.cuda.synchronize()
        said = [examine(one, out) for one, out in zip(wanted, got, strict=True)]
        at = case["prefill"]
        appended = torch.equal(data[2][:, at], got[1][:, 0])
        before[:, at] = data[2][:, at]
        kept = torch.equal(before.view(torch.int16), data[2].view(torch.int16))
        wrong = [str(mismatch) for _, mismatch in said if mismatch]
        shares = ", ".join(f"{share:.2f}" for share, _ in said)
        print(f"{name:16s} {list(case.values())} shares {shares} appended {appended} kept {kept} {wrong}", flush=True)
        good = good and not wrong and appended and kept
        del data, before
    return good


def clock() -> str:
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def capture(function: Any, sets: list[Any]) -> list[Any]:
    graphs = []
    for data in sets:
        for _warm in range(2):
            function(data)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            keep = function(data)
        graphs.append((graph, keep))
    return graphs


def launched(contestants: dict[str, Any], prefill: int) -> None:
    """Calls one by one, without graphs, between events: how a leaderboard times them, launches and all."""
    case = {"batchsize": 128, "dim": 7168, "dq": 1536, "prefill": prefill}
    sets = [reference.generate_input(**case, seed=seed, device="cuda") for seed in range(SETS)]
    for name, function in contestants.items():
        times = []
        for turn in range(24):
            begin, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            function(sets[turn % SETS])
            stop.record()
            stop.synchronize()
            times.append(begin.elapsed_time(stop) * 1e3)
        print(f"  launched {name:24s} prefill {prefill} median {statistics.median(times[6:]):8.1f}", flush=True)


def race(contestants: dict[str, Any], prefill: int, seconds: float) -> None:
    case = {"batchsize": 128, "dim": 7168, "dq": 1536, "prefill": prefill}
    sets = [reference.generate_input(**case, seed=seed, device="cuda") for seed in range(SETS)]
    ready: dict[str, Any] = {}
    for name, function in contestants.items():
        try:
            ready[name] = capture(function, sets)
        except Exception as error:       # noqa: BLE001 - the others go on
            print(f"{name}: cannot be captured: {str(error)[:300]}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in ready}
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end or turn < 12:
        for name, graphs in ready.items():
            begin, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph = graphs[turn % SETS][0]
            torch.cuda.synchronize()
            begin.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            times[name].append(begin.elapsed_time(stop) * 1e3)
        turn += 1
    floor = binding.bytes_moved(case) / 4.8e12 * 1e6, binding.flops(case) / 989.4e12 * 1e6
    print(f"prefill {prefill}: bytes {floor[0]:.0f} us, products {floor[1]:.0f} us at the data sheet's; SM {clock()}")
    for name, values in times.items():
        values = values[3:]
        print(f"  {name:24s} median {statistics.median(values):8.1f}  fastest {min(values):8.1f}  of {len(values)}",
              flush=True)


def profile(contestants: dict[str, Any], prefill: int) -> None:
    """Microseconds by kernel, sets in turn, as the profiler's activity records have them."""
    case = {"batchsize": 128, "dim": 7168, "dq": 1536, "prefill": prefill}
    sets = [reference.generate_input(**case, seed=seed, device="cuda") for seed in range(SETS)]
    for name, function in contestants.items():
        for data in sets:
            function(data)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
            for turn in range(2 * SETS):
                function(sets[turn % SETS])
            torch.cuda.synchronize()
        found = [event for event in recorded.key_averages() if event.device_time_total > 0]
        print(f"  {name}, prefill {prefill}: {sum(e.device_time_total for e in found) / (2 * SETS):.1f} us in kernels")
        for event in sorted(found, key=lambda e: -e.device_time_total)[:16]:
            each = event.device_time_total / (2 * SETS)
            print(f"    {each:7.1f}  x{event.count / (2 * SETS):.0f}  {event.key[:100]}")
    sys.stdout.flush()


def parts(prefill: int) -> None:
    """The products of the plain form, each by itself, weights not in L2."""
    sets = [reference.generate_input(batchsize=128, dim=7168, dq=1536, prefill=prefill, seed=s, device="cuda")
            for s in range(SETS)]
    rest = {rows: torch.randn(128, rows, device="cuda").bfloat16() for rows in (7168, 1536, 16384)}
    q = torch.randn(128, 128, 192, device="cuda").bfloat16()
    o = torch.randn(128, 128, 512, device="cuda").bfloat16()
    maps = [data[0]["KV_proj_up_weight"].view(128, 256, 512) for data in sets]
    key = {name: f"{name}_weight" for name in ("Q_proj_down", "KV_proj_down", "Q_proj_up", "wo")}
    width = {"Q_proj_down": 7168, "KV_proj_down": 7168, "Q_proj_up": 1536, "wo": 16384}
    todo = {name: [lambda s=s, name=name: rest[width[name]] @ sets[s][0][key[name]].T for s in range(SETS)]
            for name in key}
    todo["absorb"] = [lambda s=s: torch.bmm(q[..., :128].transpose(0, 1), maps[s][:, :128]) for s in range(SETS)]
    todo["values"] = [
        lambda s=s: torch.bmm(o.transpose(0, 1), maps[s][:, 128:].transpose(1, 2)) for s in range(SETS)]
    spoil = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    for name, calls in todo.items():
        graphs = capture(lambda call: call(), calls)
        times = []
        for turn in range(24):
            spoil.fill_(turn)
            begin, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graphs[turn % SETS][0].replay()
            stop.record()
            stop.synchronize()
            times.append(begin.elapsed_time(stop) * 1e3)
        print(f"  {name:16s} {statistics.median(times[4:]):7.1f} us", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("prefill", type=int, nargs="*", default=[4096, 6144])
    parser.add_argument("--library", action="append", default=[])
    parser.add_argument("--packed", help="a packed file: checked with both kinds of data, timed without graphs")
    parser.add_argument("--small", action="store_true", help="only the small cases, and no times")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--quick-check", action="store_true", help="one case of each contestant only")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    gpu.need()
    small = [dict(zip(("batchsize", "dim", "dq", "prefill"), numbers, strict=True)) for numbers in (
        (2, 256, 128, 64), (1, 128, 64, 1), (3, 192, 64, 191), (2, 256, 192, 500), (128, 7168, 1536, 128),
        (128, 7168, 1536, 1024), (128, 7168, 1536, 6144))]
    if options.small:
        small = small[:4]
    contestants: dict[str, Any] = {}
    for path in options.library:
        name = Path(path).stem
        if check(name, native(path), small[-2:-1] if options.quick_check else small):
            contestants[name] = native(path)
    if options.packed:
        function = packed(options.packed)
        check("packed", function, small)
        if check("challenge", as_in_the_challenge(function), small[-1:]) and not options.small:
            for prefill in options.prefill:
                launched({**contestants, "packed": function, "torch": torch_absorbed.custom_kernel}, prefill)
        return
    if options.check_only or options.small:
        return
    if check("torch", torch_absorbed.custom_kernel, small[-2:-1] if options.quick_check else small[-3:]):
        contestants["torch eager"] = torch_absorbed.custom_kernel
    if options.compile:
        compiled = torch.compile(torch_absorbed.layer, dynamic=False)

        def custom_kernel(data: Any) -> Any:
            config, x, kv_cache = data
            cos, sin = torch_absorbed._rotations(kv_cache.shape[1], x.device)
            names = ("Q_proj_down", "Q_proj_up", "KV_proj_down", "KV_proj_up", "wo")
            y, row = compiled(x[:, 0], *(config[f"{name}_weight"] for name in names), kv_cache, cos, sin,
                              config["prefill"])
            return y[:, None], row[:, None]

        started = time.monotonic()
        if check("torch.compile", custom_kernel, [{**small[-1], "prefill": options.prefill[0]}]):
            contestants["torch.compile"] = custom_kernel
        print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)
    if options.parts:
        parts(options.prefill[0])
    if options.profile:
        profile(contestants, options.prefill[-1])
    for prefill in options.prefill:
        race(contestants, prefill, options.seconds)


if __name__ == "__main__":
    main()
