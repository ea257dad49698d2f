# SPDX-License-Identifier: MIT
"""The HIP API: modules, functions and how a launch reaches the device. Nothing executes: the device is a double that
says what it was asked to do."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends import _occupancy
from backends.base import Binary
from backends.emulator import build
from tests.emulator import runtime
from tests.emulator.runtime import (
    COOPERATIVE_TOO_LARGE,
    FILE_NOT_FOUND,
    ILLEGAL_ADDRESS,
    INVALID_CONFIGURATION,
    INVALID_HANDLE,
    INVALID_IMAGE,
    INVALID_VALUE,
    LAUNCH_FAILURE,
    NO_BINARY,
    NOT_FOUND,
    SUCCESS,
    Hip,
    pointers,
)

pytestmark = pytest.mark.toolchain("rocm")
size_t = ctypes.c_size_t
DEFAULT = 4


@pytest.fixture(scope="module")
def library() -> Path:
    return runtime.built(lambda: build.build(runtime.api_sources(), [build.ROOT]))


@pytest.fixture(scope="module")
def binary() -> Binary:
    return runtime.compile_hip("api")


@pytest.fixture
def hip(library: Path) -> Iterator[Hip]:
    hip = Hip(library)
    hip.hipGetLastError()
    yield hip
    hip.ok("hipDeviceReset")
    hip.hipGetLastError()


@pytest.fixture
def module(hip: Hip, binary: Binary) -> Iterator[ctypes.c_void_p]:
    assert binary.code_object is not None
    module = hip.module(binary.code_object.read_bytes())
    yield module
    hip.ok("hipModuleUnload", module)


def test_a_module_from_memory_and_from_a_file(hip: Hip, binary: Binary, tmp_path: Path) -> None:
    assert binary.code_object is not None
    module = ctypes.c_void_p()
    hip.ok("hipModuleLoad", ctypes.byref(module), str(binary.code_object).encode())
    function = hip.function(module, "add")
    assert hip.hipKernelNameRef(function) == b"add"
    assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"subtract") == NOT_FOUND
    pointer, size = ctypes.c_void_p(), size_t()
    hip.ok("hipModuleGetGlobal", ctypes.byref(pointer), ctypes.byref(size), module, b"table")
    assert size.value == 16
    assert struct.unpack("4i", ctypes.string_at(pointer, 16)) == (1, 2, 3, 4)
    assert hip.hipModuleGetGlobal(ctypes.byref(pointer), None, module, b"chair") == NOT_FOUND
    hip.ok("hipModuleUnload", module)
    assert hip.hipModuleUnload(module) == INVALID_HANDLE
    assert hip.hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == INVALID_HANDLE
    assert hip.hipModuleLoad(ctypes.byref(module), str(tmp_path / "none").encode()) == FILE_NOT_FOUND


def test_what_is_no_code_for_this_device(hip: Hip, binary: Binary, capfd: pytest.CaptureFixture[str]) -> None:
    assert binary.code_object is not None
    module = ctypes.c_void_p()
    assert hip.hipModuleLoadData(ctypes.byref(module), b"not code, but long enough to look at" * 4) == INVALID_IMAGE
    other = bytearray(binary.code_object.read_bytes())
    other[48] = 0x2f          # EF_AMDGPU_MACH of another processor
    assert hip.hipModuleLoadData(ctypes.byref(module), bytes(other)) in (NO_BINARY, INVALID_IMAGE)
    assert capfd.readouterr().err.count("hipModuleLoadData") == 2


def launched(capfd: pytest.CaptureFixture[str]) -> tuple[str, bytes]:
    """The last launch that the double saw: its shape, and the arguments."""
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("launch ")]
    assert lines, "nothing was launched"
    shape, _, arguments = lines[-1].rpartition(" ")
    return shape, bytes.fromhex(arguments)


def test_arguments_lie_where_the_metadata_says(
    hip: Hip, module: ctypes.c_void_p, capfd: pytest.CaptureFixture[str]
) -> None:
    class Triple(ctypes.Structure):
        _fields_ = [("small", ctypes.c_char), ("large", ctypes.c_double), ("medium", ctypes.c_short)]

    pointer = ctypes.c_void_p(0x1122334455667788)
    values = (ctypes.c_char(b"\xfd"), Triple(b"\x07", 2.5, -900), pointer, ctypes.c_ubyte(250))
    hip.ok("hipModuleLaunchKernel", hip.function(module, "mixed"), 3, 2, 1, 64, 1, 2, 16, None, pointers(*values), None)
    shape, arguments = launched(capfd)
    assert shape == "launch mixed (3, 2, 1) (64, 1, 2) 16"
    assert arguments[0] == 0xfd
    assert struct.unpack_from("<c7xdh6xQB", arguments, 8) == (b"\x07", 2.5, -900, 0x1122334455667788, 250)
    assert len(arguments) == 41


def test_arguments_in_a_buffer(hip: Hip, module: ctypes.c_void_p, capfd: pytest.CaptureFixture[str]) -> None:
    packed = ctypes.create_string_buffer(struct.pack("<QQQi", 16, 32, 48, 7), 28)
    size = size_t(28)

    def extra() -> object:
        return (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 3)

    add = hip.function(module, "add")
    hip.ok("hipModuleLaunchKernel", add, 1, 1, 1, 64, 1, 1, 0, None, None, extra())
    assert launched(capfd)[1] == packed.raw
    size.value = 24
    assert hip.hipModuleLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, None, None, extra()) == INVALID_VALUE
    assert "24 bytes, the kernel reads 28" in capfd.readouterr().err
    assert hip.hipModuleLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, None, pointers(size), extra()) == INVALID_VALUE


@pytest.mark.parametrize(("grid", "block", "lds", "status", "said"), [
    ((0, 1, 1), (64, 1, 1), 0, INVALID_CONFIGURATION, ""),
    ((1, 1, 1), (64, 0, 1), 0, INVALID_CONFIGURATION, ""),
    ((1, 1, 1), (64, 17, 1), 0, INVALID_CONFIGURATION, "the device takes 1024"),
    ((1, 1, 1), (512, 1, 1), 0, LAUNCH_FAILURE, "compiled for 256 (__launch_bounds__)"),
    ((1, 1, 1), (256, 1, 1), 64 * 1024 - 1023, INVALID_VALUE, "1024 bytes of static and 64513 of dynamic LDS"),
    ((2**31, 1, 1), (64, 1, 1), 0, INVALID_CONFIGURATION, ""),
    ((1, 1, 1), (256, 1, 1), 63 * 1024, SUCCESS, "launch reverse"),
])
def test_limits_of_a_launch(
    hip: Hip, module: ctypes.c_void_p, capfd: pytest.CaptureFixture[str], grid: tuple[int, int, int],
    block: tuple[int, int, int], lds: int, status: int, said: str,
) -> None:
    arguments = pointers(ctypes.c_void_p(64))
    reverse = hip.function(module, "reverse")
    assert hip.hipModuleLaunchKernel(reverse, *grid, *block, lds, None, arguments, None) == status
    assert said in capfd.readouterr().err
    assert hip.hipModuleLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 0, None, arguments, None) == SUCCESS   # no fault stays


def test_missing_arguments_are_refused(hip: Hip, module: ctypes.c_void_p) -> None:
    add = hip.function(module, "add")
    assert hip.hipModuleLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, None, None, None) == INVALID_VALUE
    hip.ok("hipModuleLaunchKernel", hip.function(module, "nothing"), 1, 1, 1, 64, 1, 1, 0, None, None, None)


def test_a_cooperative_grid_must_fit_the_device(hip: Hip, module: ctypes.c_void_p) -> None:
    launch = hip.hipModuleLaunchCooperativeKernel
    nothing = hip.function(module, "nothing")
    most = 304 * 2                    # 32 waves a compute unit, 16 a block
    assert launch(nothing, most, 1, 1, 1024, 1, 1, 0, None, None) == SUCCESS
    assert launch(nothing, most + 1, 1, 1, 1024, 1, 1, 0, None, None) == COOPERATIVE_TOO_LARGE


def test_a_fault_stays_until_the_device_is_reset(
    hip: Hip, module: ctypes.c_void_p, capfd: pytest.CaptureFixture[str]
) -> None:
    nothing = hip.function(module, "nothing")
    memory = hip.malloc(4)
    assert hip.hipModuleLaunchKernel(nothing, 1, 1, 1, 64, 1, 1, 700, None, None, None) == ILLEGAL_ADDRESS
    assert "kernel nothing wrote where it may not" in capfd.readouterr().err
    assert hip.hipGetLastError() == ILLEGAL_ADDRESS
    assert hip.hipGetLastError() == ILLEGAL_ADDRESS            # asking does not clear it
    assert hip.hipDeviceSynchronize() == ILLEGAL_ADDRESS
    assert hip.hipMemcpy(memory, b"1234", size_t(4), DEFAULT) == ILLEGAL_ADDRESS
    assert hip.hipModuleLaunchKernel(nothing, 1, 1, 1, 64, 1, 1, 0, None, None, None) == ILLEGAL_ADDRESS
    hip.ok("hipDeviceReset")
    hip.hipGetLastError()
    hip.ok("hipModuleLaunchKernel", nothing, 1, 1, 1, 64, 1, 1, 0, None, None, None)
    assert hip.hipGetLastError() == SUCCESS
    hip.ok("hipFree", memory)


@pytest.mark.parametrize("threads", [1, 64, 65, 128, 192, 256])
@pytest.mark.parametrize("dynamic", [0, 1, 5000, 31 * 1024, 63 * 1024])
def test_occupancy_is_the_reports(hip: Hip, module: ctypes.c_void_p, threads: int, dynamic: int) -> None:
    waves = -(-threads // 64)
    expected = _occupancy.cdna3(5, 10, 1024 + dynamic, threads) * 32 / waves
    reverse = hip.function(module, "reverse")
    blocks = hip.out("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.c_int, reverse, threads,
                     size_t(dynamic))
    assert blocks == round(expected)


def test_attributes_of_a_function(hip: Hip, module: ctypes.c_void_p) -> None:
    reverse = hip.function(module, "reverse")
    # Threads a block, LDS, scratch, registers, the most dynamic LDS: see hipFunction_attribute.
    found = {which: hip.out("hipFuncGetAttribute", ctypes.c_int, which, reverse) for which in (0, 1, 3, 4, 8)}
    assert found == {0: 256, 1: 1024, 3: 0, 4: 5, 8: 63 * 1024}
    assert hip.hipFuncSetAttribute(reverse, 8, 63 * 1024) == SUCCESS
    assert hip.hipFuncSetAttribute(reverse, 8, 63 * 1024 + 1) == INVALID_VALUE
    grid, block = ctypes.c_int(), ctypes.c_int()
    hip.ok("hipModuleOccupancyMaxPotentialBlockSize", ctypes.byref(grid), ctypes.byref(block), reverse, size_t(0), 0)
    assert (grid.value, block.value) == (304 * 8, 256)
