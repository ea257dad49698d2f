# SPDX-License-Identifier: MIT
"""One launch has one modelled time: in every process, at any addresses, on any number of threads, for any values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.emulator import build
from tests.emulator import assembled, runtime

# Two arrays whose lines do not both fit into the L1; which of them meet there depends on where they lie.
READS = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    v_lshlrev_b32 v1, 8, v0
    s_lshl_b32 s8, s2, 7
    v_add_u32 v1, s8, v1
    s_mov_b32 s20, 60
  again:
    global_load_dword v2, v1, s[4:5]
    global_load_dword v3, v1, s[6:7]
    v_add_u32 v1, 0x180, v1
    v_and_b32 v1, 0x7fff, v1
    s_waitcnt vmcnt(0)
    s_sub_u32 s20, s20, 1
    s_cmp_lg_u32 s20, 0
    s_cbranch_scc1 again
"""
# All workgroups but the first wait for what the first one stores.
WAITS = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc0 again
    s_mov_b32 s20, 3000
  works:
    s_sub_u32 s20, s20, 1
    s_cmp_lg_u32 s20, 0
    s_cbranch_scc1 works
    global_store_dword v1, v2, s[4:5] sc1
    s_endpgm
  again:
    global_load_dword v3, v1, s[4:5] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s8, v3
    s_cmp_eq_u32 s8, 1
    s_cbranch_scc0 again
"""
# What one fresh process does: buffers at addresses of its own, values of its own.
PROCESS = """
import ctypes, json, sys
import numpy as np
from tests.emulator import assembled, runtime

library, code, grid, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
hip = runtime.Hip(library)
random = np.random.default_rng(seed)
memory = random.integers(1, 1 << 31, (4 << 20) // 4, dtype=np.uint32)
buffers = []
for place in (seed * 5000, 2_000_000 - seed * 7000):
    begin = memory.ctypes.data + place
    first = (place + -begin % 64) // 4
    buffers.append(memory[first : first + 16384 + 32])
    hip.library.warpwave_emulator_register(
        ctypes.c_void_p(buffers[-1].ctypes.data), ctypes.c_size_t(buffers[-1].nbytes), b"buffer")
    if "waits" in code:
        buffers[-1][:] = 0
assembled.launch(hip, open(code, "rb").read(), grid, 64, buffers)
(counted,) = assembled.take_counters(hip)
print(json.dumps({key: counted[key] for key in ("modelled_us", "model", "instructions", "global")}))
"""


def launched(library: Path, code: Path, grid: int, seed: int, threads: int) -> dict[str, Any]:
    options = f"counters=1,threads={threads},slice=200"        # short, so that workgroups take turns
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(library), str(code), str(grid), str(seed)], cwd=runtime.ROOT, text=True,
        env={**os.environ, "WARPWAVE_EMULATOR": options}, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(("name", "body", "grid"), [("reads", READS, 13), ("waits", WAITS, 64)])
def test_a_launch_has_one_modelled_time(tmp_path: Path, name: str, body: str, grid: int) -> None:
    library = runtime.built(build.library)
    code = tmp_path / f"{name}.hsaco"
    code.write_bytes(assembled.code_object(body, tmp_path, 2))
    found = [launched(library, code, grid, seed, threads) for seed, threads in enumerate((1, 2, 3, 4, 1))]
    assert all(each == found[0] for each in found[1:]), [each["modelled_us"] for each in found]
