# SPDX-License-Identifier: MIT
"""Devices and telemetry as the vendors' tools state them, without the vendors' hardware."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from backends import _amd, _nvidia, cpu, cuda, rocm
from backends.base import Device
from backends.toolchain import Tool, first_of

SMI = """0, GPU-1f3c, NVIDIA H100 80GB HBM3, 9.0, 81559, 580.95.05
1, GPU-27aa, NVIDIA L4, 8.9, 23034, 580.95.05
2, GPU-9b0e, NVIDIA L40S, 8.9, 46068, 580.95.05
"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    _nvidia._cuda_driver.cache_clear()
    _nvidia._nvml.cache_clear()


# --- NVIDIA -----------------------------------------------------------------------------------------------------

def test_labels_are_for_the_gpus_whose_peaks_we_know() -> None:
    names = ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA L4", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA L40S"]
    assert [_nvidia.label(name) for name in names] == ["H200", "H100", "L4", *names[3:]]
    assert [_nvidia.arch(*version) for version in ((9, 0), (8, 9), (10, 0))] == ["sm_90a", "sm_89", "sm_100"]


def test_nvidia_smi_lists_devices_as_cuda_numbers_them() -> None:
    devices = _nvidia.parse_smi_devices(SMI)
    assert [(device.index, device.gpu, device.arch) for device in devices] == [
        (0, "H100", "sm_90a"), (1, "L4", "sm_89"), (2, "NVIDIA L40S", "sm_89")]
    assert devices[0] == Device(0, "NVIDIA H100 80GB HBM3", "H100", "sm_90a", 81559 * 2**20, "580.95.05")
    assert _nvidia.parse_smi_devices("No devices were found\n") == ()


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [("2,0", ["NVIDIA L40S", "H100"]), ("", []), ("-1", []), ("1,-1,0", ["L4"]), ("7", []),
     ("GPU-9b,GPU-1f3c", ["NVIDIA L40S", "H100"]), ("GPU-unknown", [])],
)
def test_nvidia_smis_devices_follow_cudas_variable(visible: str, gpus: list[str]) -> None:
    devices = _nvidia.parse_smi_devices(SMI, visible)
    assert [device.gpu for device in devices] == gpus
    assert [device.index for device in devices] == list(range(len(gpus)))


@pytest.mark.parametrize(
    ("version", "driver", "starts"),
    [("nvcc 13.0.88", (13, 0), True), ("nvcc 13.5.1", (13, 0), True), ("nvcc 12.4.1", (13, 0), True),
     ("nvcc 13.0.88", (12, 4), False), ("nvcc 13.0.88", None, True)],
)
def test_a_toolkit_newer_than_the_driver_is_said(version: str, driver: tuple[int, int] | None, starts: bool) -> None:
    reason = cuda.newer_than_driver(Tool(Path("/cuda/bin/nvcc"), version), driver)
    assert (reason == "") == starts
    assert starts or "supports CUDA 12.4 and /cuda/bin/nvcc is 13.0" in reason


def test_nvidia_smi_telemetry() -> None:
    assert _nvidia.parse_smi_telemetry("1980, 2619, 121.53, 700.00, 34, 0x0000000000000044\n") == {
        "sm_clock_mhz": 1980.0, "memory_clock_mhz": 2619.0, "power_w": 121.53, "power_limit_w": 700.0,
        "temperature_c": 34.0, "throttle_reasons": ["sw_power_cap", "hw_thermal_slowdown"]}
    assert _nvidia.parse_smi_telemetry("1980, [N/A], [N/A], [N/A], 34, [N/A]") == {
        "sm_clock_mhz": 1980.0, "temperature_c": 34.0}
    assert _nvidia.parse_smi_telemetry("") == {}


def test_throttle_reasons_have_names() -> None:
    assert _nvidia.throttle_reasons(0) == []
    assert _nvidia.throttle_reasons(0x1 | 0x80) == ["gpu_idle", "hw_power_brake_slowdown"]
    assert _nvidia.throttle_reasons(0x4 | 0x1000) == ["sw_power_cap", "0x1000"]


def fake_driver(count: int = 1) -> SimpleNamespace:
    """cuda.bindings.driver, as far as the probe asks it: (status, value) tuples, status false for success."""
    attributes = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=9, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=0,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE=62914560)
    return SimpleNamespace(
        cuInit=lambda _: (0,), cuDeviceGetCount=lambda: (0, count), cuDeviceGet=lambda index: (0, index),
        cuDeviceGetName=lambda size, device: (0, b"NVIDIA H200\0\0"), CUdevice_attribute=attributes,
        cuDeviceGetAttribute=lambda value, device: (0, value), cuDeviceTotalMem=lambda device: (0, 150 * 10**9),
        cuDeviceGetPCIBusId=lambda size, device: (0, b"00000000:1B:00.0\0"))


