# SPDX-License-Identifier: MIT
"""Vendors' tools: the command lines that we build, and what we make of their answers (texts by their manuals)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.errors import BackendError, ToolchainMissing
from backends.instruments import ncu, rocprofv3, sanitizer, torch_trace

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at put(float *, int)+0x90 in steps.cu:12
=========     by thread (64,0,0) in block (3,0,0)
=========     Access to 0x7f32c6000400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f32c6000000 of size 1,024 bytes
=========         Device Frame: void steps<64>(float *)+0x30 in steps.cu:31
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch [0xacd4] in kernel.so
=========
called
========= Invalid __global__ write of size 4 bytes
=========     at put(float *, int)+0x90 in steps.cu:12
=========     by thread (65,0,0) in block (3,0,0)
=========     Access to 0x7f32c6000404 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f32c6000000 of size 1,024 bytes
=========         Device Frame: void steps<64>(float *)+0x30 in steps.cu:31
=========
========= Invalid __shared__ read of size 2 bytes
=========     at void steps<64>(float *)+0x120
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x8001 is misaligned
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_all(int *)+0x90 in /src/sum.cu:41
=========     and Read access at sum_all(int *)+0x100 in /src/sum.cu:51 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at meet()+0x11f0 in test.cu:42
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: work(int *, int *)+0xe40 in test.cu:60
=========
========= ERROR SUMMARY: 1 error
"""
INITCHECK = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at add(int *)+0x70 in add.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
=========  Unused __global__ memory in allocation 0x7fed9f400000 of size 100 bytes
=========     Not written 80 bytes at offset 0x14 (0x7fed9f400014)
"""
NOTHING = "========= COMPUTE-SANITIZER\nright\n========= ERROR SUMMARY: 0 errors\n"
DEAD = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host.
========= Error: Target application terminated before first instrumented API call
"""


def test_reports_of_one_kind_are_one_finding_with_its_place():
    write, read = sanitizer.parse(MEMCHECK, "memcheck")
    assert write["times"] == 2
    assert write["message"] == "Invalid __global__ write of size 4 bytes"
    assert (write["check"], write["kernel"], write["file"], write["line"]) == (
        "memcheck", "void steps<64>(float *)", "steps.cu", 12)
    assert write["text"].startswith("========= Invalid __global__ write of size 4 bytes\n=========     at put(")
    assert "Host Frame" not in write["text"]
    assert "out of bounds" in write["text"]
    assert (read["times"], read["kernel"], read["file"], read["line"]) == (1, "void steps<64>(float *)", "", 0)


def test_every_tool_s_words_are_read():
    (race,) = sanitizer.parse(RACECHECK, "racecheck")
    assert (race["file"], race["line"], race["hazards"]) == ("/src/sum.cu", 41, 508)
    (barrier,) = sanitizer.parse(SYNCCHECK, "synccheck")
    assert (barrier["kernel"], barrier["line"]) == ("work(int *, int *)", 42)
    uninitialised, unused = sanitizer.parse(INITCHECK, "initcheck")
    assert (uninitialised["file"], uninitialised["line"]) == ("add.cu", 41)
    assert unused["message"].startswith("Unused __global__ memory")
    assert sanitizer.parse(NOTHING, "memcheck") == []


def test_a_tool_that_saw_nothing_is_no_clean_run():
    assert sanitizer.parse(DEAD, "memcheck") == []
    assert sanitizer.trouble(DEAD).startswith("Error: process didn't terminate successfully")
    assert sanitizer.trouble(NOTHING) == ""
    assert sanitizer.trouble(MEMCHECK) == ""


def test_the_sanitizer_s_command_line():
    words = sanitizer.command(Path("/cuda/bin/compute-sanitizer"), "racecheck", Path("/t/log"), ["python", "x"],
                              ["step", "step", "merge"])
    assert words == [
        "/cuda/bin/compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "99", "--print-limit", "200",
        "--log-file", "/t/log", "--kernel-name", "kernel_substring=step", "--kernel-name", "kernel_substring=merge",
        "python", "x"]
    assert "--report-api-errors" in sanitizer.command(Path("cs"), "memcheck", Path("log"), ["python"])


