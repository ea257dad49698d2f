# SPDX-License-Identifier: MIT
"""The HIP API: what it says about the device, memory, queues and errors. Nothing executes here."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.emulator import build
from tests.emulator import runtime
from tests.emulator.runtime import (
    INVALID_DEVICE,
    INVALID_DIRECTION,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_FOUND,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    SUCCESS,
    Hip,
)

pytestmark = pytest.mark.toolchain("rocm")
size_t = ctypes.c_size_t
HOST_TO_DEVICE, DEVICE_TO_HOST, DEFAULT = 1, 2, 4
TIMING_DISABLED = 2


@pytest.fixture(scope="module")
def library() -> Path:
    return runtime.built(lambda: build.build(runtime.api_sources(), [build.ROOT]))


@pytest.fixture
def hip(library: Path) -> Iterator[Hip]:
    hip = Hip(library)
    hip.hipGetLastError()
    yield hip
    hip.ok("hipDeviceReset")
    hip.hipGetLastError()


# --- the device -----------------------------------------------------------------------------------------------------

def test_the_device_is_one_mi300x(hip: Hip) -> None:
    assert hip.out("hipGetDeviceCount", ctypes.c_int) == 1
    assert hip.out("hipGetDevice", ctypes.c_int) == 0
    name = ctypes.create_string_buffer(64)
    hip.ok("hipDeviceGetName", name, 64, 0)
    assert name.value == b"AMD Instinct MI300X (emulated)"
    assert hip.out("hipDeviceTotalMem", size_t, 0) == 192 * 2**30
    assert hip.hipSetDevice(0) == SUCCESS
    assert hip.hipSetDevice(1) == INVALID_DEVICE


def test_versions_are_the_headers(hip: Hip) -> None:
    text = (build.find().headers / "hip" / "hip_version.h").read_text()
    major, minor, patch = (int(re.search(rf"HIP_VERSION_{part}\s+(\d+)", text)[1])  # type: ignore[index]
                           for part in ("MAJOR", "MINOR", "PATCH"))
    assert hip.out("hipRuntimeGetVersion", ctypes.c_int) == major * 10**7 + minor * 10**5 + patch
    assert hip.out("hipDriverGetVersion", ctypes.c_int) == major * 10**7 + minor * 10**5 + patch


def enumerators(name: str) -> dict[str, int]:
    """Members of an enumeration of AMD's header."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", runtime.headers()[0].read_text(), flags=re.DOTALL)
    found = re.search(rf"typedef enum (?:\w+ )?{name} \{{(.*?)\}}", text, re.DOTALL)
    assert found is not None
    values: dict[str, int] = {}
    last = -1
    for item in found[1].split(","):
        key, _, value = (part.strip() for part in item.partition("="))
        if key:
            last = last + 1 if not value else values[value] if value in values else int(value, 0)
            values[key] = last
    return values


@pytest.mark.parametrize(("name", "value"), [
    ("WarpSize", 64), ("MultiprocessorCount", 304), ("MaxThreadsPerBlock", 1024), ("MaxSharedMemoryPerBlock", 65536),
    ("ClockRate", 2_100_000), ("MemoryClockRate", 1_300_000), ("MemoryBusWidth", 8192), ("MaxRegistersPerBlock", 65536),
    ("MaxThreadsPerMultiProcessor", 2048), ("ComputeCapabilityMajor", 9), ("ComputeCapabilityMinor", 4),
    ("NumberOfXccs", 8), ("WallClockRate", 100_000), ("ManagedMemory", 1), ("ImageSupport", 0),
    ("MaxTexture1DWidth", 0),
])
def test_attributes(hip: Hip, name: str, value: int) -> None:
    assert hip.attribute(enumerators("hipDeviceAttribute_t")[f"hipDeviceAttribute{name}"]) == value


def test_every_attribute_of_the_header_is_answered(hip: Hip) -> None:
    value = ctypes.c_int()
    for name, number in enumerators("hipDeviceAttribute_t").items():
        refused = hip.hipDeviceGetAttribute(ctypes.byref(value), number, 0) != SUCCESS
        assert refused == bool(re.search(r"Unused\d|End$|VendorSpecificBegin$", name)), name
    assert hip.hipDeviceGetAttribute(ctypes.byref(value), 5000, 0) == INVALID_VALUE
    assert hip.hipDeviceGetAttribute(ctypes.byref(value), 0, 1) == INVALID_DEVICE


