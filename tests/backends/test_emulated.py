# SPDX-License-Identifier: MIT
"""Which runtime HIP kernels get: a real device's, the emulator's, or none; and that choosing compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import backends
from backends import _amd, _emulated, rocm
from backends.base import Availability, Device
from backends.emulator import build
from backends.errors import BackendError, CompileError, ToolchainMissing

REAL = Device(0, "AMD Instinct MI300X", "MI300", "gfx942", 206141652992, "HIP 7.2")
LIBRARY = Path("/cache/lib/libamdhip64.so")
Found = tuple[tuple[Device, ...], tuple[str, ...]]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice made yet, an emulator that is built, and a test that fails if somebody builds it."""
    def never(*_arguments: object, **_options: object) -> Path:
        raise AssertionError("choosing a runtime must not compile the emulator")

    monkeypatch.setattr(_emulated, "_chosen", [])
    monkeypatch.delenv(_emulated.VARIABLE, raising=False)
    monkeypatch.setattr(build, "ready", lambda: LIBRARY)
    monkeypatch.setattr(build, "library", never)


def real(found: bool) -> Callable[[], Found]:
    return lambda: ((REAL,), ()) if found else ((), ("no AMD device: none plugged in",))


def test_a_real_device_goes_before_the_emulated_one() -> None:
    assert _emulated.devices(real(True)) == ((REAL,), (), "")


def test_without_a_real_device_one_is_emulated() -> None:
    (device,), reasons, runtime = _emulated.devices(real(False))
    assert device.emulated
    assert (device.name, device.gpu, device.arch) == ("AMD Instinct MI300X (emulated)", "MI300", "gfx942")
    assert reasons == ("no AMD device: none plugged in", "the MI300X is emulated, as no real one was found")
    assert runtime == f"emulator: {LIBRARY}"
    assert rocm.BACKEND.target_for(device) == rocm.BACKEND.target("MI300")


@pytest.mark.parametrize("word", ["1", "true", "On"])
def test_the_variable_asks_for_the_emulator(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("WARPWAVE_EMULATE", word)
    (device,), reasons, _runtime = _emulated.devices(real(True))
    assert device.emulated
    assert reasons == ("the MI300X is emulated, as was asked for",)


def test_the_variable_refuses_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPWAVE_EMULATE", "0")
    devices, reasons, runtime = _emulated.devices(real(False))
    assert (devices, runtime) == ((), "")
    assert "switched off" in reasons[-1]
    assert _emulated.devices(real(True))[0] == (REAL,)


def test_a_variable_that_says_neither_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPWAVE_EMULATE", "perhaps")
    assert _emulated.devices(real(True)) == (
        (), ("WARPWAVE_EMULATE is 1 (always emulate), 0 (never) or unset, not 'perhaps'",), "")


@pytest.mark.parametrize(("chosen", "variable", "emulated"), [
    (True, "0", True), (False, "1", False), (None, "1", False),
])
def test_what_the_settings_say_goes_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, chosen: bool | None, variable: str, emulated: bool
) -> None:
    monkeypatch.setenv("WARPWAVE_EMULATE", variable)
    backends.use_emulator(chosen)
    (device,), _reasons, _runtime = _emulated.devices(real(True))
    assert device.emulated is emulated


def test_an_emulator_that_is_not_built_yet_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ready", lambda: None)
    (device,), _reasons, runtime = _emulated.devices(real(False))
    assert device.emulated
    assert runtime.startswith("emulator: not built yet")


def test_without_its_compiler_nothing_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise ToolchainMissing("what the emulator is built with", ["wheel: ziglang is not installed"], build.HINT)

    monkeypatch.setattr(build, "ready", missing)
    devices, reasons, runtime = _emulated.devices(real(False))
    assert (devices, runtime) == ((), "")
    assert "ziglang is not installed" in reasons[-1]
    assert "pip install" in reasons[-1]


def test_the_emulator_is_no_real_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Somebody who runs other programs on it has it in their paths: times there are no measurements."""
    for folder, content in (("ours", b"\x7fELF warpwave_emulator_set"), ("theirs", b"\x7fELF hipMalloc")):
        (tmp_path / folder / "lib").mkdir(parents=True)
        (tmp_path / folder / "lib" / "libamdhip64.so").write_bytes(content)
    monkeypatch.setattr(_amd, "package_folder", lambda name: [])
    monkeypatch.setattr(_amd, "DEFAULT_PREFIX", tmp_path / "nowhere")
    monkeypatch.setattr(_amd, "_SYSTEM_LIBRARIES", ())
    monkeypatch.delenv("HIP_PATH", raising=False)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "ours"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "ours" / "lib"))
    assert _amd.runtime() is None
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'ours/lib'}:{tmp_path / 'theirs/lib'}")
    assert _amd.runtime() == tmp_path / "theirs/lib/libamdhip64.so"


def test_running_builds_the_emulator_and_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    heard: list[str] = []

    def library(report: Callable[[str], None] | None = None) -> Path:
        if report is not None:
            report("building the emulator")
        told.append("built")
        return LIBRARY

    monkeypatch.setattr(build, "library", library)
    available = Availability("clang", "1", (_emulated.DEVICE,), ("no AMD device",))
    assert rocm.BACKEND.prepare(available, heard.append) is available
    assert (told, heard) == (["built"], ["building the emulator"])
    assert rocm.BACKEND.runtime_libraries(_emulated.DEVICE) == [LIBRARY]
    assert rocm.BACKEND.telemetry(_emulated.DEVICE) == {}


def test_a_real_device_needs_no_emulator() -> None:
    available = Availability("clang", "1", (REAL,))
    assert rocm.BACKEND.prepare(available, lambda line: None) is available


def test_an_emulator_that_cannot_be_built_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def library(report: Callable[[str], None] | None = None) -> Path:
        raise CompileError("the emulator: wave.cpp:3: error: no", (), "", ())

    monkeypatch.setattr(build, "library", library)
    prepared = rocm.BACKEND.prepare(Availability("clang", "1", (_emulated.DEVICE,), ("no AMD device",)), print)
    assert prepared.devices == ()
    assert prepared.reasons == ("no AMD device", "no emulated MI300X: the emulator: wave.cpp:3: error: no")
    with pytest.raises(BackendError, match=r"wave\.cpp"):
        rocm.BACKEND.runtime_libraries(_emulated.DEVICE)