def test_identifiers_of_demangled_functions():
    assert sanitizer.identifiers([
        "void step<64, (int)2>(float*)", "(anonymous namespace)::merge(int)", "ns::inner::pick", "_Z3foov",
        "void (anonymous namespace)::step<3>(int)", "helper(int) (called function)",
    ]) == ["step", "merge", "pick", "_Z3foov", "helper"]


def test_names_of_tools():
    assert sanitizer.parse_tools("initcheck, memcheck") == ("memcheck", "initcheck")
    with pytest.raises(ValueError, match="no tool 'mem'; there are memcheck, racecheck, synccheck, initcheck"):
        sanitizer.parse_tools("mem")
    with pytest.raises(ValueError, match="which tools"):
        sanitizer.parse_tools(",")
    assert sanitizer.emulated_checks(("racecheck", "initcheck")) == (
        "lds-race,global-race,shared-race,proxy-fence,in-flight,grid-order,uninitialised")


def test_the_sanitizer_is_found_beside_nvcc_in_the_wheel_or_on_path(tmp_path, monkeypatch):
    monkeypatch.setattr("backends.cuda.toolkits", lambda: [tmp_path / "cu13"])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ToolchainMissing, match="nvidia-cuda-sanitizer-api"):
        sanitizer.find()
    for folder in ("bin", "cu13/compute-sanitizer", "cu13/bin"):
        program = tmp_path / folder / "compute-sanitizer"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert sanitizer.find() == program


# Profilers -----------------------------------------------------------------------------------------------------------

_HEAD = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
         '"Device","CC","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum",'
         '"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum","l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",'
         '"lts__t_sector_hit_rate.pct","lts__throughput.avg.pct_of_peak_sustained_elapsed",'
         '"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",'
         '"sm__warps_active.avg.pct_of_peak_sustained_active",'
         '"smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",'
         '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",'
         '"smsp__average_warps_issue_stalled_selected_per_issue_active.ratio",'
         '"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",'
         '"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"')
RAW = f"""\
==PROF== Connected to process 4711 (/usr/bin/python3)
{_HEAD}
"","","","","","","","","","","","%","nsecond","","","%","%","%","%","inst","inst","inst","inst","inst"
"0","4711","python3","host","void attend<128>(Params)","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","11.5","556,032",\
"1,024","8,192","71.25","40.5","50.125","18.5","2.0","1.0","1.0","0.5","0.25"
"1","4711","python3","host","merge(float *)","1","7","(128, 1, 1)","(64, 1, 1)","0","9.0","n/a","3,200",\
"0","0","","","0","","","","","",""
"""
COUNTERS = """\
"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",\
"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",\
"Counter_Value","Start_Timestamp","End_Timestamp"
1,{first},"Agent 1",2,99,99,262144,5,"attend(Params)",256,0,0,12,4,32,"{counter}",{value},1000,{end}
2,{second},"Agent 1",2,99,99,512,3,"merge",256,0,0,20,4,32,"{counter}",{other},9000,9500
"""


def test_ncu_is_told_to_wait_for_the_call_and_to_keep_its_report():
    words = ncu.command(Path("/usr/bin/ncu"), Path("/t/report.ncu-rep"), ["python", "x"])
    assert words[:3] == ["/usr/bin/ncu", "--profile-from-start", "off"]
    assert words[-4:] == ["--export", "/t/report.ncu-rep", "python", "x"]
    assert "WarpStateStats" in words
    assert "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active" in words[words.index("--metrics") + 1]
    assert ncu.printing(Path("ncu"), Path("r")) == ["ncu", "--import", "r", "--csv", "--page", "raw", "--print-units",
                                                    "base"]


def test_ncu_s_raw_page_is_read():
    attend, merge = ncu.parse(RAW)
    assert attend["name"] == "void attend<128>(Params)"
    assert attend["seconds"] == pytest.approx(556.032e-6)
    assert (attend["tensor_active"], attend["dram"], attend["l2"], attend["l2_hit"], attend["occupancy"]) == (
        0.50125, 0.115, 0.405, 0.7125, 0.185)
    assert (attend["bank_conflicts"], attend["conflict_fraction"]) == (1024, 0.125)
    assert attend["stalls"] == [["gmma", pytest.approx(2 / 4.75)], ["long scoreboard", pytest.approx(1 / 4.75)],
                                ["wait", pytest.approx(0.5 / 4.75)]]
    assert merge["seconds"] == pytest.approx(3.2e-6)
    assert (merge["dram"], merge["l2_hit"], merge["conflict_fraction"], merge["stalls"]) == (None, None, None, [])


