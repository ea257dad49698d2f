# SPDX-License-Identifier: MIT
"""NVIDIA devices and their telemetry: cuda-python, torch where it is loaded already, NVML, nvidia-smi.

Probing makes no CUDA context. Every source may be missing; what is missing is said in a sentence, never raised.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from backends import _process
from backends.base import Device
from backends.toolchain import first_of, which

# The driver's name -> our label. Siblings such as H100 PCIe or H200 NVL have other peaks, so they keep their own name.
LABELS = {
    "NVIDIA H200": "H200",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H800": "H100",
    "NVIDIA L4": "L4",
}
# Bits of NVML's clock event reasons (nvml.h), by nvidia-smi's words.
THROTTLE_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_SMI_DEVICES = "index,uuid,name,compute_cap,memory.total,driver_version"
_SMI_TELEMETRY = "clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu,clocks_throttle_reasons.active"


def label(name: str) -> str:
    """Our label for the driver's device name; the name itself if we have none."""
    return LABELS.get(name.strip(), name.strip())


def arch(major: int, minor: int) -> str:
    """nvcc's spelling of a compute capability; Hopper's is the one with its tensor cores."""
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


def throttle_reasons(mask: int) -> list[str]:
    """Names of the bits of NVML's mask, in its order; unknown bits in hexadecimal."""
    known = [name for bit, name in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~sum(THROTTLE_REASONS)
    return known + ([hex(rest)] if rest else [])


def devices() -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices CUDA would number, and why there are none. Never raises."""
    found, reasons = first_of((_from_cuda_python, _from_torch, _from_smi))
    return found, (f"no NVIDIA device: {'; '.join(reasons)}",) if not found else ()


def telemetry(device: Device) -> dict[str, object]:
    """Clocks (MHz), power (W), temperature (°C), throttle reasons; {} where nothing can be read. Never raises."""
    if nvml := _nvml():
        with contextlib.suppress(nvml.NVMLError):
            return _nvml_telemetry(nvml, device)
    return _smi_telemetry(device)


def driver_cuda() -> tuple[int, int] | None:
    """The CUDA release the driver supports; None without a driver. Needs no package and makes no context."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


def _driver_version() -> str:
    if nvml := _nvml():
        with contextlib.suppress(nvml.NVMLError):
            return str(nvml.nvmlSystemGetDriverVersion())
    with contextlib.suppress(OSError):
        for word in Path("/proc/driver/nvidia/version").read_text().split():
            if word.replace(".", "").isdigit() and "." in word:
                return word
    return ""


# --- cuda-python ------------------------------------------------------------------------------------------------

def _from_cuda_python() -> tuple[tuple[Device, ...], str]:
    driver = _cuda_driver()
    if isinstance(driver, str):
        return (), driver
    error, count = driver.cuDeviceGetCount()
    if error:
        return (), f"cuDeviceGetCount: {error.name}"
    version = _driver_version()
    return tuple(_cuda_device(driver, index, version) for index in range(count)), "the CUDA driver sees no device"


@functools.cache
def _cuda_driver() -> ModuleType | str:
    """cuda-python's driver API, initialised, or why it is not usable."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return 'cuda-python is not installed (pip install -e ".[cuda]")'
    try:
        (error,) = driver.cuInit(0)
    except RuntimeError as failure:   # how cuda-python says that libcuda.so.1 is not there
        return f"no CUDA driver ({str(failure).splitlines()[0]})"
    if error:
        return f"cuInit: {error.name}"
    module: ModuleType = driver
    return module


def _cuda_device(driver: Any, index: int, version: str) -> Device:
    handle = _value(driver.cuDeviceGet(index))
    attributes = driver.CUdevice_attribute

    def attribute(name: str) -> int:
        return int(_value(driver.cuDeviceGetAttribute(getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), handle)))

    name = _value(driver.cuDeviceGetName(256, handle)).split(b"\0")[0].decode(errors="replace")
    return Device(
        index, name, label(name), arch(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        int(_value(driver.cuDeviceTotalMem(handle))), version, llc_bytes=attribute("L2_CACHE_SIZE"),
    )


def _value(answer: tuple[Any, Any]) -> Any:
    error, value = answer
    if error:
        raise OSError(f"CUDA driver: {error.name}")
    return value


# --- torch ------------------------------------------------------------------------------------------------------

def _from_torch() -> tuple[tuple[Device, ...], str]:
    """Only where torch is loaded already: importing it takes seconds."""
    torch = sys.modules.get("torch")
    if torch is None or torch.version.cuda is None or not torch.cuda.is_available():
        return (), "torch is not loaded or sees none"
    version = _driver_version()
    found = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        found.append(Device(index, facts.name, label(facts.name), arch(facts.major, facts.minor), facts.total_memory,
                            version, llc_bytes=getattr(facts, "L2_cache_size", 0)))
    return tuple(found), "torch sees none"


# --- nvidia-smi -------------------------------------------------------------------------------------------------

def _from_smi() -> tuple[tuple[Device, ...], str]:
    smi = which("nvidia-smi")
    if smi is None:
        return (), "nvidia-smi is not on PATH (no NVIDIA driver?)"
    answer = _process.ask([str(smi), f"--query-gpu={_SMI_DEVICES}", "--format=csv,noheader,nounits"])
    if answer is None:
        return (), "nvidia-smi fails (driver not loaded?)"
    return parse_smi_devices(answer, os.environ.get("CUDA_VISIBLE_DEVICES")), "nvidia-smi lists none"


def parse_smi_devices(answer: str, visible: str | None = None) -> tuple[Device, ...]:
    """Devices from nvidia-smi's CSV, numbered as CUDA would under ``CUDA_VISIBLE_DEVICES``: indices or UUIDs."""
    rows = [[field.strip() for field in line.split(",")] for line in answer.splitlines()]
    rows = [row for row in rows if len(row) == 6 and row[0].isdigit()]
    if visible is not None:
        rows = _chosen(rows, visible)
    found = []
    for index, (_, _, name, capability, mebibytes, version) in enumerate(rows):
        major, _, minor = capability.partition(".")
        if major.isdigit() and minor.isdigit():
            memory = int(mebibytes) * 2**20 if mebibytes.isdigit() else 0
            found.append(Device(index, name, label(name), arch(int(major), int(minor)), memory, version))
    return tuple(found)


def _chosen(rows: list[list[str]], visible: str) -> list[list[str]]:
    """The rows that ``visible`` names, in its order; like CUDA, the first name that fits none ends the list."""
    chosen = []
    for entry in (entry.strip() for entry in visible.split(",")):
        hit = next((row for row in rows if entry == row[0] or (entry.startswith("GPU-") and row[1].startswith(entry))),
                   None)
        if hit is None:
            break
        chosen.append(hit)
    return chosen


def _selector(device: Device) -> str:
    """What NVML and nvidia-smi call the device that CUDA numbers ``device.index``: PCI address, UUID or index."""
    driver = _cuda_driver()
    if not isinstance(driver, str):
        with contextlib.suppress(OSError):
            handle = _value(driver.cuDeviceGet(device.index))
            address: bytes = _value(driver.cuDeviceGetPCIBusId(32, handle))
            return address.split(b"\0")[0].decode()
    visible = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return visible[device.index] if device.index < len(visible) and visible[device.index] else str(device.index)


def _smi_telemetry(device: Device) -> dict[str, object]:
    smi = which("nvidia-smi")
    if smi is None:
        return {}
    answer = _process.ask([str(smi), "-i", _selector(device), f"--query-gpu={_SMI_TELEMETRY}",
                           "--format=csv,noheader,nounits"])
    return parse_smi_telemetry(answer or "")


def parse_smi_telemetry(answer: str) -> dict[str, object]:
    """One line of nvidia-smi's CSV as a mapping; what it calls N/A is left out."""
    fields = [field.strip() for field in answer.strip().split(",")]
    keys = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "power_limit_w", "temperature_c")
    if len(fields) != len(keys) + 1:
        return {}
    found: dict[str, object] = {}
    for key, text in zip(keys, fields, strict=False):
        with contextlib.suppress(ValueError):
            found[key] = float(text)
    with contextlib.suppress(ValueError):
        found["throttle_reasons"] = throttle_reasons(int(fields[-1], 16))
    return found


# --- NVML -------------------------------------------------------------------------------------------------------

@functools.cache
def _nvml() -> Any | None:
    """pynvml, initialised; None where it or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _nvml_telemetry(nvml: Any, device: Device) -> dict[str, object]:
    selector = _selector(device)
    if selector.isdigit():
        handle = nvml.nvmlDeviceGetHandleByIndex(int(selector))
    elif selector.startswith(("GPU-", "MIG-")):
        handle = nvml.nvmlDeviceGetHandleByUUID(selector)
    else:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(selector)
    questions: Mapping[str, Any] = {
        "sm_clock_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "memory_clock_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0,
        "temperature_c": lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "throttle_reasons": lambda: throttle_reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }
    found: dict[str, object] = {}
    for key, question in questions.items():
        with contextlib.suppress(nvml.NVMLError):   # not every board answers every question
            found[key] = question()
    return found
