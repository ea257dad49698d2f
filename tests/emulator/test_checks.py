# SPDX-License-Identifier: MIT
"""The emulator's checks: each finds its planted bugs where they are, and says nothing about the same kernels mended."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.emulator import build
from tests.emulator import runtime
from tests.emulator.checks import assembly, hazards, memory, sharing, values
from tests.emulator.checks.assembly import BYTES, Case
from tests.emulator.runtime import Hip, pointers

pytestmark = pytest.mark.toolchain("rocm")
CASES = [*memory.CASES, *values.CASES, *sharing.CASES, *hazards.CASES]
Finding = dict[str, Any]


class Checked(Hip):
    """The emulator with all checks on. Memory of others is out of bounds, and workgroups run in order."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.library.warpwave_emulator_take_findings.restype = ctypes.c_void_p
        self.library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
        self.set(checks="all", strict="1", threads="1")

    def set(self, **options: str) -> None:
        for option, value in options.items():
            assert self.library.warpwave_emulator_set(option.encode(), value.encode()) == 0

    def findings(self) -> list[Finding]:
        text = self.library.warpwave_emulator_take_findings()
        found: list[Finding] = json.loads(ctypes.string_at(text))
        self.library.warpwave_emulator_free(text)
        return found

    def launch(self, function: ctypes.c_void_p, groups: int, threads: int, *arguments: Any, lds: int = 0) -> int:
        status: int = self.hipModuleLaunchKernel(
            function, groups, 1, 1, threads, 1, 1, lds, None, pointers(*arguments), None
        )
        return status


@pytest.fixture(scope="module")
def hip() -> Iterator[Checked]:
    found = Checked(runtime.built(build.library))
    yield found
    found.set(checks="none", strict="0", threads="0")     # other files of this process load the same library


@pytest.fixture(scope="module")
def text() -> str:
    return assembly.source(CASES)


@pytest.fixture(scope="module")
def module(hip: Checked, text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.c_void_p]:
    module = hip.module(assembly.assemble(text, tmp_path_factory.mktemp("cases")))
    yield module
    hip.ok("hipModuleUnload", module)


@pytest.fixture
def buffers(hip: Checked) -> Iterator[list[ctypes.c_void_p]]:
    both = [hip.malloc(BYTES), hip.malloc(BYTES)]
    for buffer in both:
        hip.ok("hipMemset", buffer, 0, ctypes.c_size_t(BYTES))
    yield list(both)
    for buffer in both:
        hip.hipFree(buffer)
    hip.hipGetLastError()


def _run(
    hip: Checked, module: ctypes.c_void_p, case: Case, kind: str, buffers: list[ctypes.c_void_p]
) -> tuple[int, list[Finding]]:
    function = hip.function(module, f"{case.name}_{kind}")
    return hip.launch(function, case.groups, case.threads, *buffers), hip.findings()


