# SPDX-License-Identifier: MIT
"""What the timing model makes of memory: caches, their order, launches behind each other, atomics, ports of the LDS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator import assembled, runtime

Run = Callable[..., dict[str, Any]]
UNITS, DIES, KB, MB = 304, 8, 1024, 2**20


def aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 4096, np.uint8)
    return memory[-memory.ctypes.data % 4096:][:size]


def loop(times: int, body: str, name: str = "again", counter: str = "s20") -> str:
    return f"""
        s_mov_b32 {counter}, {times}
      {name}:
        {body}
        s_sub_u32 {counter}, {counter}, 1
        s_cmp_lg_u32 {counter}, 0
        s_cbranch_scc1 {name}
    """


def reads(size: int, begin: str = "v_mov_b32 v1, 0", passes: int = 1) -> str:
    """A workgroup of 256 reads ``size`` bytes from offset v1 of its buffer, 4 KB in a round."""
    return f"""
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        {begin}
        v_lshl_add_u32 v1, v0, 4, v1
        s_waitcnt lgkmcnt(0)
        {loop(passes, f'''
        v_mov_b32 v2, v1
        {loop(size // 4096, "global_load_dwordx4 v[4:7], v2, s[4:5]" + chr(10) + "v_add_u32 v2, 4096, v2")}
        ''', "pass", "s21")}
        s_waitcnt vmcnt(0)
    """


def test_what_fits_the_l2_is_found_there_again(run: Run) -> None:
    found = run(reads(2 * MB, passes=2), aligned(2 * MB), block=256)["global"]
    assert found["hbm_loaded_bytes"] == pytest.approx(2 * MB, rel=0.01)
    assert found["l2_hit_bytes"] == pytest.approx(2 * MB, rel=0.01)


def test_what_does_not_fit_the_l2_is_found_in_the_infinity_cache(run: Run) -> None:
    small, large = (run(reads(size, passes=2), aligned(size), block=256) for size in (2 * MB, 64 * MB))
    found = large["global"]
    assert found["l2_hit_bytes"] < 0.02 * 64 * MB
    assert found["mall_hit_bytes"] == pytest.approx(64 * MB, rel=0.02)
    assert large["model"]["unit_cycles"] > 1.1 * 32 * small["model"]["unit_cycles"]


# Of 64 workgroups, eight read the same panel of 1 MB: as they come, one in each die; or all eight in one die.
BY_ORDER = "s_lshr_b32 s8, s2, 3\ns_lshl_b32 s8, s8, 20\nv_mov_b32 v1, s8"
BY_DIE = "s_and_b32 s8, s2, 7\ns_lshl_b32 s8, s8, 20\nv_mov_b32 v1, s8"


def test_workgroups_that_share_data_gain_from_sharing_a_die(run: Run) -> None:
    """A die that reads all panels finds none of them again."""
    panels = aligned(8 * MB)
    scattered, together = (run(reads(MB, begin, 2), panels, grid=64, block=256) for begin in (BY_ORDER, BY_DIE))
    beyond = [each["global"]["mall_hit_bytes"] + each["global"]["hbm_loaded_bytes"] for each in (scattered, together)]
    assert beyond[0] == pytest.approx(2 * 64 * MB, rel=0.02)
    assert beyond[1] == pytest.approx(8 * MB, rel=0.02)
    assert scattered["modelled_us"] > 1.1 * together["modelled_us"]


def test_a_sample_shows_the_order_of_workgroups_too(hip: runtime.Hip, run: Run) -> None:
    """The workgroups that are not in the sample run as far as it takes to see where they load."""
    panels = aligned(8 * MB)
    found = []
    for begin in (BY_ORDER, BY_DIE):
        for sample in (0, 8):
            assembled.option(hip, "sample", sample)
            found.append(run(reads(MB, begin), panels, grid=64, block=256)["global"]["mall_hit_bytes"])
    assembled.option(hip, "sample", 0)
    assert found[1] == pytest.approx(found[0], rel=0.02)
    assert found[3] == pytest.approx(found[2], abs=0.02 * 8 * MB)


def test_a_branch_that_only_a_workgroup_outside_of_the_sample_takes(hip: runtime.Hip, run: Run) -> None:
    """No workgroup that runs to its end has its load."""
    rare = f"""
        s_cmp_eq_u32 s2, 5
        s_cbranch_scc0 usual
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_lshlrev_b32 v1, 4, v0
        s_waitcnt lgkmcnt(0)
        global_load_dwordx4 v[8:11], v1, s[4:5]
        s_waitcnt vmcnt(0)
        s_endpgm
      usual:
        {reads(64 * KB, BY_DIE)}
    """
    assembled.option(hip, "sample", 8)
    found = run(rare, aligned(8 * MB), grid=64, block=256)
    assembled.option(hip, "sample", 0)
    moved = found["global"]
    assert moved["hbm_loaded_bytes"] + moved["mall_hit_bytes"] == pytest.approx(8 * 64 * KB, rel=0.1)


def test_the_infinity_cache_keeps_what_a_launch_left(hip: runtime.Hip, tmp_path: Path) -> None:
    binary, memory = assembled.code_object(reads(2 * MB), tmp_path, 1), aligned(2 * MB)
    assembled.take_counters(hip)
    for _ in range(2):
        assembled.launch(hip, binary, 1, 256, [memory])
    first, second = assembled.take_counters(hip)
    assembled.launch(hip, binary, 1, 256, [memory])
    (cold,) = assembled.take_counters(hip)              # taking the counters begins anew
    assert first["global"]["hbm_loaded_bytes"] == pytest.approx(2 * MB, rel=0.01)
    assert second["global"]["hbm_loaded_bytes"] <= 256         # its arguments
    assert second["global"]["mall_hit_bytes"] == pytest.approx(2 * MB, rel=0.01)
    assert second["modelled_us"] < first["modelled_us"] == cold["modelled_us"]


def test_fills_and_copies_are_launches(hip: runtime.Hip) -> None:
    size = 64 * MB
    a, b, host = hip.malloc(size), hip.malloc(size), np.zeros(size, np.uint8)
    assembled.take_counters(hip)
    hip.ok("hipMemset", a, 0, size)
    hip.ok("hipMemcpy", b, a, size, 3)
    hip.ok("hipMemcpy", b, ctypes.c_void_p(host.ctypes.data), size, 1)      # from the host: no launch
    fill, copy = assembled.take_counters(hip)
    assert (fill["kernel"], copy["kernel"]) == ("hipMemset", "hipMemcpy")
    assert fill["modelled_us"] == pytest.approx(1.5 + size / 3.1e6)
    assert copy["modelled_us"] == pytest.approx(1.5 + size / 3.1e6 + size / 7.3e6)
    hip.ok("hipFree", a)
    hip.ok("hipFree", b)


def test_atomics_that_meet_at_one_word_wait_for_each_other(run: Run) -> None:
    def adds(shift: int) -> float:
        body = f"""
            s_load_dwordx2 s[4:5], s[0:1], 0x0
            v_lshlrev_b32 v1, {shift}, v0
            v_mov_b32 v2, 1
            s_waitcnt lgkmcnt(0)
            {loop(20, "global_atomic_add v1, v2, s[4:5]")}
        """ if shift else adds_to_one
        return float(run(body, aligned(4096), grid=UNITS)["model"]["atomics_us"])

    adds_to_one = f"""
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_mov_b32 v1, 0
        v_mov_b32 v2, 1
        s_waitcnt lgkmcnt(0)
        {loop(20, "global_atomic_add v1, v2, s[4:5]")}
    """
    assert adds(0) == pytest.approx(UNITS * 20 * 63 / 2100, rel=0.02)       # 64 lanes; a request counts 63 at most
    assert adds(2) < adds(0) / 20


def test_half_lines_are_written_back_as_such(run: Run) -> None:
    def stores(stride: int) -> float:
        body = f"""
            s_load_dwordx2 s[4:5], s[0:1], 0x0
            v_mul_u32_u24 v1, {stride}, v0
            s_waitcnt lgkmcnt(0)
            global_store_dwordx4 v1, v[4:7], s[4:5]
        """
        return float(run(body, aligned(64 * KB))["global"]["mall_written_bytes"])

    assert stores(16) == 1024                           # whole lines
    assert stores(128) == 64 * 64                       # 16 bytes of each of 64 lines


def test_lines_of_one_set_push_each_other_out_of_the_l1(run: Run) -> None:
    """96 lines, read again: at a stride of 512 bytes all of them are in one of the four sets of 64."""
    def beyond(stride: int) -> float:
        body = f"""
            s_load_dwordx2 s[4:5], s[0:1], 0x0
            v_mul_u32_u24 v1, {stride}, v0
            v_mov_b32 v2, {64 * stride}
            v_add_u32 v2, v1, v2
            s_waitcnt lgkmcnt(0)
            {loop(2, '''global_load_dword v4, v1, s[4:5]
            s_mov_b64 exec, 0xffffffff
            global_load_dword v5, v2, s[4:5]
            s_mov_b64 exec, -1''')}
        """
        return float(run(body, aligned(64 * KB))["global"]["lines_beyond_l1"])

    assert beyond(640) == 96 + 1
    assert beyond(512) == 2 * 96 + 1


def test_loads_to_the_lds_take_the_address_unit_once_and_the_lds(run: Run) -> None:
    begin = """
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_lshlrev_b32 v1, 2, v0
        s_mov_b32 m0, 0
        s_waitcnt lgkmcnt(0)
    """
    plain, direct = (run(begin + loop(10, load), aligned(4096), lds=1024)["issue_cycles"] for load in (
        "global_load_dword v2, v1, s[4:5]", "global_load_lds_dword v1, s[4:5]"))
    assert direct["vmem"] == plain["vmem"]
    assert (plain["lds"], direct["lds"]) == (0, 10 * 2)


@pytest.mark.parametrize(("instruction", "cycles"), [
    ("ds_write_b32 v1, v4", 8), ("ds_write_b128 v1, v[4:7]", 20), ("ds_read_b128 v[4:7], v1", 16),
])
def test_two_simds_share_a_port_of_64_bytes(run: Run, instruction: str, cycles: int) -> None:
    """Addresses and stored data go one way, loaded data the other."""
    body = "v_lshlrev_b32 v1, 4, v0\n" + loop(20, f"{instruction}\n" * 10)
    found = run(body, grid=UNITS, block=128, lds=2048)["model"]["unit_cycles"]
    assert found == pytest.approx(20 * 10 * 2 * cycles, rel=0.1)


EXPONENTIALS = "v_exp_f32 v4, v5\n" * 16


def test_a_wave_of_higher_priority_goes_first(run: Run) -> None:
    """Two waves of a SIMD add alike; the one that then waits for long is done sooner if it goes first."""
    def both(priority: int) -> float:
        body = f"""
            v_readfirstlane_b32 s21, v0
            s_cmp_ge_u32 s21, 256
            s_cbranch_scc1 waits
            {loop(5, EXPONENTIALS)}
            s_endpgm
          waits:
            s_setprio {priority}
            {loop(5, EXPONENTIALS, "first")}
            {loop(20, "s_nop 15", "then")}
        """
        return float(run(body, grid=UNITS, block=512)["model"]["unit_cycles"])

    assert both(3) < 0.9 * both(0)


def test_code_that_does_not_fit_the_instruction_cache_is_fetched_again(run: Run) -> None:
    small, large = (run(loop(1, "v_mov_b32 v4, v5\n" * 10) + f"""
        s_mov_b32 s20, {times}
      far:
        {chr(10).join(["v_mov_b32 v4, v5"] * count)}
        s_sub_u32 s20, s20, 1
        s_cmp_eq_u32 s20, 0
        s_cbranch_scc1 done
        s_getpc_b64 s[10:11]
      here:
        s_sub_u32 s10, s10, here-far
        s_subb_u32 s11, s11, 0
        s_setpc_b64 s[10:11]
      done:
        s_nop 0
    """)["model"]["unit_cycles"] for count, times in ((10000, 4), (20000, 2)))
    assert large > 1.1 * small


def test_the_modelled_time_is_the_same_on_any_number_of_threads(hip: runtime.Hip, run: Run) -> None:
    found = []
    for sample in (0, 8):
        assembled.option(hip, "sample", sample)
        for threads in (1, 2, 5):
            assembled.option(hip, "threads", threads)
            one = run(reads(256 * KB, BY_ORDER), aligned(8 * MB), grid=64, block=256)
            found.append((sample, one["modelled_us"], one["global"]["mall_hit_bytes"]))
    assembled.option(hip, "threads", 0)
    assembled.option(hip, "sample", 0)
    assert len(set(found)) == 2