def test_properties_agree_with_the_attributes(hip: Hip, tmp_path: Path) -> None:
    """Read by a C++ program against AMD's header, so that the offsets are right."""
    source = tmp_path / "p.cpp"
    source.write_text("""
        #include <hip/hip_runtime_api.h>
        #include <hip/hip_deprecated.h>
        #include <cstdio>
        int main() {
            hipDeviceProp_t p; hipDeviceProp_tR0000 old;
            if (hipGetDeviceProperties(&p, 0) != hipSuccess) return 1;
            if (hipGetDevicePropertiesR0000(&old, 0) != hipSuccess) return 1;
            printf("%s|%s|%d|%d|%zu|%d\\n", p.name, p.gcnArchName, p.multiProcessorCount, p.warpSize, p.totalGlobalMem,
                   p.maxThreadsPerBlock);
            printf("%s|%s|%d|%d|%zu|%d\\n", old.name, old.gcnArchName, old.multiProcessorCount, old.warpSize,
                   old.totalGlobalMem, old.gcnArch);
        }""")
    runtime.compile_host(str(source), str(hip.path), "-o", str(tmp_path / "p"))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(hip.path.parent)}
    answer = subprocess.run([str(tmp_path / "p")], env=environment, check=True, capture_output=True, text=True).stdout
    common = f"AMD Instinct MI300X (emulated)|gfx942:sramecc+:xnack-|304|64|{192 * 2**30}"
    assert answer.splitlines() == [f"{common}|1024", f"{common}|942"]


# --- memory ---------------------------------------------------------------------------------------------------------

def test_device_memory_is_host_memory(hip: Hip) -> None:
    data = b"0123456789abcdef"
    device, other = hip.malloc(16), hip.malloc(16)
    hip.ok("hipMemcpy", device, data, size_t(16), HOST_TO_DEVICE)
    hip.ok("hipMemcpyDtoD", other, device, size_t(16))
    assert ctypes.string_at(other, 16) == data
    back = ctypes.create_string_buffer(16)
    hip.ok("hipMemcpyAsync", back, other, size_t(16), DEVICE_TO_HOST, None)
    assert back.raw == data
    for pointer in (device, other):
        hip.ok("hipFree", pointer)
    assert hip.hipFree(device) == INVALID_VALUE
    assert hip.hipFree(None) == SUCCESS


def test_nothing_and_too_much(hip: Hip, capfd: pytest.CaptureFixture[str]) -> None:
    pointer = ctypes.c_void_p(1)
    assert hip.hipMalloc(ctypes.byref(pointer), size_t(0)) == SUCCESS
    assert pointer.value is None
    assert hip.hipMalloc(ctypes.byref(pointer), size_t(2**45)) == OUT_OF_MEMORY
    assert hip.hipMalloc(None, size_t(4)) == INVALID_VALUE
    assert f"{2**45} bytes asked for" in capfd.readouterr().err


