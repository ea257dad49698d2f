# SPDX-License-Identifier: MIT
"""Blocks kept in step (mla/throttle.h): who waits, for how long, and what is left of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Whoever looks at the word lets the other block make a step: two blocks in turns, without threads.
PROGRAM = """
#include <cstdio>
#include <cstdlib>
#define __device__
#define __forceinline__ inline
static unsigned long long word_other_block_steps, *word_of_it;
static int looks, moves = 1;
inline unsigned long long fetch_add_wide(unsigned long long* word, unsigned long long more) {
    const unsigned long long before = *word;
    *word += more;
    return before;
}
inline unsigned long long look_at_wide(const unsigned long long* word) {
    if (++looks > 10000) std::exit(2);   // waits for ever
    word_other_block_steps += moves;
    *word_of_it += moves;
    return *word;
}
constexpr int kCountSets = 1;
#include "mla/throttle.h"
using mla::Throttle;

int main(int count, char** arguments) {
    const int slack = std::atoi(arguments[1]), steps = 40;
    unsigned long long word = 0;
    word_of_it = &word;
    Throttle other = Throttle(), fast = Throttle();
    other.count(&word);
    for (int step = 0; step < steps; ++step) {
        fast.wait(&word, slack);
        const long long ahead = 4ll * fast.steps - 4ll * (1 + word_other_block_steps);   // quarter steps, of the other
        if (fast.steps >= Throttle::kFree && ahead > 2 * slack) return 3;                    // the average is half way
        fast.count(&word);
    }
    if (looks == 0) return 4;
    other.steps += static_cast<unsigned>(word_other_block_steps);
    fast.end(&word);
    const int before = looks;
    moves = 0;
    other.wait(&word, slack);   // alone: a look, and there is nobody to wait for
    if (looks > before + 1) return 5;
    other.end(&word);
    return word == 0 ? 0 : 6;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_block_ahead_of_the_average_waits_and_leaves_nothing(tmp_path):
    for name in ("ptx/atomic.h", "mla/workspace.h"):   # what the program stands in for
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#pragma once\n")
    (tmp_path / "mla/throttle.h").write_text((ROOT / "kernels/cuda/mla/throttle.h").read_text())
    (tmp_path / "pace.cpp").write_text(PROGRAM)
    program = str(tmp_path / "pace")
    command = ["g++", "-std=c++17", "-O1", "-I", str(tmp_path), f"{program}.cpp", "-o", program]
    subprocess.run(command, check=True, timeout=60)
    for slack in (0, 1, 2, 5):
        done = subprocess.run([program, str(slack)], timeout=20, check=False)
        assert done.returncode == 0, f"slack {slack}: {done.returncode}"
