# SPDX-License-Identifier: MIT
"""Whole programs on the emulator, each in a process of its own: compiled host code with its launches and variables,
torch's memory, code objects through the module API, and hip-python, which nobody told that the device is emulated."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

from backends.base import Binary
from backends.emulator import build
from tests.emulator import runtime
from tests.emulator.runtime import INVALID_FUNCTION, INVALID_IMAGE, INVALID_SYMBOL, LAUNCH_FAILURE, own_process

pytestmark = pytest.mark.toolchain("rocm")
LOAD = """
import ctypes, sys
hip = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
"""
HOST = LOAD + "host = ctypes.CDLL(sys.argv[2])\n"


@pytest.fixture(scope="module")
def library() -> Path:
    return runtime.built(build.library)


@pytest.fixture(scope="module")
def binary() -> Binary:
    return runtime.compile_hip("api")


def test_compiled_host_code_launches(library: Path, binary: Binary) -> None:
    """Plain host memory serves as device memory; the grid does not divide the length."""
    program = HOST + """
Floats = ctypes.c_float * 100
a, b, out = Floats(*range(100)), Floats(*[0.5] * 100), Floats()
assert host.host_add(a, b, out, 99) == 0
assert list(out) == [i + 0.5 for i in range(99)] + [0]
odd = (ctypes.c_float * 5)()
assert host.host_mixed(odd) == 0
print(list(odd))
values = (ctypes.c_int * 256)(*range(256))
assert host.host_reverse(values, 256, 1024) == 0
assert list(values) == [1255 - i for i in range(256)]
print(host.host_reverse(values, 512, 2048), hip.hipGetLastError(), hip.hipDeviceSynchronize())
"""
    assert own_process(program, library, binary.path).splitlines() == [
        "[-3.0, 7.0, 2.5, -900.0, 250.0]", f"{LAUNCH_FAILURE} 0 0"]


def test_variables_of_compiled_host_code(library: Path, binary: Binary) -> None:
    program = HOST + """
host.host_scale.argtypes = [ctypes.c_float, ctypes.c_void_p, ctypes.c_int]
table = (ctypes.c_int * 4)()
print(host.host_counter(), host.host_table(table), list(table))     # before anything is loaded on the device
values = (ctypes.c_float * 8)(*range(8))
print(host.host_scale(3.0, values, 8), list(values), host.host_counter())
print(hip.hipGetSymbolAddress(ctypes.byref(ctypes.c_void_p()), values))
"""
    assert own_process(program, library, binary.path).splitlines() == [
        "5 0 [1, 2, 3, 4]", f"0 {[3.0 * i + i % 4 + 1 for i in range(8)]} 13", str(INVALID_SYMBOL)]


def test_occupancy_and_attributes_of_a_host_function(library: Path, binary: Binary) -> None:
    program = HOST + """
facts = (ctypes.c_int * 4)()
print(host.host_attributes(facts), list(facts), host.host_occupancy(256, 0), host.host_occupancy(64, 15 * 1024))
"""
    assert own_process(program, library, binary.path) == f"0 {[1024, 256, 5, 63 * 1024]} 8 4\n"


def test_code_is_read_at_the_first_use_by_any_thread(library: Path, binary: Binary) -> None:
    program = LOAD + """
import threading
hip.__hipRegisterFatBinary.restype = ctypes.c_void_p
class Wrapper(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("binary", ctypes.c_void_p),
                ("unused", ctypes.c_void_p)]
nonsense = ctypes.create_string_buffer(b"nonsense", 64)
wrapper = Wrapper(0x48495046, 1, ctypes.addressof(nonsense), None)
handle = ctypes.c_void_p(hip.__hipRegisterFatBinary(ctypes.byref(wrapper)))
key = ctypes.create_string_buffer(8)
hip.__hipRegisterFunction(handle, key, b"k", b"k", -1, None, None, None, None, None)
print("registered", hip.hipPeekAtLastError())
print(hip.hipFuncGetAttributes(ctypes.create_string_buffer(64), key))
hip.__hipUnregisterFatBinary(handle)
print(hip.hipFuncGetAttributes(ctypes.create_string_buffer(64), key))
host = ctypes.CDLL(sys.argv[2])
found = []
threads = [threading.Thread(target=lambda: found.append(host.host_occupancy(64, 0))) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(found)
"""
    assert own_process(program, library, binary.path).splitlines() == [
        "registered 0", str(INVALID_IMAGE), str(INVALID_FUNCTION), str([32] * 8)]


def test_threads_launch_at_the_same_time(library: Path, binary: Binary) -> None:
    program = HOST + """
import threading
def work(seed):
    for _ in range(20):
        values = (ctypes.c_int * 256)(*range(seed, seed + 256))
        status = host.host_reverse(values, 256, 1024)
        if status or list(values) != [seed + 1255 - i for i in range(256)]: failures.append((seed, status))
failures = []
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failures)
"""
    assert own_process(program, library, binary.path) == "[]\n"


def test_torch_tensors_are_device_memory(library: Path, binary: Binary) -> None:
    """torch brings its own C++ library into the process, and exceptions in ours must still be caught."""
    program = HOST + """
