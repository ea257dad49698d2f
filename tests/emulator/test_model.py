# SPDX-License-Identifier: MIT
"""The modelled time of kernels that keep one resource busy: as the numbers of docs/emulator_model.md have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.emulator import assembled, runtime

Run = Callable[..., dict[str, Any]]

UNITS = 304
BF16 = "v_mfma_f32_32x32x8_bf16 a[{0}:{1}], v[2:3], v[4:5], a[{0}:{1}]"
LAUNCH = 1.5


@pytest.fixture(autouse=True)
def sample(hip: runtime.Hip) -> Iterator[None]:
    """Few of the workgroups run; all are alike here."""
    assembled.option(hip, "sample", 4)
    yield
    assembled.option(hip, "sample", 0)


def loop(times: int, body: str) -> str:
    return f"""
        s_mov_b32 s20, {times}
      again:
        {body}
        s_sub_u32 s20, s20, 1
        s_cmp_lg_u32 s20, 0
        s_cbranch_scc1 again
    """


def matrix_loop(times: int = 200, accumulators: int = 2) -> str:
    return loop(times, "\n".join(BF16.format(16 * i, 16 * i + 15) for i in range(accumulators)))


def cycles(found: dict[str, Any]) -> float:
    return float(found["model"]["unit_cycles"])


def test_says_that_it_is_modelled_and_of_what(run: Run) -> None:
    found = run("v_mov_b32 v1, 0")
    assert found["evidence"] == "modelled"
    model = found["model"]
    assert model["launch_us"] == LAUNCH
    parts = ("compute_units", "mfma", "valu", "salu", "lds", "vmem", "l2", "mall", "hbm", "atomics")
    bounds = [model[f"{name}_us"] for name in parts]
    assert found["modelled_us"] == pytest.approx(LAUNCH + max(bounds))


def test_independent_products_fill_the_matrix_cores(run: Run) -> None:
    """32 cycles each; four waves, one a SIMD."""
    assert cycles(run(matrix_loop(), grid=UNITS, block=256, vgprs=128)) == pytest.approx(200 * 2 * 32, rel=0.02)


def test_two_waves_of_a_simd_share_its_matrix_core(run: Run) -> None:
    assert cycles(run(matrix_loop(), grid=UNITS, block=512, vgprs=128)) == pytest.approx(2 * 200 * 2 * 32, rel=0.02)


def test_vector_work_of_another_wave_hides_behind_products(run: Run) -> None:
    """Even waves multiply, odd ones add, each pair on one SIMD: the longer of both, not the sum."""
    both = f"""
        v_readfirstlane_b32 s21, v0
        s_cmp_ge_u32 s21, 256
        s_cbranch_scc1 adds
        {matrix_loop()}
        s_endpgm
      adds:
        {loop(200, "v_add_f32 v10, v11, v12" + chr(10) + "v_add_f32 v13, v11, v12").replace("again", "more")}
    """
    assert cycles(run(both, grid=UNITS, block=512, vgprs=128)) == pytest.approx(200 * 2 * 32, rel=0.03)


def test_a_result_is_waited_for(run: Run) -> None:
    """A vector instruction sees the result of 8 passes after 8 + 3 of them; the next product may start then."""
    chain = loop(100, BF16.format(0, 15) + "\nv_accvgpr_read_b32 v8, a0\nv_accvgpr_write_b32 a0, v8")
    assert cycles(run(chain, grid=UNITS, block=64, vgprs=128)) > 100 * (32 + 12)


def test_bank_conflicts_take_their_time(run: Run) -> None:
    def reads(shift: int) -> float:
        body = f"v_lshlrev_b32 v1, {shift}, v0\n" + loop(50, "ds_read_b32 v2, v1\n" * 8 + "s_waitcnt lgkmcnt(0)")
        return cycles(run(body, grid=UNITS, block=256, lds=32768))

    assert reads(7) == pytest.approx(50 * 8 * 4 * 64, rel=0.05)     # four waves, 64 cycles each
    assert reads(2) < reads(7) / 10


CHASE = "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_mov_b32 v1, 0\ns_waitcnt lgkmcnt(0)\n" + loop(
    100, "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)")


def test_more_waves_hide_latency(run: Run) -> None:
    """Loads that each wait for the one before it: eight waves of a SIMD take hardly longer than one."""
    data = np.zeros(64, np.int32)
    one, many = (cycles(run(CHASE, data, grid=UNITS, block=block)) for block in (64, 1024))
    assert one > 100 * 120
    assert many < 1.4 * one


def test_a_wait_for_older_loads_lets_younger_ones_run(run: Run) -> None:
    """vmcnt(1) waits for all but the last: half as long as waiting for each."""
    data = np.zeros(64, np.int32)
    deeper = CHASE.replace("vmcnt(0)", "vmcnt(1)")
    assert cycles(run(deeper, data, grid=UNITS)) < 0.6 * cycles(run(CHASE, data, grid=UNITS))


def test_waves_wait_at_a_barrier_for_the_slowest(run: Run) -> None:
    """One of two waves works before the barrier, the other after it: the sum of both, without it the longer one."""
    body = f"""
        v_readfirstlane_b32 s21, v0
        s_cmp_ge_u32 s21, 64
        s_cbranch_scc1 second
        {matrix_loop(100)}
        s_barrier
        s_endpgm
      second:
        s_barrier
        {matrix_loop(100).replace("again", "more")}
    """
    texts = (body, body.replace("s_barrier", "s_nop 0"))
    with_barrier, without = (cycles(run(text, grid=UNITS, block=128, vgprs=128)) for text in texts)
    assert with_barrier == pytest.approx(2 * without, rel=0.05)


def test_one_workgroup_too_many_takes_another_round(run: Run) -> None:
    body = matrix_loop()
    even, odd = (run(body, grid=grid, block=256, lds=65536, vgprs=128)["model"] for grid in (UNITS, UNITS + 1))
    assert even["tail_us"] == 0
    # At one clock; with units idle the power limit leaves a higher one.
    time = [each["compute_units_us"] * each["clock_mhz"] for each in (even, odd)]
    assert time[1] == pytest.approx(2 * time[0], rel=0.02)
    assert odd["limited_by"] == "mfma" or odd["limited_by"] == "tail"
    assert odd["tail_us"] == pytest.approx(odd["compute_units_us"] / 2, rel=0.02)


def test_workgroups_of_different_length(hip: runtime.Hip, run: Run) -> None:
    """The last of them has ten times the work: the others are long done."""
    assembled.option(hip, "sample", 0)
    body = f"""
        s_cmp_lg_u32 s2, {2 * UNITS - 1}
        s_cbranch_scc1 short
        {loop(1000, "v_add_f32 v1, v2, v3")}
        s_endpgm
      short:
        {loop(100, "v_add_f32 v1, v2, v3").replace("again", "more")}
    """
    found = run(body, grid=2 * UNITS, lds=65536)["model"]
    assert found["imbalance"] == pytest.approx(11 / 2, rel=0.05)


def test_a_sample_of_workgroups_of_different_length(hip: runtime.Hip, run: Run) -> None:
    """As many rounds as the workgroup's number modulo 16: all lengths are equally frequent."""
    body = f"""
        s_and_b32 s21, s2, 15
        s_lshl_b32 s21, s21, 6
        s_add_u32 s21, s21, 1
        {loop(0, "v_add_f32 v1, v2, v3").replace("s_mov_b32 s20, 0", "s_mov_b32 s20, s21")}
    """
    found = []
    for count in (0, 48):
        assembled.option(hip, "sample", count)
        found.append(run(body, grid=64 * UNITS, lds=65536)["model"]["compute_units_us"])
    assert found[1] == pytest.approx(found[0], rel=0.1)
    mean = (1 + 15 / 2 * 64) * 28            # cycles: three instructions a round and a taken branch
    assert found[0] == pytest.approx(64 * mean / 2100, rel=0.1)


