# SPDX-License-Identifier: MIT
"""When emulated devices stand in for real ones, and what it takes to run them.

The MI300X does where no AMD device is found; always if asked for (``--emulate``, ``WARPWAVE_EMULATE=1``), never if
refused (``WARPWAVE_EMULATE=0``). NVIDIA's GPUs do if asked for. Choosing one compiles nothing: ``library`` and
``cuda_library`` do, when something is about to run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from backends.base import Device
from backends.errors import BackendError

VARIABLE = "WARPWAVE_EMULATE"
# The properties that HIP reports for the emulated device; its memory is the host's.
DEVICE = Device(0, "AMD Instinct MI300X (emulated)", "MI300", "gfx942", 192 * 2**30, "", True, 256 * 2**20)
CUDA_DEVICES = (
    Device(0, "NVIDIA H100 80GB HBM3 (emulated)", "H100", "sm_90a", 80 * 2**30, "", True, 50 * 2**20),
    Device(1, "NVIDIA L4 (emulated)", "L4", "sm_89", 24 * 2**30, "", True, 48 * 2**20),
)
_WORDS = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}
_chosen: list[bool | None] = []        # by ``use``


def use(wanted: bool | None) -> None:
    """What the settings say for this process: always, never, or (None) where there is no real device."""
    _chosen[:] = [wanted]


def wanted(environment: Mapping[str, str] | None = None) -> bool | None:
    """Whether to emulate: what ``use`` said, else ``$WARPWAVE_EMULATE``, else None: where there is no real device.

    Raises ``BackendError`` for a variable that says neither.
    """
    if _chosen:
        return _chosen[0]
    word = (os.environ if environment is None else environment).get(VARIABLE, "").strip().lower()
    if word in ("", "auto"):
        return None
    if word not in _WORDS:
        raise BackendError(f"{VARIABLE} is 1 (always emulate), 0 (never) or unset, not {word!r}")
    return _WORDS[word]


def devices(
    real: Callable[[], tuple[tuple[Device, ...], tuple[str, ...]]]
) -> tuple[tuple[Device, ...], tuple[str, ...], str]:
    """The devices to use; why there are none, or why an emulated one; and which runtime that is, "" for the real one.

    ``real`` looks for real devices. Compiles nothing, never raises.
    """
    try:
        choice = wanted()
    except BackendError as error:
        return (), (str(error),), ""
    reasons: tuple[str, ...] = ()
    if not choice:
        found, reasons = real()
        if found:
            return found, reasons, ""
        if choice is False:
            off = f"no emulated device: switched off by --no-emulate, {VARIABLE} or the setting emulate"
            return (), (*reasons, off), ""
    try:
        path = ready()
    except (BackendError, OSError) as error:
        return (), (*reasons, f"no emulated device: {error}"), ""
    why = "the MI300X is emulated, as was asked for" if choice else "the MI300X is emulated, as no real one was found"
    return (DEVICE,), (*reasons, why), f"emulator: {path or 'not built yet; the first run does that, in minutes'}"


def ready() -> Path | None:
    """The emulator's ``libamdhip64.so`` if it need not be compiled. Raises ``BackendError``."""
    from backends.emulator import build

    return build.ready()


def library(report: Callable[[str], None] | None = None) -> Path:
    """The emulator's ``libamdhip64.so``, compiled now if it is not there. Raises ``BackendError``."""
    from backends.emulator import build

    return build.library(report=report)


def cuda_devices(
    real: Callable[[], tuple[tuple[Device, ...], tuple[str, ...]]]
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The NVIDIA devices to use, and why there are none. The emulated ones if they are asked for. Never raises."""
    try:
        choice = wanted()
    except BackendError as error:
        return (), (str(error),)
    if choice:
        return CUDA_DEVICES, ("NVIDIA's GPUs are emulated, as was asked for",)
    return real()


def cuda_library(major: int, report: Callable[[str], None] | None = None) -> Path:
    """The emulator's ``libcudart.so``, compiled now if it is not there. Raises ``BackendError``."""
    from backends.emulator import build

    return build.cuda_library(major, report=report)