def _shown(findings: list[Finding]) -> str:
    return "\n".join(finding["text"] for finding in findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_planted_bug_is_found(
    hip: Checked, module: ctypes.c_void_p, text: str, buffers: list[ctypes.c_void_p], case: Case
) -> None:
    if case.freed:
        hip.ok("hipFree", buffers[0])
    status, findings = _run(hip, module, case, "wrong", buffers)
    assert status == 0
    assert len(findings) == 1, _shown(findings)
    finding = findings[0]
    name = f"{case.name}_wrong"
    assert finding["check"] == case.check
    assert re.search(case.message, finding["message"]), finding["message"]
    assert finding["kernel"] == name
    assert Path(finding["file"]).name == "cases.s"
    assert finding["line"] == assembly.marked_line(text, name), _shown(findings)
    mnemonic = text.splitlines()[finding["line"] - 1].split()[0]
    assert finding["instruction"].split()[0].removesuffix("_e64") == mnemonic
    for key, wanted in (("lane", case.lane), ("wave", case.wave)):
        assert wanted is None or finding[key] == wanted, key
    assert case.group is None or finding["workgroup"] == [case.group, 0, 0]
    assert finding["text"].startswith("========= ")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_kernel_without_the_bug_is_silent(
    hip: Checked, module: ctypes.c_void_p, buffers: list[ctypes.c_void_p], case: Case
) -> None:
    status, findings = _run(hip, module, case, "right", buffers)
    assert status == 0
    assert not findings, _shown(findings)


def test_options_that_do_not_exist_are_refused(hip: Checked, capfd: pytest.CaptureFixture[str]) -> None:
    for option, value, why in (
        ("threads", "-1", "threads is a number, not '-1'"), ("threads", "2x", "threads is a number, not '2x'"),
        ("checks", "bound", "no check 'bound'; there are all, none, bounds, misaligned, "),
        ("counters", "yes", "counters is 0 or 1, not 'yes'"), ("thread", "1", "no option 'thread'; there are checks, "),
    ):
        assert hip.library.warpwave_emulator_set(option.encode(), value.encode()) == 1
        assert why in capfd.readouterr().err


_HANG = """
import ctypes, json, pathlib, sys
hip = ctypes.CDLL(sys.argv[1])
for option, value in (("checks", "all"), ("limit", "20000"), ("slice", "10000")):
    assert hip.warpwave_emulator_set(option.encode(), value.encode()) == 0
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert hip.hipModuleLoadData(ctypes.byref(module), pathlib.Path(sys.argv[2]).read_bytes()) == 0
assert hip.hipModuleGetFunction(ctypes.byref(function), module, sys.argv[3].encode()) == 0
nothing = ctypes.c_void_p()
arguments = (ctypes.c_void_p * 2)(*[ctypes.addressof(nothing)] * 2)
status = hip.hipModuleLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, None, arguments, None)
hip.warpwave_emulator_take_findings.restype = ctypes.c_char_p
print(json.dumps([status, json.loads(hip.warpwave_emulator_take_findings())]))
"""


def test_a_deadlock_is_found(hip: Checked, tmp_path: Path) -> None:
    """In a process of its own: after such a launch, nothing more can be run."""
    case = sharing.DEADLOCK
    text = assembly.source([case])
    assembly.assemble(text, tmp_path)
    for kind, wanted in (("wrong", runtime.LAUNCH_FAILURE), ("right", 0)):
        name = f"{case.name}_{kind}"
        status, findings = json.loads(runtime.own_process(_HANG, hip.path, tmp_path / "cases.hsaco", name))
        assert status == wanted
        if kind == "right":
            assert not findings, _shown(findings)
            continue
        (finding,) = [each for each in findings if each["check"] == "barrier"]
        assert re.search(case.message, finding["message"]), finding["message"]
        assert finding["wave"] == case.wave
        assert finding["other"].endswith(f"cases.s:{assembly.marked_line(text, name)}")


# In data/bugs.hip: (kernel, check, workgroups, work-items in each, what the message says).
HIP = [
    ("read_off_by_one", "bounds", 5, 64, "^read of 4 bytes .* 1 lane$"),
    ("in_a_helper", "bounds", 1, 64, "^read of 4 bytes .* 1 lane$"),
    ("write_off_by_one", "bounds", 5, 64, "^write of 4 bytes .* 1 lane$"),
    ("tile_too_small", "bounds", 1, 64, "of LDS, which has 252 bytes here; 1 lane$"),
    ("half_a_tile", "uninitialised", 1, 64, "^what is stored to memory is undefined; 32 lanes$"),
    ("sum_into_an_unwritten_tile", "uninitialised", 1, 64, "^what is stored to memory is undefined"),
    ("table_too_small", "bounds", 1, 64, "^read of 4 bytes .* 1 lane$"),
    ("uninitialised_register", "uninitialised", 1, 64, "^what is stored to memory is undefined$"),
    ("no_barrier", "lds-race", 1, 128, "^read of LDS byte"),
    ("one_barrier_of_two", "lds-race", 1, 256, "^write of LDS byte"),
    ("counting_without_atomics", "lds-race", 1, 128, "of LDS byte"),
    ("barrier_in_a_branch", "barrier", 1, 64, "^the barrier was run by 16 lanes"),
    ("groups_write_the_same", "global-race", 2, 64, "^write at"),
    ("sum_without_atomics", "global-race", 2, 64, "^read at"),
    ("no_fence", "global-race", 2, 64, "^read at"),
    ("misaligned_cast", "misaligned", 1, 64, "^read of 4 bytes"),
    ("misaligned_or_merged", "misaligned", 1, 63, "^read of 4 bytes"),
    ("misaligned_in_a_table", "misaligned", 1, 64, "^read of 2 bytes"),
    ("no_wait", "waitcnt", 1, 64, r"^reads .* vmcnt\(0\)"),
    ("no_wait_states", "hazard", 1, 64, "^reads the result of a transcendental instruction: 1 wait state must come"),
]


@pytest.fixture(scope="module")
def hip_module(hip: Checked) -> Iterator[ctypes.c_void_p]:
    binary = runtime.compile_hip("bugs")
    assert binary.code_object is not None
    module = hip.module(binary.code_object.read_bytes())
    yield module
    hip.ok("hipModuleUnload", module)


@pytest.mark.parametrize(("kernel", "check", "groups", "threads", "message"), HIP, ids=[each[0] for each in HIP])
def test_a_bug_in_a_hip_kernel_is_found_in_its_line(
    hip: Checked,
    hip_module: ctypes.c_void_p,
    buffers: list[ctypes.c_void_p],
    kernel: str,
    check: str,
    groups: int,
    threads: int,
    message: str,
) -> None:
    lines = (runtime.DATA / "bugs.hip").read_text().splitlines()
    line, caller = (
        {number for number, text in enumerate(lines, 1) if text.endswith(f"// {mark}{kernel}")}
        for mark in ("", "calls it: ")
    )
    count = ctypes.c_int(BYTES // 4)
    for mended in (0, 1):
        function = hip.function(hip_module, f"_Z{len(kernel)}{kernel}ILb{mended}EEvPKiPii")
        assert hip.launch(function, groups, threads, *buffers, count) == 0
        findings = hip.findings()
        if mended:
            assert not findings, _shown(findings)
            continue
        found = [finding for finding in findings if finding["check"] == check]
        assert found, _shown(findings)
        assert len(found) == len(findings), _shown(findings)
        assert [finding for finding in found if re.search(message, finding["message"])], _shown(findings)
        if line:
            assert {(Path(finding["file"]).name, finding["line"]) for finding in found} == {("bugs.hip", *line)}
        if caller:
            (number,) = caller
            assert {Path(finding["calls"][-1]).name for finding in found} == {f"bugs.hip:{number}"}
            assert f"inlined at {found[0]['calls'][-1]}\n" in found[0]["text"]
        else:
            assert not any(finding["calls"] for finding in found)