@pytest.mark.parametrize("text", ["", "==PROF== nothing\n", '"a","b"\n"1","2"\n', f"{_HEAD}\n{_HEAD}\n"])
def test_what_is_no_raw_page_is_refused(text):
    with pytest.raises(BackendError):
        ncu.parse(text)


def test_ncu_s_refusals_say_what_to_do():
    told = ncu.refusal(
        "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
        "NVIDIA GPU Performance Counters on the target device 0.\n")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in told
    assert "SYS_ADMIN" in told
    assert ncu.refusal("==ERROR== The application returned an error code (11).\n") == (
        "ncu: The application returned an error code (11).")
    assert "no kernel" in ncu.refusal("==WARNING== No kernels were profiled.\n")
    assert ncu.refusal("==PROF== Disconnected from process 1\n") == ""


def test_rocprofv3_s_command_line():
    words = rocprofv3.command(Path("rocprofv3"), Path("/t/out"), ("MfmaUtil",), ["python", "x"], ["attend", "merge"])
    assert words == ["rocprofv3", "--pmc", "MfmaUtil", "--kernel-include-regex", "attend|merge", "--output-format",
                     "csv", "--output-directory", "/t/out", "--output-file", "launches", "--", "python", "x"]


def test_rocprofv3_s_tables_of_several_calls_are_one_row_for_each_launch():
    def table(counter, value, other, first=1, end=101_000):
        return COUNTERS.format(counter=counter, value=value, other=other, first=first, second=first + 4, end=end)

    attend, merge = rocprofv3.parse(
        [table("MfmaUtil", 42.5, 0), table("OccupancyPercent", 25, 10, first=7, end=91_000),
         table("L2CacheHit", 80, 50), table("FETCH_SIZE", 1000, 1), table("WRITE_SIZE", 24, 1),
         table("MemUnitStalled", 7.5, 0), table("ALUStalledByLDS", 12, 0)], 5.3e12)
    assert attend["name"] == "attend(Params)"
    assert attend["seconds"] == pytest.approx(90e-6)          # the shortest of the calls
    assert (attend["tensor_active"], attend["occupancy"], attend["l2_hit"]) == (0.425, 0.25, 0.8)
    assert attend["conflict_fraction"] is None
    assert attend["dram_bytes"] == 1024 * 1024
    assert attend["dram"] == pytest.approx(1024 * 1024 / 90e-6 / 5.3e12)
    assert attend["stalls"] == [["vector units by LDS", 0.12], ["memory unit", 0.075]]
    assert merge["stalls"] == []
    with pytest.raises(BackendError):
        rocprofv3.parse(["Kernel_Name,Duration\nx,1\n"])


def test_torch_s_trace_is_read(tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [
        {"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 9},
        {"cat": "kernel", "name": "second", "ts": 30, "dur": 2.5, "args": {"grid": [1, 1, 1], "block": [32, 1, 1]}},
        {"cat": "kernel", "name": "first", "ts": 20, "dur": 5,
         "args": {"grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 19}},
    ]}))
    first, second = torch_trace.parse(trace)
    assert (first["name"], first["seconds"], first["occupancy"], first["block"]) == (
        "first", pytest.approx(5e-6), 0.19, "(384, 1, 1)")
    assert (second["name"], second["occupancy"]) == ("second", None)
    trace.write_text("[")
    with pytest.raises(BackendError):
        torch_trace.parse(trace)


@pytest.mark.parametrize(("tool", "hint"), [(ncu, "Nsight Compute"), (rocprofv3, "ROCm")])
def test_profilers_that_are_not_here_are_told(tool, hint, tmp_path, monkeypatch):
    monkeypatch.setattr("backends.cuda.toolkits", lambda: [tmp_path])
    monkeypatch.setattr(rocprofv3, "PREFIX", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainMissing, match=hint):
        tool.find()
    (tmp_path / tool.PROGRAM).write_text("#!/bin/sh\n")
    (tmp_path / tool.PROGRAM).chmod(0o755)
    assert tool.find() == tmp_path / tool.PROGRAM