def test_the_free_memory_is_the_hosts(hip: Hip) -> None:
    free, total = size_t(), size_t()
    hip.ok("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    assert total.value == 192 * 2**30
    assert 0 < free.value <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(("name", "unit", "value"), [
    ("hipMemset", 1, 0x5a), ("hipMemsetD8", 1, 0x5a), ("hipMemsetD16", 2, 0x1234), ("hipMemsetD32", 4, 0x12345678)])
def test_fills(hip: Hip, name: str, unit: int, value: int) -> None:
    memory = hip.malloc(8 * unit)
    hip.ok("hipMemset", memory, 0, size_t(8 * unit))
    hip.ok(name, memory, value, size_t(7))
    assert ctypes.string_at(memory, 8 * unit) == value.to_bytes(unit, "little") * 7 + bytes(unit)
    hip.ok("hipFree", memory)


@pytest.mark.parametrize("call", ["copy to", "copy from", "fill"])
def test_running_past_an_allocation_is_refused(hip: Hip, call: str, capfd: pytest.CaptureFixture[str]) -> None:
    memory, host = hip.malloc(64), ctypes.create_string_buffer(128)
    inside = ctypes.c_void_p((memory.value or 0) + 32)
    status = {"copy to": lambda: hip.hipMemcpy(inside, host, size_t(33), DEFAULT),
              "copy from": lambda: hip.hipMemcpy(host, inside, size_t(33), DEFAULT),
              "fill": lambda: hip.hipMemset(inside, 0, size_t(33))}[call]()
    assert status == INVALID_VALUE
    assert "33 bytes from offset 32 of an allocation of 64 bytes" in capfd.readouterr().err
    hip.ok("hipFree", memory)


def test_copies_of_rows(hip: Hip) -> None:
    pitch, memory = size_t(), ctypes.c_void_p()
    hip.ok("hipMallocPitch", ctypes.byref(memory), ctypes.byref(pitch), size_t(10), size_t(3))
    assert pitch.value == 256
    rows = bytes(range(30))
    hip.ok("hipMemcpy2D", memory, pitch, rows, size_t(10), size_t(10), size_t(3), HOST_TO_DEVICE)
    hip.ok("hipMemset2D", ctypes.c_void_p((memory.value or 0) + 2), pitch, 0xee, size_t(3), size_t(2))
    back = ctypes.create_string_buffer(30)
    hip.ok("hipMemcpy2D", back, size_t(10), memory, pitch, size_t(10), size_t(3), DEVICE_TO_HOST)
    expected = bytearray(rows)
    expected[2:5] = expected[12:15] = b"\xee\xee\xee"
    assert back.raw == bytes(expected)
    assert hip.hipMemcpy2D(back, size_t(5), memory, pitch, size_t(10), size_t(3), DEVICE_TO_HOST) == 12
    hip.ok("hipFree", memory)


def test_a_copy_has_a_direction(hip: Hip) -> None:
    memory = hip.malloc(8)
    assert hip.hipMemcpy(memory, b"12345678", size_t(8), 77) == INVALID_DIRECTION
    hip.ok("hipFree", memory)


class PointerAttributes(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("device", ctypes.c_int), ("device_pointer", ctypes.c_void_p),
                ("host_pointer", ctypes.c_void_p), ("managed", ctypes.c_int), ("flags", ctypes.c_uint)]


def test_pointers_say_what_they_are(hip: Hip) -> None:
    def facts(pointer: object) -> PointerAttributes:
        found = PointerAttributes()
        hip.ok("hipPointerGetAttributes", ctypes.byref(found), pointer)
        return found

    device = hip.malloc(32)
    assert (facts(device).type, facts(device).device, facts(device).host_pointer) == (2, 0, None)
    host, managed = ctypes.c_void_p(), ctypes.c_void_p()
    hip.ok("hipHostMalloc", ctypes.byref(host), size_t(32), 0)
    hip.ok("hipMallocManaged", ctypes.byref(managed), size_t(32), 1)
    assert (facts(host).type, facts(host).device_pointer) == (1, host.value)
    assert (facts(managed).type, facts(managed).managed) == (3, 1)
    own = ctypes.create_string_buffer(64)
    assert facts(own).type == 0
    hip.ok("hipHostRegister", own, size_t(64), 0)
    assert facts(own).type == 1
    assert hip.hipHostRegister(own, size_t(8), 0) == 712
    hip.ok("hipHostUnregister", own)
    assert hip.hipHostUnregister(own) == 713
    base, size = ctypes.c_void_p(), size_t()
    inside = ctypes.c_void_p((device.value or 0) + 5)
    hip.ok("hipMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), inside)
    assert (base.value, size.value) == (device.value, 32)
    # Triton's launcher asks so whether the device can use a pointer: here it can use any.
    assert hip.out("hipPointerGetAttribute", ctypes.c_void_p, 3, own) == ctypes.addressof(own)
    for pointer in (device, host, managed):
        hip.ok("hipFree", pointer)


# --- queues and events ----------------------------------------------------------------------------------------------

def test_queues(hip: Hip) -> None:
    queue, flags, priority = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_int()
    hip.ok("hipStreamCreateWithPriority", ctypes.byref(queue), 1, -7)
    hip.ok("hipStreamGetFlags", queue, ctypes.byref(flags))
    hip.ok("hipStreamGetPriority", queue, ctypes.byref(priority))
    assert (flags.value, priority.value) == (1, -1)
    memory = hip.malloc(4)
    hip.ok("hipMemsetAsync", memory, 1, size_t(4), queue)
    called = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: called.append(data))
    hip.ok("hipLaunchHostFunc", queue, callback, ctypes.c_void_p(42))
    assert called == [42]
    hip.ok("hipStreamSynchronize", queue)
    hip.ok("hipStreamDestroy", queue)
    for name in ("hipStreamSynchronize", "hipStreamQuery", "hipStreamDestroy"):
        assert getattr(hip, name)(queue) == INVALID_HANDLE
    assert hip.hipMemsetAsync(memory, 1, size_t(4), queue) == INVALID_HANDLE
    for builtin in (0, 1, 2):
        hip.ok("hipStreamSynchronize", ctypes.c_void_p(builtin))
    hip.ok("hipFree", memory)


def test_events_tell_time(hip: Hip) -> None:
    first, second, untimed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    milliseconds = ctypes.c_float(-1)
    for event in (first, second):
        hip.ok("hipEventCreate", ctypes.byref(event))
    hip.ok("hipEventCreateWithFlags", ctypes.byref(untimed), TIMING_DISABLED)
    hip.ok("hipEventRecord", first, None)
    assert hip.hipEventElapsedTime(ctypes.byref(milliseconds), first, second) == INVALID_HANDLE   # not recorded yet
    threading.Event().wait(0.02)
    hip.ok("hipEventRecord", second, None)
    hip.ok("hipEventRecord", untimed, None)
    hip.ok("hipEventElapsedTime", ctypes.byref(milliseconds), first, second)
    assert 20 <= milliseconds.value < 5000
    assert hip.hipEventElapsedTime(ctypes.byref(milliseconds), first, untimed) == INVALID_HANDLE
    hip.ok("hipEventSynchronize", second)
    for event in (first, second, untimed):
        hip.ok("hipEventDestroy", event)
    assert hip.hipEventDestroy(first) == INVALID_HANDLE
    assert hip.hipEventQuery(None) == INVALID_HANDLE


# --- errors ---------------------------------------------------------------------------------------------------------

def test_every_error_has_a_name_and_a_text(hip: Hip) -> None:
    old_names = {"hipErrorMemoryAllocation", "hipErrorInitializationError", "hipErrorMapBufferObjectFailed",
                 "hipErrorInvalidResourceHandle"}
    codes = {name: code for name, code in enumerators("hipError_t").items() if name not in old_names}
    assert len(codes) > 70
    assert {name: hip.hipGetErrorName(code).decode() for name, code in codes.items()} == {name: name for name in codes}
    assert all(hip.hipGetErrorString(code) for code in codes.values())
    assert len({hip.hipGetErrorString(code) for code in codes.values()}) == len(codes)
    assert hip.hipGetErrorName(123456) == b"hipErrorUnknown"
    assert hip.hipDrvGetErrorName(123456, ctypes.byref(ctypes.c_char_p())) == INVALID_VALUE


def test_the_last_error_is_the_threads_own_and_outlives_successes(hip: Hip) -> None:
    assert hip.hipSetDevice(9) == INVALID_DEVICE
    hip.ok("hipSetDevice", 0)
    assert hip.hipPeekAtLastError() == INVALID_DEVICE
    others = []
    thread = threading.Thread(target=lambda: others.append(hip.hipPeekAtLastError()))
    thread.start()
    thread.join()
    assert others == [SUCCESS]
    assert hip.hipGetLastError() == INVALID_DEVICE
    assert hip.hipGetLastError() == SUCCESS


def test_what_is_not_supported_says_so_once(library: Path) -> None:
    program = (f"import ctypes\nhip = ctypes.CDLL({str(library)!r})\n"
               "print([hip.hipGraphClone() for _ in range(3)], hip.hipIpcGetMemHandle(None, None))")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == f"[{NOT_SUPPORTED}, {NOT_SUPPORTED}, {NOT_SUPPORTED}] {NOT_SUPPORTED}"
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["hipGraphClone", "hipIpcGetMemHandle"]


@pytest.mark.parametrize(("name", "version", "symbol"), [
    ("hipMalloc", 70100000, "hipMalloc"), ("hipGetDeviceProperties", 70100000, "hipGetDevicePropertiesR0600"),
    ("hipGetDeviceProperties", 500, "hipGetDeviceProperties"),
])
def test_entry_points_by_name(hip: Hip, name: str, version: int, symbol: str) -> None:
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    hip.ok("hipGetProcAddress", name.encode(), ctypes.byref(found), version, ctypes.c_uint64(0), ctypes.byref(status))
    assert found.value == ctypes.cast(getattr(hip, symbol), ctypes.c_void_p).value
    assert status.value == 0
    assert hip.hipGetProcAddress(b"hipNoSuchThing", ctypes.byref(found), version, ctypes.c_uint64(0),
                                 ctypes.byref(status)) == NOT_FOUND
    assert (found.value, status.value) == (None, 1)
