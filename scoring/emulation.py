# SPDX-License-Identifier: MIT
"""The emulated device as scoring sees it: which checks run, what the worker asks of the emulator's library, and how the
judge reads what it found and counted.

The library is ``libamdhip64.so`` of ``backends.emulator``; its own C functions take and give JSON text. Findings and
counters cross the wire as plain data, and the judge takes them for claims like any other: a worker can invent a finding
and so fail, but a time made of its counters says ``modelled``. Imports the standard library only, as both sides use it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

CHECKS = (
    "bounds", "misaligned", "uninitialised", "lds-race", "waitcnt", "barrier", "hazard", "global-race",
)
EMULATED = "emulated"      # what limits.case_gflop calls an emulated device, whichever backend it belongs to
SHOWN = 3                  # findings a message tells in full
KEPT = {"findings": 100, "counters": 1000}      # entries of one call that the judge takes


def parse_checks(text: str) -> str:
    """``all``, ``none`` or names separated by commas, as the library takes them; a name after ``-`` is taken away.

    Raises ``ValueError`` with the names there are.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in ("all", "none") and word.removeprefix("-") not in CHECKS:
            raise ValueError(f"no check {word!r}; there are all, none, {', '.join(CHECKS)}")
    if not words:
        raise ValueError(f"which checks? all, none, or some of {', '.join(CHECKS)}")
    if words[0].startswith("-"):
        words.insert(0, "all")
    return ",".join(words)


class Emulator:
    """The library at ``path``, loaded so that kernels find HIP in it; ``options`` as ``warpwave_emulator_set`` takes
    them. Raises ``OSError`` if it cannot be loaded, ``ValueError`` for an option it does not know."""

    def __init__(self, path: str, options: Mapping[str, str]):
        self._library = library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        if _address(ctypes.CDLL(None), "hipLaunchKernel") != _address(library, "hipLaunchKernel"):
            raise OSError("another HIP runtime is in the process, torch's probably; use a torch built for the CPU")
        for name in ("take_findings", "take_counters", "take_message"):
            getattr(library, f"warpwave_emulator_{name}").restype = ctypes.c_void_p
        library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
        library.warpwave_emulator_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        library.warpwave_emulator_unregister.argtypes = [ctypes.c_void_p]
        library.hipGetErrorString.restype = library.hipGetErrorName.restype = ctypes.c_char_p
        for name, value in options.items():
            self.set(name, value)

    def set(self, option: str, value: str) -> None:
        if self._library.warpwave_emulator_set(option.encode(), value.encode()):
            raise ValueError(f"the emulator refuses {option}={value}")

    @contextmanager
    def memory(self, ranges: Sequence[tuple[str, int, int]]) -> Iterator[None]:
        """Within: (name, address, bytes) are known to the checks under their names."""
        known = [entry for entry in ranges if entry[2] > 0]
        for name, address, size in known:
            self._library.warpwave_emulator_register(address, size, name.encode(errors="replace"))
        try:
            yield
        finally:
            for _name, address, _size in known:
                self._library.warpwave_emulator_unregister(address)

    def take_findings(self) -> list[dict[str, Any]]:
        """What the checks found since the last call."""
        found: list[dict[str, Any]] = json.loads(self._take("findings"))
        return found

    def take_counters(self) -> list[dict[str, Any]]:
        """Counters of the launches since the last call, one mapping each."""
        counted: list[dict[str, Any]] = json.loads(self._take("counters"))
        return counted

    def take_message(self) -> str:
        """What the runtime last complained about since the last call; "" if it did not."""
        return self._take("message")

    def describe(self, code: int) -> str:
        """HIP's name and words for an error code."""
        name, text = (str(function(code).decode()) for function in (
            self._library.hipGetErrorName, self._library.hipGetErrorString))
        return f"{name}: {text}"

    def _take(self, what: str) -> str:
        pointer = getattr(self._library, f"warpwave_emulator_take_{what}")()
        if not pointer:
            raise MemoryError("the emulator has no memory left")
        try:
            return ctypes.string_at(pointer).decode(errors="replace")
        finally:
            self._library.warpwave_emulator_free(pointer)


def _address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def entries(reply: Mapping[str, Any], name: str) -> tuple[dict[str, Any], ...]:
    """The JSON objects in the list ``name`` of a reply, at most ``KEPT``; what is none is left out."""
    value = reply.get(name)
    return tuple(item for item in value if isinstance(item, dict))[: KEPT[name]] if isinstance(value, list) else ()


def explain(findings: Sequence[Mapping[str, Any]]) -> str:
    """The first findings in full, then how many more there are; "" for none."""
    shown = [str(finding.get("text") or finding.get("message") or "a finding without words") for finding in
             findings[:SHOWN]]
    more = len(findings) - SHOWN
    if more > 0:
        kinds = sorted({str(finding.get("check", "")) for finding in findings[SHOWN:]})
        shown.append(f"========= and {more} more ({', '.join(kinds)})")
    return "\n".join(shown)


def modelled_seconds(counters: Sequence[Mapping[str, Any]]) -> float | None:
    """The modelled time of a call: its launches' together. None if one of them has none, or nothing was launched."""
    times = [launch.get("modelled_us") for launch in counters]
    if not times or not all(isinstance(time, int | float) and 0 < time < 1e12 for time in times):
        return None
    return sum(time for time in times if isinstance(time, int | float)) * 1e-6