import torch
a, b = torch.arange(1000.0), torch.rand(1000)
out = torch.empty(1000)
pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
assert host.host_add(pointer(a), pointer(b), pointer(out), 1000) == 0
assert torch.equal(out, a + b)
print(hip.hipModuleLoadData(ctypes.byref(ctypes.c_void_p()), b"x" * 100))     # thrown and caught inside
"""
    assert own_process(program, library, binary.path) == f"{INVALID_IMAGE}\n"


def test_a_code_object_through_the_module_api(library: Path, binary: Binary) -> None:
    program = LOAD + """
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert hip.hipModuleLoad(ctypes.byref(module), sys.argv[2].encode()) == 0
assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"add") == 0
Floats = ctypes.c_float * 64
device = [ctypes.c_void_p() for _ in range(3)]
for pointer in device: assert hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(256)) == 0
for pointer, data in zip(device, (Floats(*range(64)), Floats(*[1] * 64))):
    assert hip.hipMemcpyHtoD(pointer, data, ctypes.c_size_t(256)) == 0
values = [*device, ctypes.c_int(64)]
parameters = (ctypes.c_void_p * 4)(*[ctypes.addressof(value) for value in values])
assert hip.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, parameters, None) == 0
out = Floats()
assert hip.hipMemcpyDtoH(out, device[2], ctypes.c_size_t(256)) == 0
assert list(out) == [i + 1 for i in range(64)]
assert hip.hipModuleUnload(module) == 0
print("done")
"""
    assert own_process(program, library, binary.code_object) == "done\n"


HIP_PYTHON = """
import ctypes, json, sys
from hip import hip
def checked(result):
    status, *values = result
    assert status == hip.hipError_t.hipSuccess, status
    return values[0] if len(values) == 1 else values
properties = checked(hip.hipGetDeviceProperties(0))
wave = checked(hip.hipDeviceGetAttribute(hip.hipDeviceAttribute_t.hipDeviceAttributeWarpSize, 0))
facts = [checked(hip.hipGetDeviceCount()), properties.name, properties.gcnArchName, properties.multiProcessorCount,
         properties.warpSize, wave]
module = checked(hip.hipModuleLoadData(open(sys.argv[-1], "rb").read()))
add = checked(hip.hipModuleGetFunction(module, b"add"))
n = 200
Floats = ctypes.c_float * n
host = [Floats(*range(n)), Floats(*[0.25] * n), Floats()]
device = [checked(hip.hipMalloc(4 * n)) for _ in host]
kind = hip.hipMemcpyKind
for to, source in zip(device[:2], host): checked(hip.hipMemcpy(to, source, 4 * n, kind.hipMemcpyHostToDevice))
queue = checked(hip.hipStreamCreate())
checked(hip.hipModuleLaunchKernel(add, 4, 1, 1, 64, 1, 1, sharedMemBytes=0, stream=queue, kernelParams=None,
                                  extra=(*device, ctypes.c_int(n))))
checked(hip.hipStreamSynchronize(queue))
checked(hip.hipMemcpy(host[2], device[2], 4 * n, kind.hipMemcpyDeviceToHost))
for memory in device: checked(hip.hipFree(memory))
checked(hip.hipModuleUnload(module))
print(json.dumps([*facts, list(host[2]) == [i + 0.25 for i in range(n)]]))
"""


@pytest.mark.skipif(importlib.util.find_spec("hip") is None, reason="hip-python is not installed")
@pytest.mark.parametrize("how", ["loaded before", "ROCM_PATH", "LD_LIBRARY_PATH"])
def test_hip_python_unchanged(library: Path, binary: Binary, how: str) -> None:
    """It opens libamdhip64.so by that name or below ROCM_PATH."""
    environment = {"ROCM_PATH": {"ROCM_PATH": str(build.prefix())},
                   "LD_LIBRARY_PATH": {"LD_LIBRARY_PATH": str(library.parent)}}.get(how, {})
    program = (LOAD if how == "loaded before" else "") + HIP_PYTHON
    answer = own_process(program, library, binary.code_object, environment=environment)
    assert json.loads(answer) == [1, "AMD Instinct MI300X (emulated)", "gfx942:sramecc+:xnack-", 304, 64, 64, True]


@pytest.mark.parametrize("version", [6, 7])
def test_a_program_that_hipcc_linked(library: Path, binary: Binary, tmp_path: Path, version: int) -> None:
    """Such a program asks for the runtime by a name with a version, and for its kernels' library by a path."""
    source, stub, program = tmp_path / "p.cpp", tmp_path / f"libamdhip64.so.{version}", tmp_path / "p"
    source.write_text("""
        #include <hip/hip_runtime_api.h>
        #include <cstdio>
        extern "C" int host_add(const float*, const float*, float*, int);
        int main() {
            float *a, *b, back[70] = {};
            const size_t size = sizeof back;
            if (hipMalloc(&a, size) != hipSuccess || hipMalloc(&b, size) != hipSuccess) return 1;
            if (hipMemsetD32(a, 0x3f800000, 70) != hipSuccess) return 2;
            if (hipMemsetD32(b, 0x40000000, 70) != hipSuccess) return 3;
            if (host_add(a, b, a, 70) != hipSuccess) return 4;
            if (hipMemcpy(back, a, size, hipMemcpyDeviceToHost) != hipSuccess) return 5;
            printf("%g %g\\n", back[0], back[69]);
        }""")
    (tmp_path / "stub.cpp").write_text("".join(
        f'extern "C" int {name}() {{ return 999; }}\n' for name in ("hipMalloc", "hipMemsetD32", "hipMemcpy")))
    runtime.compile_host("-shared", f"-Wl,-soname,{stub.name}", str(tmp_path / "stub.cpp"), "-o", str(stub))
    runtime.compile_host(
        str(source), str(stub), str(binary.path), "-Wl,--allow-shlib-undefined", "-o", str(program))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build.prefix() / "lib")}
    answer = subprocess.run([str(program)], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout == "3 3\n"
    assert answer.stderr == ""
