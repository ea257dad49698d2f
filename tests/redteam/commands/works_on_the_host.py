# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: the host computes the answer, as the emulated device's memory is its own, and a kernel stores it from arguments
# source: own
from pathlib import Path

from tests.redteam.shell import EMULATED, kernel, timed

SOURCE = '''
#include <hip/hip_runtime.h>

#include "kernel.h"

struct Answer {
    float value[64];
};
__global__ void store(Answer answer, float* y) { y[threadIdx.x] = answer.value[threadIdx.x]; }

extern "C" int toy(const float* x, float* y, int n, float alpha, void*, size_t, void*) {
    Answer answer;
    for (int i = 0; i < n; i += 64) {
        for (int k = 0; k < 64; ++k) answer.value[k] = alpha * x[i + k];
        store<<<1, 64>>>(answer, y + i);
    }
    return static_cast<int>(hipGetLastError());
}
'''


def attack(folder: Path, secret: Path) -> list[str]:
    return [*EMULATED, *kernel(folder, "hip", SOURCE), "--case", "n=64"]


def gained(folder: Path, record: dict, text: str) -> str:
    return "a modelled time for work that the host did" if timed(record) else ""
