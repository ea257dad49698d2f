# SPDX-License-Identifier: MIT
"""Counters of an emulated launch as tables: which share of the time, and which source line loses what. Of NVIDIA's
emulated GPUs: what was counted, and no time."""

from __future__ import annotations

from dataclasses import replace

from scoring.output import counted, profile
from scoring.output.table import Style
from scoring.record import Case, CaseResult, Evidence, Mode, Record, Status

KERNEL = "_Z6kernelPf"
LAUNCH = {
    "kernel": KERNEL, "block": [256, 1, 1], "workgroups": 3, "modelled_us": 10.0, "mfma_flops": 2_000_000,
    "model": {"launch_us": 4.0, "limited_by": "lds", "mfma_us": 1.0, "valu_us": 2.0, "salu_us": 0.5, "lds_us": 5.0,
              "vmem_us": 0.1, "l2_us": 0.2, "mall_us": 0.3, "hbm_us": 0.4},
    "lds": {"cycles": 400, "conflict_cycles": 100, "conflicts": [
        {"instruction": "ds_read_b128 v[0:3], v4", "file": "isa/lds.h", "line": 7, "pc": 16, "executed": 4,
         "cycles": 90, "conflict_free_cycles": 40},
        {"instruction": "ds_read_b128 v[8:11], v4", "file": "isa/lds.h", "line": 7, "pc": 32, "executed": 4,
         "cycles": 90, "conflict_free_cycles": 40}]},
    "global": {"requested_bytes": 1000, "line_bytes": 4000, "loaded_bytes": 3000, "stored_bytes": 1000, "uncoalesced": [
        {"instruction": "global_load_dword v0, v1", "file": "k.hip", "line": 9, "pc": 64, "executed": 2,
         "requested_bytes": 256, "line_bytes": 2048}]},
    "resources": {"occupancy": 0.25, "occupancy_limit": "registers", "scratch_bytes": 0},
}
RECORD = Record(
    id="0" * 32, created="", problem="toy", kernel="hip/mine", digest="", backend="rocm", target="gfx942", gpu="MI300",
    device="AMD Instinct MI300X (emulated)", mode=Mode.TEST, status=Status.PASSED, evidence=Evidence.MODELLED,
    cases=(CaseResult(Case({"n": 64}, "tests"), Status.PASSED, counters=(LAUNCH,)),))
SYMBOLS = profile.Symbols({KERNEL: "kernel"}, {
    (KERNEL, 16): ["isa/lds.h:7", "k.hip:20"], (KERNEL, 32): ["isa/lds.h:7", "k.hip:30"], (KERNEL, 64): ["k.hip:9"]})


def test_figures_of_a_launch():
    found = profile.summary(LAUNCH)
    assert (found["limited_by"], found["occupancy"]) == ("lds", 0.25)
    assert found["busy"]["lds"] == 0.5
    assert (found["lds_conflict_fraction"], found["coalesced_fraction"]) == (0.25, 0.25)
    assert round(found["hbm_bytes_per_second"]) == 400_000_000
    assert round(found["mfma_flops_per_second"]) == 200_000_000_000


def test_losses_belong_to_the_line_of_the_kernel_that_called():
    """Both reads are in one function of a header; they are told apart by where it was put inline."""
    assert [(each["kind"], each["place"], each["inside"], each["lost"]) for each in profile.lines(LAUNCH, SYMBOLS)] == [
        ("conflict", "k.hip:20", "isa/lds.h:7", 50), ("conflict", "k.hip:30", "isa/lds.h:7", 50),
        ("uncoalesced", "k.hip:9", "", 1792)]
    (merged, _) = profile.lines(LAUNCH, profile.Symbols())
    assert (merged["place"], merged["lost"], merged["executed"]) == ("isa/lds.h:7", 100, 8)


def test_every_table_says_that_it_is_modelled():
    text = profile.report(RECORD, SYMBOLS, Style(width=200))
    assert text.splitlines()[0].endswith("(emulated) · modelled")
    assert "limited by lds" in text
    assert "k.hip:20" in text
    assert profile.document(RECORD, SYMBOLS)["evidence"] == "modelled"


COUNTED = {
    "kernel": KERNEL, "block": [128, 1, 1], "workgroups": 2, "instructions": 1000, "tensor_flops": 2_000_000_000,
    "classes": {"tensor": 100, "integer": 600, "shared_load": 300, "float": 0}, "evidence": "emulated",
    "tensor": [{"instruction": "wgmma.m64n8k16", "executed": 100, "flops": 2_000_000_000}],
    "shared": {"bytes": 1024, "tensor_bytes": 2048, "bulk_bytes": 4096, "cycles": 400, "conflict_free_cycles": 300,
               "conflict_cycles": 100, "conflicts": [
                   {"instruction": "ld.shared.v4.u32", "file": "k.cu", "line": 7, "ptx_line": 70, "executed": 4,
                    "cycles": 180, "conflict_free_cycles": 80}]},
    "global": {"requested_bytes": 1000, "read_bytes": 600, "written_bytes": 400, "atomic_bytes": 0, "sectors": 125,
               "sector_bytes": 4000, "uncoalesced": [
                   {"instruction": "ld.global.u32", "file": "k.cu", "line": 9, "ptx_line": 90, "executed": 2,
                    "lanes": 64, "requested_bytes": 256, "sector_bytes": 2048}]},
    "bulk": {"copies": 3, "read_bytes": 3000, "written_bytes": 1000},
}


def test_what_is_counted_alone_has_no_time():
    found = counted.summary(COUNTED, "H100")
    assert (found["bank_conflict_fraction"], found["coalesced_fraction"]) == (0.25, 0.25)
    assert (found["global_bytes"], found["bulk_bytes"], found["shared_bytes"]) == (5000, 4000, 7168)
    assert not any("second" in key for key in found)
    assert [(each["kind"], each["place"], each["lost"]) for each in profile.lines(COUNTED, profile.Symbols())] == [
        ("conflict", "k.cu:7", 100), ("uncoalesced", "k.cu:9", 1792)]


def test_what_bounds_a_launch_is_the_unit_that_is_busy_longest():
    found = counted.least_cycles(COUNTED, "H100")
    assert found == {
        "tensor cores": 2e9 / 4096, "shared memory": 400 + 6144 / 128, "issue": 250.0, "special functions": 0.0}
    assert counted.least_cycles(COUNTED, "L4")["tensor cores"] == 2e9 / 1024
    eight_bits = COUNTED | {"tensor": [{"instruction": "wgmma.m64n8k32.f32.e4m3.e4m3", "executed": 1, "flops": 4096}],
                            "classes": {"special": 800}}
    assert counted.least_cycles(eight_bits, "H100")["tensor cores"] == 0.5
    assert counted.summary(eight_bits, "H100")["bound"] == "special functions"


def test_its_tables_say_that_it_is_emulated():
    record = replace(RECORD, backend="cuda", gpu="H100", cases=(replace(RECORD.cases[0], counters=(COUNTED,)),))
    text = profile.report(record, SYMBOLS, Style(width=200))
    assert text.splitlines()[0].endswith("H100 (emulated)")
    assert "modelled" not in text
    for words in ("60%", "2 GFLOP", "3.906 KiB by bulk copies", "bank conflicts", "k.cu:9", "multiprocessors, bounds"):
        assert words in text, text
    found = profile.document(record, SYMBOLS)
    assert (found["evidence"], found["cases"][0]["launches"][0]["tensor_flops"]) == ("emulated", 2_000_000_000)
