# SPDX-License-Identifier: MIT
"""AMD devices, their telemetry and the HIP runtime: hip-python, torch where it is loaded already, the kernel's sysfs.

Every source may be missing; what is missing is said in a sentence, never raised. sysfs: the amdgpu driver's KFD
topology (devices) and hwmon (telemetry), as the Linux kernel documents them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backends.base import Device
from backends.toolchain import first_of, package_folder

RUNTIME = "libamdhip64.so"
DEFAULT_PREFIX = Path("/opt/rocm")
KFD = Path("/sys/class/kfd/kfd/topology/nodes")
PCI = Path("/sys/bus/pci/devices")
_FRAME_BUFFER_HEAPS = ("1", "2")       # of KFD's memory banks: the host can or cannot see it
_SYSTEM_LIBRARIES = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib")
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")   # applied in this order, each numbering what is left


class Node(NamedTuple):
    """One GPU of the KFD topology."""

    arch: str
    compute_units: int
    memory_bytes: int
    address: str       # PCI


def label(name: str) -> str:
    """Our label for the driver's device name; the name itself if we have none.

    MI300A and MI325X share gfx942 but not MI300X's peaks, so they keep their own name.
    """
    return "MI300" if "MI300X" in name else name.strip()


def devices() -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices HIP would number, and why there are none. Never raises."""
    if runtime() is None:
        return (), (f"no AMD device: {RUNTIME} is not here (no ROCm; looked in the torch wheel, ROCM_PATH, HIP_PATH, "
                    "/opt/rocm, LD_LIBRARY_PATH and the system's libraries)",)
    found, reasons = first_of((_from_hip_python, _from_torch, _from_sysfs))
    return found, (f"no AMD device: {'; '.join(reasons)}",) if not found else ()


