# SPDX-License-Identifier: MIT
"""How fast kernels/cuda/tile/transpose_bytes.h is beside a plain copy, on a machine with an NVIDIA GPU, torch and nvcc.

    python benchmarks/dev/transpose_speed.py

Operands of the 18 challenge products, both in one launch, checked against torch, then timed as gemm_race.py times: cold
cache, graph replays, in turns. Rates count bytes read and written.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import gpu
import torch
from gemm_race import race

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = (2, 4, 8)
SHAPES = [
    (m, n, k)
    for m in (1024, 6144)
    for n, k in (
        (1536, 7168), (3072, 1536), (576, 7168), (7168, 256), (7168, 2048), (4608, 7168), (7168, 2304), (512, 7168),
        (4096, 512),
    )
]
SOURCE = r"""
#include "tile/transpose_bytes.h"
extern "C" int transpose(
    const uint8_t* a, uint8_t* a_copy, const uint8_t* b, uint8_t* b_copy, int m, int n, int k, void* queue) {
    return launch_transpositions({a, a_copy, m, k}, {b, b_copy, n, k}, true, queue);
}
"""


def build(folder: Path) -> dict[int, ctypes.CDLL]:
    source = folder / "transpose.cu"
    source.write_text(SOURCE)
    major, minor = torch.cuda.get_device_capability()
    native = f"{major}{minor}{'a' if major == 9 else ''}"
    jobs = []
    for chunks in CHUNKS:
        library = folder / f"{chunks}.so"
        jobs.append((chunks, library, subprocess.Popen([
            os.environ.get("NVCC", "nvcc"), "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-Xcompiler",
            "-fPIC,-fno-gnu-unique", "-shared", "-cudart", "static", "-gencode",
            f"arch=compute_{native},code=sm_{native}", f"-DROW_CHUNKS={chunks}",
            *(f"-I{ROOT / path}" for path in ("kernels/cuda", "kernels/common")), str(source), "-o", str(library),
        ])))
    libraries = {}
    for chunks, library, process in jobs:
        assert process.wait(120) == 0
        libraries[chunks] = ctypes.CDLL(str(library))
        libraries[chunks].transpose.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 3 + [ctypes.c_void_p]
    return libraries


def main() -> None:
    gpu.need()
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    with tempfile.TemporaryDirectory() as folder:
        libraries = build(Path(folder))
        print("M x N x K          MB  " + "  ".join(f"{chunks} chunks us TB/s" for chunks in CHUNKS) + "  copy us TB/s")
        ratios = []
        for m, n, k in SHAPES:
            size = (m + n) * k
            sources = [torch.randint(0, 256, (size,), device="cuda", dtype=torch.uint8)
                       for _ in range(max(2, min(24, math.ceil(2.2 * cache / size))))]
            target = torch.empty(size, device="cuda", dtype=torch.uint8)

            def call(library, source, target=target, m=m, n=n, k=k):
                queue = torch.cuda.current_stream().cuda_stream
                return library.transpose(
                    source.data_ptr(), target.data_ptr(), source.data_ptr() + m * k, target.data_ptr() + m * k, m, n, k,
                    queue)

            for library in libraries.values():
                target.zero_()
                assert call(library, sources[0]) == 0
                a, b = sources[0].split([m * k, n * k])
                wanted = torch.cat([a.view(k, m).t().reshape(-1), b.view(k, n).t().reshape(-1)])
                assert torch.equal(target, wanted), "wrong"
            contestants = {str(c): [partial(call, library, s) for s in sources] for c, library in libraries.items()}
            contestants["copy"] = [partial(target.copy_, s) for s in sources]
            times = race(contestants, 15)
            ratios.append(times["copy"] / times["4"])
            cells = "  ".join(f"{us:7.2f} {2e-6 * size / us:5.2f}" for us in times.values())
            print(f"{m}x{n}x{k:<8} {size / 1e6:6.1f}  {cells}", flush=True)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"copy / transposition (4 chunks), geometric mean: {mean:.2f}")


if __name__ == "__main__":
    main()
