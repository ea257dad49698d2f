# SPDX-License-Identifier: MIT
"""Operands for the FP8 products, and races between implementations: for the scripts of this folder.

Times are medians of CUDA-graph replays that rotate over more than twice the L2 cache, contestants in turns.
"""

from __future__ import annotations

import math
import statistics

import torch
from graphs import capture

GUARD = 256                 # elements of poison on either side of c
POISON = 0x7FA5             # a bf16 NaN no kernel would write
WORKSPACE = 144 << 20       # bytes offered to the kernels: 64 MiB of planes and copies of the largest operands timed


_workspace: list[torch.Tensor] = []


def workspace() -> torch.Tensor:
    if not _workspace:
        _workspace.append(torch.full((WORKSPACE // 4,), math.nan, device="cuda"))
    return _workspace[0]


class Data:
    """Operands in the problem's layouts, signed heavy-tailed scales with zeros and tiny ones, and a poisoned output."""

    def __init__(self, m: int, n: int, k: int, seed: int, problem: str, plain_scales: bool = False):
        generator = torch.Generator("cuda").manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device="cuda", generator=generator)

        self.sizes = (m, n, k)
        self.a, self.b = normal(m, k).to(torch.float8_e4m3fn), normal(n, k).to(torch.float8_e4m3fn)
        self.a_scale, self.b_scale = normal(m, k // 128), normal(-(-n // 128), k // 128)
        if plain_scales:
            self.a_scale, self.b_scale = self.a_scale.abs() + 0.1, self.b_scale.abs() + 0.1
        else:
            for scale in (self.a_scale, self.b_scale):
                scale.mul_(torch.exp2(3 * normal(*scale.shape)))
                scale[normal(*scale.shape) > 1.5] = 0.0
                scale[normal(*scale.shape) > 1.5] *= 1e-12
        amd = self.outermost = problem == "amd_fp8_mm"
        self.held = [   # in the kernel's layouts; kept alive here
            (self.a.t() if amd else self.a).contiguous(),
            (self.b.t() if amd else self.b).contiguous(),
            self.a_scale.t().contiguous(),
            (self.b_scale.t() if amd else self.b_scale).contiguous(),
        ]
        self.store = torch.full((m * n + 2 * GUARD,), POISON, device="cuda", dtype=torch.int16)

    def pointers(self) -> tuple[int, ...]:
        return (*(tensor.data_ptr() for tensor in self.held), self.store.data_ptr() + 2 * GUARD)

    def c(self) -> torch.Tensor:
        m, n, _ = self.sizes
        return self.store[GUARD:-GUARD].view(torch.bfloat16).view(m, n)

    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[m, n] float64 each: the product and the allowed difference.

        2^-12 of the sum of magnitudes: wgmma's 13-bit adder strays past 2^-13 of it in about one of 10^7 elements.
        """
        m, n, k = self.sizes
        a = (self.a.double().view(m, -1, 128) * self.a_scale.double()[:, :, None]).view(m, k)
        rows = self.b_scale.double().repeat_interleave(128, 0)[:n]
        b = (self.b.double().view(n, -1, 128) * rows[:, :, None]).view(n, k)
        value = a @ b.t()
        return value, value.abs() * 2.0**-8 + 2.0**-12 * (a.abs_() @ b.abs_().t())


def race(contestants: dict[str, list], rounds: int, least_calls: int = 1) -> dict[str, float]:
    """Median microseconds per call; one graph replay per contestant and round, in turns. Declined ones are left out.

    A graph has at least ``least_calls`` calls, the buffers in turns again and again: from event to event a graph of one
    empty call takes 7.4 us and each further one adds 0.85; short calls of which few fill the cache would pay for that.
    """
    graphs = {}
    for name, once in contestants.items():
        calls = once * -(-least_calls // len(once))
        try:
            graphs[name] = (capture(calls), len(calls))
        except (RuntimeError, ValueError, AttributeError) as error:
            torch.cuda.synchronize()
            if "status -1" not in str(error):
                UNAVAILABLE.setdefault(name, str(error).splitlines()[0][:160])
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(rounds):
        # Each round starts with another one: on a card that throttles, whoever follows a light one is at an advantage.
        first = turn % max(1, len(graphs))
        for name, (graph, calls) in [*graphs.items()][first:] + [*graphs.items()][:first]:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / calls)
    return {name: statistics.median(values) for name, values in times.items()}


UNAVAILABLE: dict[str, str] = {}


def torch_calls(sets: list[Data]) -> dict[str, list]:
    """torch's block-scaled and row-wise products on the same operands (n padded to whole scale groups).

    For amd_fp8_mm "copied" is the block-scaled one after torch has transposed both operands.
    """
    import torch.nn.functional as F

    block, row, copied = [], [], []
    for data in sets:
        m, n, k = data.sizes
        padded = -(-n // 128) * 128
        b = data.b if padded == n else torch.cat([data.b, data.b[: padded - n]])
        a_scale = data.a_scale.t().contiguous().t()
        b_scale = F.pad(data.b_scale, (0, -(k // 128) % 4), value=1.0).contiguous().t()
        ones_m, ones_n = torch.ones(m, 1, device="cuda"), torch.ones(1, padded, device="cuda")

        def blockwise(a=data.a, b=b, sa=a_scale, sb=b_scale):
            one, square = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
            return F.scaled_mm(a, b.t(), sa, one, sb, square, output_dtype=torch.bfloat16)

        def rowwise(a=data.a, b=b, sa=ones_m, sb=ones_n):
            return torch._scaled_mm(a, b.t(), scale_a=sa, scale_b=sb, out_dtype=torch.bfloat16)

        def transposing(a=data.held[0], b=data.held[1], padding=padded - n, run=blockwise):
            rows = b.view(torch.uint8).t().contiguous()
            rows = torch.cat([rows, rows[:padding]]) if padding else rows
            return run(a.view(torch.uint8).t().contiguous().view(a.dtype), rows.view(b.dtype))

        block.append(blockwise)
        row.append(rowwise)
        copied.append(transposing)
    return {"block": block, "row": row} | ({"copied": copied} if sets[0].outermost else {})


def deepgemm_calls(sets: list[Data]) -> dict[str, list]:
    """DeepGEMM's block-scaled product on the same operands, without and with its programmatic launches; none if it is
    not installed. The switch is read when a call is captured, so that each call sets it."""
    try:
        import deep_gemm
    except ImportError as error:
        UNAVAILABLE.setdefault("deepgemm", str(error).splitlines()[0][:160])
        return {}

    calls: dict[str, list] = {"deepgemm": [], "deepgemm early": []}
    for data in sets:
        a_scale = deep_gemm.get_mn_major_tma_aligned_tensor(data.a_scale)
        out = torch.empty_like(data.c())
        for name, early in (("deepgemm", False), ("deepgemm early", True)):
            def product(data=data, a_scale=a_scale, out=out, early=early):
                deep_gemm.set_pdl(early)
                deep_gemm.fp8_gemm_nt((data.a, a_scale), (data.b, data.b_scale), out)

            calls[name].append(product)
    return calls


def rotating(size: tuple[int, int, int], problem: str) -> list[Data]:
    m, n, k = size
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    count = max(2, min(24, math.ceil(2.2 * cache / (m * k + n * k + 2 * m * n))))
    return [Data(*size, seed=i, problem=problem, plain_scales=True) for i in range(count)]