def test_a_mean_workgroup_lies_between_the_shortest_and_the_longest(hip: runtime.Hip, run: Run) -> None:
    """Also where what the longer ones have more of is slower than the rest."""
    assembled.option(hip, "sample", 48)
    slow = loop(100, "\n".join(["v_exp_f32 v1, v2"] * 10)).replace("again", "more")

    def modelled(longer: str) -> float:
        body = f"""
            {longer}
            {loop(1000, "v_add_f32 v1, v2, v3")}
            s_cmp_eq_u32 s21, 0
            s_cbranch_scc1 short
            {slow}
          short:
        """
        return float(run(body, grid=64 * UNITS, lds=65536)["model"]["compute_units_us"])

    short, mixed, long = (modelled(each) for each in ("s_mov_b32 s21, 0", "s_and_b32 s21, s2, 1", "s_mov_b32 s21, 1"))
    assert mixed == pytest.approx((short + long) / 2, rel=0.1)


def test_a_copy_takes_as_long_as_its_traffic_does_between_the_caches(hip: runtime.Hip, run: Run) -> None:
    assembled.option(hip, "sample", 0)
    count = 1 << 24
    memory = np.zeros(2 * count + 4096, np.uint8)
    body = """
        s_load_dwordx4 s[4:7], s[0:1], 0x0
        s_lshl_b32 s8, s2, 12
        v_lshl_add_u32 v1, v0, 4, s8
        global_load_dwordx4 v[4:7], v1, s[4:5]
        s_waitcnt vmcnt(0)
        global_store_dwordx4 v1, v[4:7], s[6:7]
    """
    begin = memory[-memory.ctypes.data % 4096:]
    found = run(body, begin[:count], begin[count:2 * count], grid=count // 4096, block=256)
    assert found["model"]["hbm_us"] == pytest.approx((count + 128) / 4.3e6, rel=1e-3)
    # What is stored stays in the Infinity Cache; it comes in at 7.3 TB/s and goes there at 3.1.
    assert found["model"]["limited_by"] == "mall"
    assert found["model"]["mall_us"] == pytest.approx(count / 7.3e6 + count / 3.1e6, rel=1e-2)
    assert found["modelled_us"] - LAUNCH == pytest.approx(found["model"]["mall_us"], rel=0.2)


def test_the_clock_falls_only_under_products(run: Run) -> None:
    product, vector = matrix_loop(), loop(200, "v_add_f32 v1, v2, v3")
    assert run(vector, grid=UNITS, block=256)["model"]["clock_mhz"] == 2100
    # AMD's products ran at 1207 MHz and multiplied in 94.2 % of the cycles; as the cube root of the use, here 100 %.
    limit = 1207 * 0.942 ** (1 / 3)
    assert run(product, grid=UNITS * 4, block=256, vgprs=128)["model"]["clock_mhz"] == pytest.approx(limit, rel=0.02)
    idle = product + loop(3000, "v_add_f32 v1, v2, v3").replace("again", "more")
    assert run(idle, grid=UNITS, block=256, vgprs=128)["model"]["clock_mhz"] > 1.2 * limit


def test_no_more_workgroups_at_once_than_fit(run: Run) -> None:
    """Loads that wait: two workgroups of a unit take as long as one, unless LDS has room for one only."""
    data = np.zeros(64, np.int32)
    together, apart = (run(CHASE, data, grid=2 * UNITS, lds=lds)["model"]["compute_units_us"] for lds in (1024, 65536))
    assert apart == pytest.approx(2 * together, rel=0.1)


def test_a_kernel_that_fails_is_counted_up_to_there(hip: runtime.Hip, tmp_path: Any) -> None:
    """In a process of its own: a failed launch ends the use of the device."""
    binary = tmp_path / "kernel"
    binary.write_bytes(assembled.code_object("v_mov_b32 v1, 0\nv_mov_b32 v60, 0", tmp_path, vgprs=64))
    program = """
import sys
from pathlib import Path
from tests.emulator import assembled, runtime
hip = runtime.Hip(Path(sys.argv[1]))
assembled.option(hip, "counters", 1)
try:
    assembled.launch(hip, Path(sys.argv[2]).read_bytes(), 1, 64)
except AssertionError:
    print([each["classes"]["valu"] for each in assembled.take_counters(hip)])
"""
    assert runtime.own_process(program, hip.path, binary).strip() == "[2]"
