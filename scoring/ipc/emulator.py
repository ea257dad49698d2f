# SPDX-License-Identifier: MIT
"""The emulated device as scoring sees it: which checks run, what the worker asks of the emulator's library, and how the
judge reads what it found and counted.

The library is ``libamdhip64.so`` or ``libcudart.so`` of ``backends.emulator``; its own C functions take and give JSON
text. Findings and counters cross the wire as plain data, and the judge takes them for claims like any other: a worker
can invent a finding and so fail, but a time made of its counters says ``modelled``. Imports the standard library only,
as both sides use it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

CHECKS = (
    "bounds", "misaligned", "uninitialised", "lds-race", "waitcnt", "barrier", "hazard", "global-race",
)
# Of emulated NVIDIA GPUs. The first four end a launch and are always on. The last one is an advisory, which only its
# name switches on.
CUDA_CHECKS = (
    "bounds", "misaligned", "barrier", "mbarrier", "shared-race", "proxy-fence", "in-flight", "uninitialised",
    "cluster", "grid-order", "collective", "global-race", "proxy-read",
)
_KNOWN = tuple(dict.fromkeys(CHECKS + CUDA_CHECKS))
EMULATED = "emulated"      # what limits.case_gflop calls an emulated device, whichever backend it belongs to
SHOWN = 3                  # findings a message tells in full
KEPT = {"findings": 100, "counters": 1000}      # entries of one call that the judge takes


def parse_checks(text: str) -> str:
    """``all``, ``none`` or names separated by commas, as the library takes them; a name after ``-`` is taken away.

    Raises ``ValueError`` with the names there are.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in ("all", "none") and word.removeprefix("-") not in _KNOWN:
            raise ValueError(f"no check {word!r}; there are all, none, {', '.join(_KNOWN)}")
    if not words:
        raise ValueError(f"which checks? all, none, or some of {', '.join(_KNOWN)}")
    if words[0].startswith("-"):
        words.insert(0, "all")
    return ",".join(words)


def checks_of(backend: str, text: str) -> str:
    """Those of ``parse_checks``'s words that the emulated device of a backend (``rocm``, ``cuda``) has; ``none`` if it
    has none of them."""
    here = CUDA_CHECKS if backend == "cuda" else CHECKS
    words = [word for word in text.split(",") if word in ("all", "none") or word.removeprefix("-") in here]
    return ",".join(words) or "none"


def parse_schedule(text: str) -> str:
    """How an emulated NVIDIA GPU orders what the kernel does not: ``eager``, ``late`` or ``random:SEED``.

    Raises ``ValueError``.
    """
    name, _, seed = text.strip().partition(":")
    if (name in ("eager", "late") and not seed) or (name == "random" and seed.isdecimal() and int(seed) < 2**64):
        return text.strip()
    raise ValueError(f"no schedule {text!r}; there are eager, late and random:SEED, a seed below 2^64")