def runtime() -> Path | None:
    """libamdhip64.so: the torch wheel's (whoever uses torch must share it), ROCm's, or the system's."""
    folders = [folder / "lib" for folder in package_folder("torch")]
    folders += [Path(os.environ[name]) / "lib" for name in ("ROCM_PATH", "HIP_PATH") if os.environ.get(name)]
    folders.append(DEFAULT_PREFIX / "lib")
    folders += [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [Path(folder) for folder in _SYSTEM_LIBRARIES]
    found = (folder / RUNTIME for folder in folders)
    return next((path for path in found if path.is_file() and not is_emulator(path)), None)


def is_emulator(path: Path) -> bool:
    """Whether the library at ``path`` is our own: somebody who runs other programs on it may have it in their paths."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return view.find(b"warpwave_emulator_set") >= 0
    except (OSError, ValueError):        # an empty file cannot be mapped
        return False


def telemetry(device: Device) -> dict[str, object]:
    """Clocks (MHz), power (W), temperature (°C); {} where nothing can be read. Never raises."""
    found = nodes()
    if device.index >= len(found):
        return {}
    return hwmon(PCI / found[device.index].address)


# --- hip-python -------------------------------------------------------------------------------------------------

def _from_hip_python() -> tuple[tuple[Device, ...], str]:
    try:
        from hip import hip
    except ImportError:
        return (), 'hip-python is not installed (pip install -e ".[rocm]")'
    status, count = hip.hipGetDeviceCount()
    if status:
        return (), f"hipGetDeviceCount: {status.name}"
    status, version = hip.hipDriverGetVersion()
    driver = "" if status else f"HIP {version // 10_000_000}.{version // 100_000 % 100}"
    return tuple(_hip_device(hip, index, driver) for index in range(count)), "HIP sees no device"


def _hip_device(hip: Any, index: int, driver: str) -> Device:
    try:
        status, properties = hip.hipGetDeviceProperties(index)          # hip-python 10 and later
    except TypeError:
        properties = hip.hipDeviceProp_t()
        (status,) = hip.hipGetDeviceProperties(properties, index)
    if status:
        raise OSError(f"hipGetDeviceProperties({index}): {status.name}")
    name, gcn_arch = _text(properties.name), _text(properties.gcnArchName)
    return Device(index, name, label(name), gcn_arch.partition(":")[0], int(properties.totalGlobalMem), driver)


def _text(value: bytes | str) -> str:
    """A C string: bytes before hip-python 10, text since."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text.split("\0")[0]


# --- torch ------------------------------------------------------------------------------------------------------

def _from_torch() -> tuple[tuple[Device, ...], str]:
    """Only where torch is loaded already: importing it takes seconds."""
    torch = sys.modules.get("torch")
    if torch is None or torch.version.hip is None or not torch.cuda.is_available():
        return (), "torch is not loaded or sees none"
    found = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        # gcnArchName reads "gfx942:sramecc+:xnack-".
        arch = facts.gcnArchName.partition(":")[0]
        found.append(Device(index, facts.name, label(facts.name), arch, facts.total_memory, f"HIP {torch.version.hip}"))
    return tuple(found), "torch sees none"


# --- sysfs ------------------------------------------------------------------------------------------------------

def _from_sysfs() -> tuple[tuple[Device, ...], str]:
    found = []
    for index, node in enumerate(nodes()):
        name = _line(PCI / node.address / "product_name") or f"AMD {node.arch} with {node.compute_units} CUs"
        found.append(Device(index, name, label(name), node.arch, node.memory_bytes, _line(Path(
            "/sys/module/amdgpu/version"))))
    return tuple(found), f"{KFD} lists no GPU (amdgpu driver not loaded?)"


def nodes(topology: Path | None = None, environment: Mapping[str, str] | None = None) -> list[Node]:
    """GPUs of the KFD topology as HIP would number them under its variables (numbers only)."""
    environment = os.environ if environment is None else environment
    folders = sorted(((topology or KFD).glob("[0-9]*")), key=lambda folder: int(folder.name))
    found = [node for folder in folders if (node := _node(folder)) is not None]
    for variable in _VISIBLE:
        entries = [entry.strip() for entry in environment.get(variable, "").split(",") if entry.strip()]
        if entries and all(entry.removeprefix("-").isdigit() for entry in entries):
            found = [found[int(entry)] for entry in entries if 0 <= int(entry) < len(found)]
    return found


def _node(folder: Path) -> Node | None:
    facts = _properties(folder / "properties")
    version = facts.get("gfx_target_version", 0)       # 90402: major, minor, stepping, two digits each
    if not version:
        return None                                    # a CPU
    arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    memory = 0
    for bank in folder.glob("mem_banks/*/properties"):
        bank_facts = _properties(bank)
        if str(bank_facts.get("heap_type", "")) in _FRAME_BUFFER_HEAPS:
            memory += bank_facts.get("size_in_bytes", 0)
    location = facts.get("location_id", 0)             # bus, device, function as PCI packs them
    address = f"{facts.get('domain', 0):04x}:{location >> 8 & 255:02x}:{location >> 3 & 31:02x}.{location & 7}"
    units = facts.get("simd_count", 0) // max(facts.get("simd_per_cu", 4), 1)
    return Node(arch, units, memory, address)


def hwmon(device: Path) -> dict[str, object]:
    """Telemetry from ``device``'s hwmon folder; what the driver does not offer is left out."""
    found: dict[str, object] = {}
    for folder in sorted((device / "hwmon").glob("hwmon*")):
        for key, names, unit in (
            ("sm_clock_mhz", ("freq1_input",), 1e6), ("memory_clock_mhz", ("freq2_input",), 1e6),
            ("power_w", ("power1_input", "power1_average"), 1e6), ("power_limit_w", ("power1_cap",), 1e6),
            ("temperature_c", ("temp2_input", "temp1_input"), 1e3),   # the hottest spot before the edge
        ):
            for name in names:
                with contextlib.suppress(ValueError):
                    found.setdefault(key, float(_line(folder / name)) / unit)
    return found


def _properties(path: Path) -> dict[str, int]:
    """``name value`` lines with whole numbers."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = [line.split() for line in lines]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
