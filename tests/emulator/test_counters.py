# SPDX-License-Identifier: MIT
"""What the emulator counts, on kernels of which every count is known beforehand."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import _occupancy
from tests.emulator import assembled, runtime

Run = Callable[..., dict[str, Any]]


def test_instructions_by_class(run: Run) -> None:
    found = run("""
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_lshlrev_b32 v1, 2, v0
        v_mov_b32 v2, 1.0
        v_mov_b32 v3, 1.0
        s_mov_b32 s6, 3
      again:
        v_exp_f32 v4, v2
        v_pk_add_f32 v[6:7], v[2:3], v[2:3]
        v_add_f64 v[8:9], v[2:3], v[2:3]
        s_sub_u32 s6, s6, 1
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 again
        ds_write_b32 v1, v2
        s_waitcnt lgkmcnt(0)
        global_load_dword v10, v1, s[4:5]
        s_waitcnt vmcnt(0)
        global_store_dword v1, v10, s[4:5]
        global_atomic_add v1, v2, s[4:5]
        s_nop 3
        s_barrier
    """, np.zeros(128, np.int32), block=128, lds=512, grid=3)
    waves = 6
    expected = {"salu": 1 + 2 * 3, "smem": 1, "valu": 3, "transcendental": 3, "packed": 3, "wide64": 3, "mfma": 0,
                "lds": 1, "vmem_load": 1, "vmem_store": 1, "vmem_atomic": 1, "branch": 3, "barrier": 1, "waitcnt": 2,
                "nop": 1, "setprio": 0, "other": 1}
    assert found["classes"] == {name: count * waves for name, count in expected.items()}
    assert found["instructions"] == sum(expected.values()) * waves
    assert (found["workgroups"], found["waves"]) == (3, waves)
    assert found["issue_cycles"]["valu"] == (3 * 4 + 3 * 16 + 3 * 4 + 3 * 4) * waves
    assert found["issue_cycles"]["salu"] == 7 * 4 * waves


MATRIX = [
    ("v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[2:3], v[4:5], a[0:3]", 2 * 16 * 16 * 32, 16),
    ("v_mfma_f32_32x32x16_fp8_fp8 a[0:15], v[2:3], v[4:5], a[0:15]", 2 * 32 * 32 * 16, 32),
    ("v_mfma_f32_16x16x16_bf16 a[0:3], v[2:3], v[4:5], a[0:3]", 2 * 16 * 16 * 16, 16),
    ("v_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15]", 2 * 32 * 32 * 8, 32),
    ("v_mfma_f32_4x4x4_16b_f16 a[0:3], v[2:3], v[4:5], a[0:3]", 2 * 4 * 4 * 4 * 16, 8),
    ("v_mfma_f32_32x32x1_2b_f32 a[0:31], v2, v3, a[0:31]", 2 * 32 * 32 * 1 * 2, 64),
    ("v_mfma_f64_16x16x4_f64 a[0:7], v[2:3], v[4:5], a[0:7]", 2 * 16 * 16 * 4, 32),
    ("v_mfma_i32_32x32x16_i8 a[0:15], v[2:3], v[4:5], a[0:15]", 2 * 32 * 32 * 16, 32),
    ("v_smfmac_f32_16x16x64_fp8_fp8 v[8:11], v[2:3], v[4:7], v12", 2 * 16 * 16 * 64 // 2, 16),
]


@pytest.mark.parametrize(("instruction", "flops", "cycles"), MATRIX, ids=[each[0].split()[0] for each in MATRIX])
def test_matrix_work(run: Run, instruction: str, flops: int, cycles: int) -> None:
    found = run("\n".join([instruction] * 5), grid=2, vgprs=96)
    assert found["classes"]["mfma"] == 10
    assert found["mfma_flops"] == 10 * flops
    (row,) = found["mfma"]
    assert row == {"instruction": instruction.split()[0], "executed": 10, "sparse": "smfmac" in instruction,
                   "flops": 10 * flops, "cycles": 10 * cycles}
    assert found["issue_cycles"]["mfma"] == 10 * cycles


def strided(shift: int, instruction: str) -> str:
    return f"v_lshlrev_b32 v1, {shift}, v0\n{instruction}\ns_waitcnt lgkmcnt(0)"


# Thread i accesses byte i << shift of LDS, which has 32 banks of 4 bytes: cycles, and without conflicts.
LDS = [
    (2, "ds_read_b32 v2, v1", 2, 2),                # 32 threads a cycle
    (3, "ds_read_b32 v2, v1", 4, 2),                # every other bank
    (4, "ds_read_b32 v2, v1", 8, 2),
    (7, "ds_read_b32 v2, v1", 64, 2),               # all in one bank
    (7, "ds_write_b32 v1, v0", 64, 2),
    (1, "ds_read_u16 v2, v1", 2, 2),                # two threads share a word
    (0, "ds_read_u8 v2, v1", 2, 2),
    (3, "ds_read_b64 v[2:3], v1", 4, 4),
    (4, "ds_read_b64 v[2:3], v1", 8, 4),
    (7, "ds_read_b64 v[2:3], v1", 64, 4),
    (4, "ds_read_b128 v[4:7], v1", 8, 8),
    (4, "ds_write_b128 v1, v[4:7]", 8, 8),
    (5, "ds_read_b128 v[4:7], v1", 16, 8),
    (7, "ds_read_b128 v[4:7], v1", 64, 8),
    (2, "ds_read2_b32 v[2:3], v1 offset1:64", 4, 4),
    (7, "ds_read2_b32 v[2:3], v1 offset1:1", 128, 4),
    (2, "ds_add_u32 v1, v0", 2, 2),
    (7, "ds_add_u32 v1, v0", 64, 2),
    (2, "ds_bpermute_b32 v2, v1, v0", 2, 2),        # no addresses: 256 bytes go across
    (5, "ds_bpermute_b32 v2, v1, v0", 2, 2),
]


@pytest.mark.parametrize(("shift", "instruction", "cycles", "least"), LDS)
def test_bank_conflicts_of_strides(run: Run, shift: int, instruction: str, cycles: int, least: int) -> None:
    found = run(strided(shift, instruction), lds=8448)["lds"]
    assert (found["cycles"], found["conflict_free_cycles"]) == (cycles, least)
    assert found["conflict_cycles"] == cycles - least
    listed = [(each["instruction"].split()[0], each["cycles"], each["conflict_free_cycles"])
              for each in found["conflicts"]]
    assert listed == ([(instruction.split()[0], cycles, least)] if cycles > least else [])


def test_offenders_have_a_place_in_the_source(run: Run, tmp_path: Path) -> None:
    body = strided(5, "ds_read_b32 v2, v1") + "\nds_read_b32 v3, v1 offset:64\n" + strided(7, "ds_write_b32 v1, v0")
    found = run(body, lds=8192, grid=3)["lds"]["conflicts"]
    assert [each["cycles"] for each in found] == [3 * 64, 3 * 16, 3 * 16]
    assert [each["executed"] for each in found] == [3, 3, 3]
    lines = (tmp_path / "kernel.s").read_text().splitlines()
    texts = ("ds_write_b32 v1, v0", "ds_read_b32 v2, v1", "ds_read_b32 v3, v1 offset:64")
    for each, text in zip(found, texts, strict=True):
        assert each["instruction"] == text
        assert each["file"].endswith("kernel.s")
        assert lines[each["line"] - 1] == text


def test_one_word_for_all_is_no_conflict_but_for_atomics(run: Run) -> None:
    assert run("v_mov_b32 v1, 0\nds_read_b32 v2, v1", lds=64)["lds"]["cycles"] == 2
    assert run("v_mov_b32 v1, 0\nds_add_u32 v1, v0", lds=64)["lds"]["cycles"] == 64


def test_order_in_which_16_bytes_are_served(run: Run) -> None:
    """Loads take threads 0-3 and 20-23 together, stores 0-7: a layout can suit one and not the other."""
    # Threads 0-3 and 4-7 in the same banks, 20-23 in others: address = 16 (i % 4) + 64 (i / 16 % 2) + 128 (i / 4).
    body = """
        v_and_b32 v1, 3, v0
        v_lshlrev_b32 v1, 4, v1
        v_lshrrev_b32 v2, 4, v0
        v_and_b32 v2, 1, v2
        v_lshl_add_u32 v1, v2, 6, v1
        v_lshrrev_b32 v2, 2, v0
        v_lshl_add_u32 v1, v2, 7, v1
    """
    assert run(body + "ds_read_b128 v[4:7], v1", lds=8192)["lds"]["conflict_cycles"] == 0
    assert run(body + "ds_write_b128 v1, v[4:7]", lds=8192)["lds"]["conflict_cycles"] == 8


def test_lanes_that_are_off_cost_nothing(run: Run) -> None:
    found = run("s_mov_b64 exec, 0xff\n" + strided(7, "ds_read_b32 v2, v1"), lds=8192)["lds"]
    assert (found["cycles"], found["conflict_free_cycles"], found["bytes"]) == (8, 1, 32)


# Thread i accesses byte i << shift of global memory: 128-byte lines.
GLOBAL = [
    (0, "global_load_ubyte v2, v1, s[4:5]", 1, 64),
    (2, "global_load_dword v2, v1, s[4:5]", 2, 256),
    (2, "global_store_dword v1, v0, s[4:5]", 2, 256),
    (4, "global_load_dwordx4 v[4:7], v1, s[4:5]", 8, 1024),
    (5, "global_load_dword v2, v1, s[4:5]", 16, 256),
    (7, "global_load_dword v2, v1, s[4:5]", 64, 256),
    (9, "global_load_dword v2, v1, s[4:5]", 64, 256),
    (2, "global_load_dword v2, v1, s[4:5] offset:64", 3, 256),
]


def aligned(count: int) -> np.ndarray:
    """So many bytes at a multiple of 4096."""
    memory = np.zeros(count + 4096, np.uint8)
    return memory[-memory.ctypes.data % 4096:][:count]


@pytest.mark.parametrize(("shift", "instruction", "lines", "requested"), GLOBAL)
def test_lines_of_strides(run: Run, shift: int, instruction: str, lines: int, requested: int) -> None:
    body = f"s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32 v1, {shift}, v0\n{instruction}"
    found = run(body, aligned(65536))["global"]
    kernarg = 8
    assert found["requested_bytes"] == requested + kernarg
    assert found["lines"] == lines + 1
    wasted = lines * 128 - requested
    listed = [(each["line_bytes"], each["requested_bytes"]) for each in found["uncoalesced"]]
    assert listed == ([(lines * 128, requested)] if wasted else [])


def test_registered_memory_begins_at_a_line(hip: runtime.Hip, run: Run) -> None:
    """As a GPU's allocator would have it; the host's need not."""
    body = "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\nglobal_load_dword v2, v1, s[4:5]"
    odd = aligned(4096)[64:]
    assert run(body, odd)["global"]["lines"] == 3 + 1
    address = ctypes.c_void_p(odd.ctypes.data)
    hip.warpwave_emulator_register(address, ctypes.c_size_t(1024), b"odd")
    assert run(body, odd)["global"]["lines"] == 2 + 1
    hip.warpwave_emulator_unregister(address)


def test_atomics_go_to_the_l2_each_time(run: Run) -> None:
    found = run("""
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_lshlrev_b32 v1, 2, v0
        v_mov_b32 v2, 1
        global_atomic_add v1, v2, s[4:5]
        global_atomic_add v1, v2, s[4:5]
    """, aligned(256))["global"]
    assert (found["lines"], found["lines_beyond_l1"]) == (2 + 2 + 1, 2 + 2 + 1)
    assert (found["loaded_bytes"], found["stored_bytes"]) == (256 + 128, 256)


def test_footprint_counts_a_line_once(run: Run) -> None:
    """Twelve workgroups of three different dies each and their own lines; each line is loaded twice and stored once."""
    found = run("""
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        s_lshl_b32 s6, s2, 8
        v_lshl_add_u32 v1, v0, 2, s6
        global_load_dword v2, v1, s[4:5]
        global_load_dword v2, v1, s[4:5]
        global_store_dword v1, v0, s[4:5]
    """, aligned(12 * 256), grid=12)["global"]
    own, kernarg = 12 * 256, 128
    assert found["footprint_bytes"] == own + kernarg
    assert (found["loaded_bytes"], found["stored_bytes"]) == (own + kernarg, own)
    assert found["loaded_bytes_by_die"] == own + 8 * kernarg        # every die reads the arguments
    assert found["lines"] == 12 * (2 + 2 + 2 + 1)
    assert found["lines_beyond_l1"] == 12 * (2 + 0 + 2 + 1)         # the second load finds its lines in the L1


def test_counts_do_not_depend_on_threads(hip: runtime.Hip, run: Run) -> None:
    body = """
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        s_lshl_b32 s6, s2, 8
        v_lshl_add_u32 v1, v0, 3, s6
        global_load_dword v2, v1, s[4:5]
        v_lshlrev_b32 v3, 4, v0
        ds_write_b32 v3, v2
    """
    results = []
    for threads in (1, 3):
        assembled.option(hip, "threads", threads)
        found = run(body, aligned(65536), grid=40, lds=1024)
        results.append({key: value for key, value in found.items() if key != "host_seconds"})
    assembled.option(hip, "threads", 0)
    assert results[0]["classes"] == results[1]["classes"]
    assert results[0]["lds"] == results[1]["lds"]
    assert results[0]["modelled_us"] == pytest.approx(results[1]["modelled_us"])
    assert {**results[0]["global"], "uncoalesced": 0} == {**results[1]["global"], "uncoalesced": 0}


@pytest.mark.parametrize(("vgprs", "lds", "block"), [
    (32, 0, 64), (128, 0, 256), (128, 40000, 256), (256, 16384, 512), (64, 1024, 1024),
])
def test_occupancy(run: Run, vgprs: int, lds: int, block: int) -> None:
    found = run("v_mov_b32 v1, v0", block=block, lds=lds, vgprs=vgprs)["resources"]
    assert found["vector_registers"] == vgprs
    assert found["occupancy"] == pytest.approx(_occupancy.cdna3(vgprs, found["sgprs"], lds, block))
    assert found["waves_per_simd"] == found["occupancy"] * 8


def test_a_sample_stands_for_the_launch(hip: runtime.Hip, run: Run) -> None:
    product = "v_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15]\n"
    body = "v_lshlrev_b32 v1, 7, v0\nds_write_b32 v1, v0\n" + product * 2
    whole = run(body, grid=3000, lds=8192, vgprs=96)
    assembled.option(hip, "sample", 10)
    sampled = run(body, grid=3000, lds=8192, vgprs=96)
    assembled.option(hip, "sample", 0)
    assert (whole["workgroups_run"], sampled["workgroups_run"]) == (3000, 10)
    for key in ("classes", "issue_cycles", "mfma", "mfma_flops", "instructions", "workgroups", "waves", "modelled_us"):
        assert sampled[key] == whole[key], key
    assert sampled["host_instructions"] * 300 == whole["host_instructions"]
