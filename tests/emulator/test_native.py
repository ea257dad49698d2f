# SPDX-License-Identifier: MIT
"""Any HIP program: warpwave-hipcc builds it, and its findings reach the user without a line of code."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

from backends.emulator import hipcc
from backends.errors import BackendError
from tests.emulator import native

pytestmark = pytest.mark.toolchain("rocm")


@pytest.fixture(scope="module")
def fill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native.compile_program(tmp_path_factory.mktemp("native") / "fill", "fill.hip", "-O2")


def test_findings_are_told_and_fail_the_program(fill: Path) -> None:
    status, out, err = native.run(fill)
    assert (status, out) == (1, "999\n")
    line = [number for number, text in enumerate((native.DATA / "fill.hip").read_text().splitlines(), 1)
            if text.endswith("// fill")]
    assert err.count("Invalid access: write of 4 bytes") == 1, "once, though it was launched twice"
    assert f"fill.hip:{line[0]}\n" in err
    assert err.splitlines()[-1] == "========= 1 finding (bounds 1), 2 times in 2 checked launches"


def test_a_program_without_a_bug_ends_as_it_does_alone(fill: Path) -> None:
    assert native.run(fill, "mended") == (0, "999\n", "========= no findings in 2 checked launches\n")
    assert native.run(fill, "mended", options="threads=1") == (0, "999\n", "")
    assert native.run(fill, options="checks=all,report=0") == (0, "999\n", "")


def test_an_exit_handler_still_gets_the_findings(fill: Path) -> None:
    _, out, _ = native.run(fill, COLLECT="1")
    assert [finding["check"] for finding in json.loads(out.splitlines()[-1])] == ["bounds", "bounds"]


def test_emulate_starts_a_program_with_checks(fill: Path) -> None:
    status, out, err = native.backends("emulate", "--", str(fill))
    assert (status, out) == (1, "999\n")
    assert "1 finding (bounds 1)" in err
    status, out, err = native.backends("emulate", "--checks", "waitcnt,hazard", "--json", "--", str(fill))
    assert json.loads(out) == {"program": [str(fill)], "status": 0, "findings": []}
    assert (status, err.splitlines()[-1]) == (0, "999")
    status, out, _ = native.backends("emulate", "--json", "--", str(fill))
    (finding,) = json.loads(out)["findings"]
    assert (status, finding["check"], finding["workgroup"]) == (1, "bounds", [3, 0, 0])
    assert native.backends("emulate", "--", "./no-such-program")[0] == 2


def test_device_code_is_linked_across_files_and_archives(tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        native.compile_program(tmp_path / f"{name}.o", "-c", f"{name}.hip", "-fgpu-rdc", "-MD")
    assert "parts.h" in (tmp_path / "parts.d").read_text()
    subprocess.run([native.need("ar"), "rcs", tmp_path / "libparts.a", tmp_path / "parts.o"], check=True)
    native.compile_program(tmp_path / "libemitted.a", "--emit-static-lib", "-fPIC", "-fgpu-rdc", "parts.hip")
    assert (tmp_path / "libemitted.a").read_bytes().startswith(b"!<arch>\n")
    libraries = (["-L", str(tmp_path), f"-l{name}"] for name in ("parts", "emitted"))
    for place, words in enumerate(([str(tmp_path / "parts.o")], *libraries)):
        program = native.compile_program(tmp_path / f"program{place}", "-fgpu-rdc", "--hip-link",
                                         str(tmp_path / "whole.o"), *words)
        assert native.run(program) == (0, "130\n", "========= no findings in 2 checked launches\n")


@pytest.mark.slow
def test_cmake_builds_with_the_prefix(tmp_path: Path) -> None:
    prefix = hipcc.build.prefix()
    environment = {**os.environ, "HIPCXX": str(prefix / "bin" / "clang++"), "ROCM_PATH": str(prefix)}
    configure = ["-S", str(native.DATA), "-B", str(tmp_path), f"-DCMAKE_PREFIX_PATH={prefix}"]
    for words in (configure, ["--build", str(tmp_path)]):
        result = subprocess.run([native.need("cmake"), *words], capture_output=True, text=True, env=environment,
                                check=False, timeout=200)
        assert result.returncode == 0, result.stdout + result.stderr
    assert native.run(tmp_path / "fill", "mended", options="")[:2] == (0, "999\n")


def test_command_lines() -> None:
    command = hipcc.parse([
        "-c", "a.cpp", "b.c", "-Ix", "-D", "N=1", "-oout", "--offload-arch=gfx90a,gfx942", "-MD", "-MF", "d", "-O2",
        "-lm", "lib.a", "-x", "hip", "c.inc", "-march=native", "-Wl,-s"])
    assert command.sources == [("a.cpp", "hip"), ("b.c", "c"), ("c.inc", "hip")]
    assert command.compile == ["-Ix", "-D", "N=1", "-O2"]
    assert command.host == ["-MD", "-MF", "d", "-march=native"]
    assert command.link == [0, 1, "-lm", "lib.a", 2, "-Wl,-s"]
    assert (command.output, command.stage, command.arches) == ("out", "object", ["gfx90a", "gfx942"])
    assert hipcc.parse(["a.cpp"], hip=False).sources == [("a.cpp", "c++")]
    with pytest.raises(BackendError, match="-o needs an argument"):
        hipcc.parse(["a.hip", "-o"])


def test_a_library_that_is_not_here_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "sort.hip"
    source.write_text("#include <rocprim_of_nowhere/a.hpp>\n")
    assert hipcc.main(["-c", str(source), "-o", str(tmp_path / "sort.o")]) == 1
    log = capfd.readouterr().err
    assert "file not found" in log
    assert "library of ROCm's" not in log
    told = hipcc._hints("x.hip:1:10: fatal error: 'rocprim/rocprim.hpp' file not found\n")
    assert [re.search(r"rocPRIM .*librocprim-dev.*ROCM_PATH", line) is not None for line in told] == [True]


def test_openmp_on_the_host_runs_on_one_thread(tmp_path: Path) -> None:
    source = tmp_path / "openmp.cpp"
    source.write_text("""
        #include <cstdio>
        #include <omp.h>
        int main() {
            int sum = 0;
        #pragma omp parallel for reduction(+ : sum)
            for (int i = 0; i < 100; ++i) sum += i * omp_get_num_threads();
            std::printf("%d %d\\n", sum, omp_get_wtime() > 0);
        }
    """)
    status, _, err = native.backends("hipcc", "-fopenmp", str(source), "-o", str(tmp_path / "openmp"))
    assert (status, "the host's parallel loops run on one thread" in err) == (0, True), err
    assert native.run(tmp_path / "openmp", options="")[:2] == (0, "4950 1\n")


def test_kernels_print_assert_and_allocate(tmp_path: Path) -> None:
    program = native.compile_program(tmp_path / "services", "services.hip", "-O2")
    text = "a constant that is longer than the fifty-six bytes of one message to the host"
    lines = [f"{i} of a block: {1.5 * i:5.2f} 0x10000000000 x% [7   ] [ -1] {text}" for i in range(2)]
    values = 3 * sum(thread + i for thread in range(100) for i in range(4)) + 300
    wanted = "\n".join([*lines, f"{values}\n"])
    assert native.run(program) == (0, wanted, "========= no findings in 3 checked launches\n")
    status, out, err = native.run(program, "assert")
    assert (status, out.splitlines()) == (3, [*lines, str(values)])
    assert "void check(int): Device-side assertion `n < 3 && \"too large\"' failed." in err


def test_programs_are_compiled_at_run_time(tmp_path: Path) -> None:
    program = native.compile_program(tmp_path / "rtc", "runtime_compiler.hip", "-O2", "-lhiprtc")
    status, out, err = native.run(program)
    assert (status, err) == (0, "========= no findings in 1 checked launch\n")
    assert out.splitlines() == ["_Z5scaleIfEvPT_i 396", "HIPRTC_ERROR_COMPILATION",
                                "wrong.hip:1:23: error: use of undeclared identifier 'nonsense'"]


def test_the_stand_ins_for_rocm_headers_agree_on_host_and_device(tmp_path: Path) -> None:
    program = native.compile_program(tmp_path / "headers", "headers.hip", "-O2")
    status, out, err = native.run(program)
    assert (status, out.split()[0], err) == (0, "0", "========= no findings in 1 checked launch\n")


def test_narrow_numbers_are_those_of_torch(tmp_path: Path) -> None:
    """Every code, and numbers up to beyond E4M3's largest, on the device and on the host."""
    program = native.compile_program(tmp_path / "narrow", "narrow.hip", "-O2")
    status, out, err = native.run(program)
    assert (status, err) == (0, "========= no findings in 1 checked launch\n")
    rows = [line.split() for line in out.splitlines()]
    assert len(rows) == 2 * 4096
    given, *codes = ([convert(row[at]) for row in rows] for at, convert in enumerate(
        (float.fromhex, int, int, int, float.fromhex, float.fromhex)))
    numbers = torch.tensor(given, dtype=torch.float32)
    for code, back, kind, most in ((0, 3, torch.float8_e4m3fnuz, 240), (1, 4, torch.float8_e5m2fnuz, 57344)):
        bits = torch.tensor(codes[code], dtype=torch.uint8)
        assert torch.equal(bits[512:], numbers.clamp(-most, most).to(kind).view(torch.uint8)[512:])
        decoded = bits.view(kind).float()
        assert torch.equal(torch.tensor(codes[back]).nan_to_num(nan=-1e9), decoded.nan_to_num(nan=-1e9))
    assert torch.equal(torch.tensor(codes[2], dtype=torch.int32).to(torch.int16)[512:],
                       numbers.bfloat16().view(torch.int16)[512:])