def install(monkeypatch: pytest.MonkeyPatch, driver: SimpleNamespace) -> None:
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=SimpleNamespace(driver=driver)))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setattr(_nvidia, "_from_torch", lambda: ((), "torch is not asked"))     # a GPU may be here
    _nvidia._cuda_driver.cache_clear()


def test_cuda_python_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_driver())
    devices, reasons = _nvidia.devices()
    assert reasons == ()
    assert [(device.name, device.gpu, device.arch, device.memory_bytes, device.llc_bytes) for device in devices] == [
        ("NVIDIA H200", "H200", "sm_90a", 150 * 10**9, 62914560)]
    assert cuda.BACKEND.target_for(devices[0]) == cuda.BACKEND.target("H200")


@pytest.mark.parametrize("name", ["cuInit", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceTotalMem"])
def test_a_driver_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    driver = fake_driver()
    error = SimpleNamespace(name="CUDA_ERROR_SYSTEM_NOT_READY")
    setattr(driver, name, lambda *_: (error,) if name == "cuInit" else (error, None))
    install(monkeypatch, driver)
    monkeypatch.setenv("PATH", "/nowhere")
    devices, reasons = _nvidia.devices()
    assert devices == ()
    assert "CUDA_ERROR_SYSTEM_NOT_READY" in reasons[0]


def test_no_driver_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = fake_driver()

    def refuse(_: int) -> tuple[int]:
        raise RuntimeError("libcuda.so.1 cannot be found\nmore")

    driver.cuInit = refuse
    install(monkeypatch, driver)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no CUDA driver (libcuda.so.1 cannot be found)" in _nvidia.devices()[1][0]


class FakeNvml(SimpleNamespace):
    class NVMLError(Exception):
        pass


def test_telemetry_comes_from_nvml_by_the_devices_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> int:
        raise FakeNvml.NVMLError

    nvml = FakeNvml(
        nvmlDeviceGetHandleByPciBusId=lambda address: address, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2,
        nvmlDeviceGetClockInfo=lambda handle, clock: {1: 1755, 2: 3201}[clock],
        nvmlDeviceGetPowerUsage=lambda handle: 512_345, nvmlDeviceGetEnforcedPowerLimit=denied,
        NVML_TEMPERATURE_GPU=0, nvmlDeviceGetTemperature=lambda handle, sensor: 61,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 4)
    install(monkeypatch, fake_driver())
    monkeypatch.setattr(_nvidia, "_nvml", lambda: nvml)
    monkeypatch.setattr(_nvidia._nvml, "cache_clear", lambda: None, raising=False)
    assert cuda.BACKEND.telemetry(Device(0, "NVIDIA H200", "H200", "sm_90a", 0)) == {
        "sm_clock_mhz": 1755.0, "memory_clock_mhz": 3201.0, "power_w": 512.345, "temperature_c": 61.0,
        "throttle_reasons": ["sw_power_cap"]}


def test_no_telemetry_is_an_empty_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert cuda.BACKEND.telemetry(Device(0, "x", "x", "sm_90a", 0)) == {}
    assert rocm.BACKEND.telemetry(Device(99, "x", "x", "gfx942", 0)) == {}


# --- AMD --------------------------------------------------------------------------------------------------------

def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a CPU and two MI300X, as the amdgpu driver shows it."""
    write(tmp_path / "kfd/0/properties", "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n")
    for node, bus in ((1, 0x05), (10, 0x26)):
        write(tmp_path / f"kfd/{node}/properties",
              f"simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id {bus << 8}\ndomain 0\n"
              "unique_id 18446744073709551615\n")
        write(tmp_path / f"kfd/{node}/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 206141652992\n")
        address = tmp_path / f"pci/0000:{bus:02x}:00.0"
        write(address / "product_name", "AMD Instinct MI300X OAM\n" if node == 1 else "")
        for name, value in (("freq1_input", 2100_000_000), ("freq2_input", 1300_000_000), ("temp1_input", 38_000),
                            ("temp2_input", 45_000), ("power1_average", 141_000_000), ("power1_cap", 750_000_000)):
            write(address / "hwmon/hwmon3" / name, f"{value}\n")
    monkeypatch.setattr(_amd, "KFD", tmp_path / "kfd")
    monkeypatch.setattr(_amd, "PCI", tmp_path / "pci")
    monkeypatch.setattr(_amd, "runtime", lambda: Path("/opt/rocm/lib/libamdhip64.so"))
    for variable in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "hip", None)
    return tmp_path


def test_the_kernels_topology_lists_devices(sysfs: Path) -> None:
    devices, reasons = _amd.devices()
    assert reasons == ()
    assert [(device.index, device.name, device.gpu, device.arch, device.memory_bytes) for device in devices] == [
        (0, "AMD Instinct MI300X OAM", "MI300", "gfx942", 206141652992),
        (1, "AMD gfx942 with 304 CUs", "AMD gfx942 with 304 CUs", "gfx942", 206141652992)]
    assert rocm.BACKEND.target_for(devices[0]) == rocm.BACKEND.target("MI300")
    assert not rocm.BACKEND.target_for(devices[1]).peaks
    assert rocm.BACKEND.runtime_libraries(devices[0]) == [Path("/opt/rocm/lib/libamdhip64.so")]
    assert rocm.BACKEND.runtime_libraries(None) == []


def test_visible_devices_are_numbered_anew(sysfs: Path) -> None:
    def buses(**environment: str) -> list[str]:
        return [node.address[5:7] for node in _amd.nodes(environment=environment)]

    assert buses() == ["05", "26"]
    assert buses(HIP_VISIBLE_DEVICES="1") == ["26"]
    assert buses(ROCR_VISIBLE_DEVICES="1,0", HIP_VISIBLE_DEVICES="0") == ["26"]
    assert buses(HIP_VISIBLE_DEVICES="7") == []
    assert buses(HIP_VISIBLE_DEVICES="-1") == []


def test_telemetry_comes_from_hwmon(sysfs: Path) -> None:
    assert rocm.BACKEND.telemetry(Device(0, "AMD Instinct MI300X", "MI300", "gfx942", 0)) == {
        "sm_clock_mhz": 2100.0, "memory_clock_mhz": 1300.0, "power_w": 141.0, "power_limit_w": 750.0,
        "temperature_c": 45.0}


class HipProperties(SimpleNamespace):
    pass


@pytest.mark.parametrize("modern", [True, False])
def test_hip_python_is_asked_in_both_its_dialects(sysfs: Path, monkeypatch: pytest.MonkeyPatch, modern: bool) -> None:
    facts = {"name": "AMD Instinct MI300X", "gcnArchName": "gfx942:sramecc+:xnack-", "totalGlobalMem": 7}
    hip = SimpleNamespace(hipGetDeviceCount=lambda: (0, 1), hipDriverGetVersion=lambda: (0, 70226015))
    if modern:
        hip.hipGetDeviceProperties = lambda index: (0, SimpleNamespace(**facts))
    else:
        hip.hipDeviceProp_t = HipProperties

        def properties(out: HipProperties, index: int) -> tuple[int]:
            out.__dict__.update({key: value.encode() + b"\0" if isinstance(value, str) else value
                                 for key, value in facts.items()})
            return (0,)

        hip.hipGetDeviceProperties = properties
    monkeypatch.setitem(sys.modules, "hip", SimpleNamespace(hip=hip))
    assert _amd.devices() == ((Device(0, "AMD Instinct MI300X", "MI300", "gfx942", 7, "HIP 7.2"),), ())


def test_without_the_runtime_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_amd, "package_folder", lambda name: [])
    monkeypatch.setattr(_amd, "_SYSTEM_LIBRARIES", ())
    monkeypatch.setattr(_amd, "DEFAULT_PREFIX", Path("/nowhere"))
    for variable in ("LD_LIBRARY_PATH", "ROCM_PATH", "HIP_PATH"):
        monkeypatch.delenv(variable, raising=False)
    devices, reasons = _amd.devices()
    assert devices == ()
    assert "libamdhip64.so is not here" in reasons[0]


def test_the_runtime_is_torchs_before_rocms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_amd, "package_folder", lambda name: [tmp_path / "torch"])
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    write(tmp_path / "rocm/lib/libamdhip64.so", "")
    assert _amd.runtime() == tmp_path / "rocm/lib/libamdhip64.so"
    write(tmp_path / "torch/lib/libamdhip64.so", "")
    assert _amd.runtime() == tmp_path / "torch/lib/libamdhip64.so"


# --- both -------------------------------------------------------------------------------------------------------

def test_a_source_that_fails_in_any_way_is_a_reason() -> None:
    def broken() -> tuple[tuple[Device, ...], str]:
        raise TypeError("new signature")

    device = Device(0, "x", "x", "x", 0)
    assert first_of([broken, lambda: ((), "none")]) == ((), ["TypeError: new signature", "none"])
    assert first_of([broken, lambda: ((device,), "none")]) == ((device,), [])


def test_the_cpu_is_always_a_device() -> None:
    available = cpu.BACKEND.probe()
    assert available.can_run
    (device,) = available.devices
    assert device.gpu == "CPU"
    assert device.name
    assert device.memory_bytes > 2**28
    target = cpu.BACKEND.target_for(device)
    assert target == cpu.BACKEND.target()
    assert target.llc_bytes >= 2**18
    assert target.fp8 == "e4m3fn"


def test_cache_sizes_are_read_from_sysfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for index, size in enumerate(("32K", "1024K", "36M", "junk")):
        write(tmp_path / f"index{index}" / "size", size + "\n")
    monkeypatch.setattr(cpu, "_CACHES", tmp_path)
    assert cpu.last_level_cache() == 36 * 2**20
