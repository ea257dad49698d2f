# SPDX-License-Identifier: MIT
"""How fast the emulator runs on this machine: prints the first tables of benchmarks/emulator.md.

    python benchmarks/tools/emulator_speed.py [--library FILE] [--threads 1,2,4] [--rounds 3] [--check]

The launch is fp8_gemm 1024×1536×7168, 22.5 GFLOP, by kernels/hip/fp8_gemm/mfma.hip. Times are the best of some rounds,
of the call alone: the data is there and the kernel compiled and translated. The second table counts CPU seconds of all
threads, which other programs disturb less. ``--check`` compares the results with the reference, once.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from emulated import Emulator, Kernel

M, N, K = 1024, 1536, 7168
FLOPS = 2 * M * N * K
CHECKS = ("bounds", "misaligned", "uninitialised", "lds-race", "waitcnt", "barrier", "hazard", "global-race")


def _say(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, help="libamdhip64.so; without it, it is built")
    parser.add_argument("--threads", default="", help="numbers of CPU threads; the last one also for the second table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    threads = [int(each) for each in options.threads.split(",") if each] or sorted({1, min(2, cores), cores})
    emulator = Emulator(options.library)
    kernel = Kernel(emulator, "fp8_gemm")

    emulator.set(checks="none", threads=threads[-1], counters=1)
    kernel.run(check=options.check, m=M, n=N, k=K)
    launches = emulator.counters()
    instructions = sum(each["host_instructions"] for each in launches)
    _say(f"{instructions:,} wave-instructions in {len(launches)} launches, {FLOPS / 1e9:.1f} GFLOP; {cores} cores")

    def best(**settings: object) -> tuple[float, float]:
        """Seconds and CPU seconds, each the least of all rounds."""
        emulator.set(**{"checks": "none", "threads": threads[-1], "counters": 0, **settings})
        times = [(kernel.run(m=M, n=N, k=K), kernel.cpu_seconds) for _ in range(options.rounds)]
        emulator.findings()
        return min(wall for wall, _ in times), min(cpu for _, cpu in times)

    _say("\n| threads | seconds | CPU seconds | million wave-instr./s | MFMA GFLOP/s | per CPU second | speed-up |")
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
    for name in (*CHECKS, "all"):
        _, time = best(checks=name)
        _say(f"| {'all checks' if name == 'all' else 'check ' + name} | {time:.2f} | {time / plain:.2f} |")
    _, time = best(counters=1)
    emulator.counters()
    _say(f"| counters | {time:.2f} | {time / plain:.2f} |")
    _, time = best(counters=1, sample=16)
    emulator.set(sample=0)
    _say(f"| counters, a sample of 16 workgroups | {time:.2f} | {time / plain:.2f} |")


if __name__ == "__main__":
    main()