def test_several_devices_reach_each_other(tmp_path: Path) -> None:
    program = native.compile_program(tmp_path / "peers", "peers.hip", "-O2")
    assert native.run(program, options="devices=2") == (0, "2 devices\n1\n", "")
    assert native.run(program, options="") == (0, "1 devices\n", "")


def test_graphs(tmp_path: Path) -> None:
    program = native.compile_program(tmp_path / "graphs", "graphs.hip", "-O2")
    assert native.run(program, options="") == (0, "1212 3\n68\n7 74\n", "")


def test_launches_with_events_of_their_own(tmp_path: Path) -> None:
    program = native.compile_program(tmp_path / "events", "events.hip", "-O2")
    assert native.run(program) == (0, "0 0 1 0 0 145 145\n", "========= no findings in 3 checked launches\n")


@pytest.mark.slow
def test_cooperative_groups(tmp_path: Path) -> None:
    program = native.compile_program(tmp_path / "groups", "groups.hip", "-O2")
    expected = f"{4 * sum(range(256))} {4 * 128 * 32} 0\n"
    assert native.run(program) == (0, expected, "========= no findings in 1 checked launch\n")


_TENSORS = """
import ctypes, sys, torch
hip = ctypes.CDLL("libamdhip64.so")
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert hip.hipModuleLoad(ctypes.byref(module), sys.argv[1].encode()) == 0
assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"_Z4fillPii") == 0
tensor = torch.zeros(1000, dtype=torch.int32)
out, count = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int(int(sys.argv[2]))
arguments = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(count))
assert hip.hipModuleLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, None, arguments, None) == 0
assert tensor[999] == 999 and tensor[1:].clone().sum() == 499500
"""


def test_tensors_are_known_to_the_byte(tmp_path: Path) -> None:
    code = native.compile_program(tmp_path / "fill.hsaco", "--genco", "fill.hip")
    for count, wanted in (("1001", 1), ("1000", 0)):
        status, _, err = native.backends("emulate", "--", hipcc.sys.executable, "-c", _TENSORS, str(code), count)
        assert status == wanted, err
        assert ("0 bytes behind 'a torch tensor'" in err) == bool(wanted), err