class Emulator:
    """The library at ``path``, loaded so that kernels find HIP in it; ``options`` as ``warpwave_emulator_set`` takes
    them. Raises ``OSError`` if it cannot be loaded, ``ValueError`` for an option it does not know."""

    def __init__(self, path: str, options: Mapping[str, str]):
        self.path = path
        self._aside: list[dict[str, Any]] = []       # counters of launches before those that were modelled
        self.names: dict[str, str] = {}              # what findings call a file, by what compilers called it
        self._library = library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.api, runtime = ("hip", "HIP") if hasattr(library, "hipLaunchKernel") else ("cuda", "CUDA")
        if _address(ctypes.CDLL(None), f"{self.api}LaunchKernel") != _address(library, f"{self.api}LaunchKernel"):
            raise OSError(f"another {runtime} runtime is in the process, torch's probably; use a torch built for the "
                          "CPU")
        for name in ("take_findings", "take_counters", "take_message"):
            getattr(library, f"warpwave_emulator_{name}").restype = ctypes.c_void_p
        library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
        library.warpwave_emulator_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        library.warpwave_emulator_unregister.argtypes = [ctypes.c_void_p]
        for name in ("Name", "String"):
            getattr(library, f"{self.api}GetError{name}").restype = ctypes.c_char_p
        if self.api == "hip":       # what is modelled is launched again
            library.warpwave_emulator_take_record.restype = ctypes.c_void_p
            library.warpwave_emulator_place.restype = ctypes.c_void_p
            library.warpwave_emulator_place.argtypes = [
                ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p]
            library.warpwave_emulator_displace.argtypes = [ctypes.c_void_p]
            library.warpwave_emulator_launch.argtypes = [
                ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
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
            self.register(name, address, size)
        try:
            yield
        finally:
            for _name, address, _size in known:
                self.unregister(address)

    def register(self, name: str, address: int, size: int) -> None:
        """Memory of the host becomes known to the checks under a name."""
        self._library.warpwave_emulator_register(address, size, name.encode(errors="replace"))

    def unregister(self, address: int) -> None:
        self._library.warpwave_emulator_unregister(address)

    @contextmanager
    def recording(self, how: str) -> Iterator[None]:
        """Within: launches are recorded, besides being run ("beside") or in place of that ("instead")."""
        self.take_record()
        self.set("record", {"beside": "1", "instead": "2"}[how])
        try:
            yield
        finally:
            self.set("record", "0")

    def take_record(self) -> dict[str, Any]:
        """What was recorded since the last call: see ``recorded.cpp`` for its form."""
        found: dict[str, Any] = json.loads(self._take("record"))
        return found

    def place(self, code: bytes, address: int) -> tuple[int, int] | str:
        """A code object at an address: a handle and how many bytes it takes there, or why that cannot be."""
        message, taken = ctypes.create_string_buffer(512), ctypes.c_uint64()
        handle = self._library.warpwave_emulator_place(code, len(code), address, ctypes.byref(taken), message)
        return (int(handle), taken.value) if handle else message.value.decode(errors="replace")

    def displace(self, module: int) -> None:
        self._library.warpwave_emulator_displace(module)

    def launch(self, module: int, kernel: str, shape: Sequence[int], arguments: bytes) -> str:
        """Run a kernel of a placed code object; ``shape``: grid, block and bytes of dynamic LDS. "", or what went
        wrong."""
        message = ctypes.create_string_buffer(512)
        numbers = (ctypes.c_uint32 * 7)(*shape)
        failed = self._library.warpwave_emulator_launch(
            module, kernel.encode(), numbers, arguments, len(arguments), message)
        return message.value.decode(errors="replace") or "the launch failed" if failed else ""

    def fill(self, address: int, value: int, width: int, count: int) -> None:
        """``count`` elements of ``width`` bytes (1, 2 or 4)."""
        fill = getattr(self._library, f"hipMemsetD{8 * width}")
        fill(ctypes.c_void_p(address), ctypes.c_uint32(value), ctypes.c_size_t(count))

    def copy(self, to: int, source: int, count: int) -> None:
        """``count`` bytes within the device's memory."""
        device_to_device = 3
        self._library.hipMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(count), device_to_device)

    def take_findings(self) -> list[dict[str, Any]]:
        """What the checks found since the last call."""
        text = self._take("findings")
        for theirs, ours in self.names.items():
            text = text.replace(json.dumps(theirs)[1:-1], json.dumps(ours)[1:-1])
        found: list[dict[str, Any]] = json.loads(text)
        return found

    def take_counters(self) -> list[dict[str, Any]]:
        """Counters of the launches since the last call, one mapping each."""
        counted: list[dict[str, Any]] = json.loads(self._take("counters"))
        counted, self._aside = [*self._aside, *counted], []
        return counted

    def modelled(self, run: Callable[[], object]) -> float | None:
        """Seconds of what ``run`` launches, as ``modelled_seconds``; its counters are not among those of the call."""
        before = self.take_counters()
        run()
        found, self._aside = self.take_counters(), before
        return modelled_seconds(found)

    def last_error(self) -> int:
        """The runtime's code of the last call that failed, which nobody has asked for; 0 for none."""
        return int(getattr(self._library, f"{self.api}GetLastError")())

    def take_message(self) -> str:
        """What the runtime last complained about since the last call; "" if it did not."""
        return self._take("message")

    def describe(self, code: int) -> str:
        """The runtime's name and words for an error code."""
        name, text = (str(getattr(self._library, f"{self.api}GetError{part}")(code).decode())
                      for part in ("Name", "String"))
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


def modelled_band(counters: Sequence[Mapping[str, Any]]) -> float:
    """By how much the modelled time of a call can be wrong: a fraction of it either way. The launches' own, each by its
    share of the time; 1 where a launch has none."""
    total = modelled_seconds(counters)
    if not total:
        return 1.0
    bands = [launch.get("modelled_band") for launch in counters]
    weighted = sum((band if isinstance(band, int | float) and 0 <= band <= 1 else 1.0) * float(launch["modelled_us"])
                   for band, launch in zip(bands, counters, strict=True))
    return weighted * 1e-6 / total
