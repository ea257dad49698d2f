# SPDX-License-Identifier: MIT
"""How fast an emulator runs on this machine: prints the first tables of benchmarks/emulator.md.

    python benchmarks/tools/emulator_speed.py [--gpu MI300|H100|L4] [--threads 1,2,4] [--rounds 3] [--check]

The launch is fp8_gemm 1024×1536×7168, 22.5 GFLOP, by the problem's kernel for that GPU. Times are the best of some
rounds, of the call alone: the data is there and the kernel compiled and translated. The second table counts CPU seconds
of all threads, which other programs disturb less. ``--check`` compares the results with the reference, once.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from emulated import Emulator, Kernel

M, N, K = 1024, 1536, 7168
FLOPS = 2 * M * N * K
CUDA_CHECKS = ("uninitialised", "shared-race", "proxy-fence", "in-flight", "global-race", "grid-order")
KERNELS = {          # of each GPU, with the checks that can be switched
    "MI300": ("hip/fp8_gemm/mfma.hip",
              ("bounds", "misaligned", "uninitialised", "lds-race", "waitcnt", "barrier", "hazard", "global-race")),
    "H100": ("cuda/fp8_gemm/wgmma_tma.cu", CUDA_CHECKS),
    "L4": ("cuda/fp8_gemm/mma_sync.cu", CUDA_CHECKS),
}


def _say(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=KERNELS, default="MI300")
    parser.add_argument("--library", type=Path, help="the emulator; without it, it is built")
    parser.add_argument("--threads", default="", help="numbers of CPU threads; the last one also for the second table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    threads = [int(each) for each in options.threads.split(",") if each] or sorted({1, min(2, cores), cores})
    emulator = Emulator(options.library, options.gpu)
    path, checks = KERNELS[options.gpu]
    kernel = Kernel(emulator, path)

    emulator.set(checks="none", threads=threads[-1], counters=1)
    kernel.run(check=options.check, m=M, n=N, k=K)
    launches = emulator.counters()
    field = "host_instructions" if options.gpu == "MI300" else "instructions"
    instructions = sum(each[field] for each in launches)
    _say(f"{path}: {instructions:,} instructions of waves or warps in {len(launches)} launches, "
         f"{FLOPS / 1e9:.1f} GFLOP; {cores} cores")

    def best(**settings: object) -> tuple[float, float]:
        """Seconds and CPU seconds, each the least of all rounds."""
        emulator.set(**{"checks": "none", "threads": threads[-1], "counters": 0, **settings})
        times = [(kernel.run(m=M, n=N, k=K), kernel.cpu_seconds) for _ in range(options.rounds)]
        emulator.findings()
        return min(wall for wall, _ in times), min(cpu for _, cpu in times)

    _say("\n| threads | seconds | CPU seconds | million instructions/s | GFLOP/s | per CPU second | speed-up |")
    _say("|---|---|---|---|---|---|---|")
    first = 0.0
    for count in threads:
        time, cpu = best(threads=count)
        first = first or time
        rates = f"{instructions / time / 1e6:.2f} | {FLOPS / time / 1e9:.2f} | {FLOPS / cpu / 1e9:.2f} GFLOP"
        _say(f"| {count} | {time:.2f} | {cpu:.2f} | {rates} | {first / time:.2f} |")

    _, plain = best()
    _say(f"\n| with, on {threads[-1]} threads | CPU seconds | times as many |\n|---|---|---|")
    _say(f"| nothing | {plain:.2f} | 1.00 |")
    for name in (*checks, "all"):
        _, time = best(checks=name)
        _say(f"| {'all checks' if name == 'all' else 'check ' + name} | {time:.2f} | {time / plain:.2f} |")
    _, time = best(counters=1)
    emulator.counters()
    _say(f"| counters | {time:.2f} | {time / plain:.2f} |")
    if options.gpu != "MI300":
        return
    _, time = best(counters=1, sample=16)
    emulator.set(sample=0)
    _say(f"| counters, a sample of 16 workgroups | {time:.2f} | {time / plain:.2f} |")


if __name__ == "__main__":
    main()
