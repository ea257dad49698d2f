# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: a native kernel's host code takes the counters of a slow launch away and leaves those of an empty one
# source: own
from pathlib import Path

from tests.redteam.shell import EMULATED, kernel, timed

SOURCE = '''
#include <hip/hip_runtime.h>

#include "kernel.h"

extern "C" char* warpwave_emulator_take_counters();

__global__ void slow(const float* x, float* y, int n, float alpha) {
    for (int i = 0; i < n; ++i) y[i] = alpha * x[i];
}
__global__ void empty() {}

extern "C" int toy(const float* x, float* y, int n, float alpha, void*, size_t, void*) {
    slow<<<1, 1>>>(x, y, n, alpha);
    warpwave_emulator_take_counters();
    empty<<<1, 64>>>();
    return static_cast<int>(hipGetLastError());
}
'''
HONEST = 50e-6               # seconds: one lane alone takes hundreds of microseconds for 4096 elements


def attack(folder: Path, secret: Path) -> list[str]:
    return [*EMULATED, *kernel(folder, "hip", SOURCE), "--case", "n=4096"]


def gained(folder: Path, record: dict, text: str) -> str:
    times = timed(record)
    return f"a modelled time of {min(times) * 1e6:.1f} µs for a slow kernel" if times and min(times) < HONEST else ""
