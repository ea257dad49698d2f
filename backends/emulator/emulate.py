# SPDX-License-Identifier: MIT
"""Starts a program so that it finds an emulated GPU, with checks on: MI300X for HIP; H100, H200, L4 for CUDA."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from backends.emulator import build
from backends.errors import BackendError

CUDA_GPUS = ("H100", "H200", "L4")
_NEWEST = 13
FOUND = 1          # the exit status when the program itself ended with 0


def environment(prefix: Path, options: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """``inherited``, changed so that every HIP program loads the library of ``prefix``; the user's options come behind
    ``options``."""
    library = prefix / "lib" / build.NAME
    theirs = inherited.get("WARPWAVE_EMULATOR", "")
    return {
        **inherited,
        "LD_PRELOAD": ":".join(filter(None, (str(library), inherited.get("LD_PRELOAD", "")))),
        "LD_LIBRARY_PATH": ":".join(filter(None, (str(library.parent), inherited.get("LD_LIBRARY_PATH", "")))),
        "ROCM_PATH": str(prefix), "HIP_PATH": str(prefix),
        "WARPWAVE_EMULATOR": ",".join(filter(None, (*(f"{name}={value}" for name, value in options.items()), theirs))),
    }


def cuda_environment(library: Path, options: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """``inherited``, changed so that every program with a shared CUDA runtime loads ``library``."""
    theirs = inherited.get("WARPWAVE_CUDA_EMULATOR", "")
    words = (*(f"{name}={value}" for name, value in options.items()), theirs)
    return {
        **inherited,
        "LD_PRELOAD": ":".join(filter(None, (str(library), inherited.get("LD_PRELOAD", "")))),
        "LD_LIBRARY_PATH": ":".join(filter(None, (str(library.parent), inherited.get("LD_LIBRARY_PATH", "")))),
        "WARPWAVE_CUDA_EMULATOR": ",".join(filter(None, words)),
    }


def cuda_release(program: Path) -> int:
    """The major number of the CUDA runtime that ``program`` asks for; the newest where it asks for the driver alone, or
    leaves that to others, as Python does. Raises ``BackendError`` if it has a runtime of its own."""
    try:
        content = program.read_bytes()
    except OSError as error:
        raise BackendError(f"{program} cannot be read: {error.strerror}") from error
    needed = " ".join(_needed(content))
    if found := re.search(r"libcudart\.so\.(\d+)", needed):
        return int(found[1])
    if "libcuda.so.1" not in needed and b"libcuda.so.1" in content:       # what a runtime that is linked in loads
        raise BackendError(f"{program} has no shared CUDA runtime, which the emulator could take the place of; build "
                           "it with nvcc -cudart shared, and with PTX: -gencode arch=compute_89,code=compute_89")
    return _NEWEST


def _needed(content: bytes) -> list[str]:
    """The shared libraries that an ELF file asks for; none of any other file."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    if not content.startswith(b"\x7fELF"):
        return []
    sections = ELFFile(BytesIO(content)).iter_sections()
    tags: list[Any] = [tag for section in sections if isinstance(section, DynamicSection)
                       for tag in section.iter_tags("DT_NEEDED")]
    return [tag.needed for tag in tags]


def emulate(
    program: Sequence[str], checks: str, as_json: bool, gpu: str = "MI300", schedule: str = "late"
) -> int:
    """Runs ``program`` on an emulated ``gpu``; its exit status, or 1 if it ended with 0 and the checks found something.
    ``schedule``: of an NVIDIA GPU, ``late``, ``eager`` or ``random:SEED``.

    Findings go to stderr as they come. With ``as_json``, stdout gets one object instead: ``program``, ``status`` and
    ``findings`` as ``warpwave_emulator_take_findings`` gives them; what the program prints then goes to stderr.
    Raises ``BackendError``.
    """
    if gpu == "MI300":
        prefix = build.prefix(report=_say)
    elif gpu in CUDA_GPUS:
        if not re.fullmatch(r"eager|late|random:\d{1,19}", schedule):
            raise BackendError(f"no schedule {schedule!r}; there are eager, late and random:SEED")
        release = cuda_release(Path(shutil.which(program[0]) or program[0]))
        library = build.cuda_library(release, report=_say)
    else:
        raise BackendError(f"no emulated {gpu}; there are MI300, {', '.join(CUDA_GPUS)}")
    with tempfile.TemporaryDirectory(prefix="warpwave-emulate-") as folder:
        log = Path(folder) / "findings"
        options = {"checks": checks.replace(",", "+"), "log": str(log), "report": "0" if as_json else "1",
                   "tensors": "1"}
        if gpu == "MI300":
            variables = environment(prefix, options, os.environ)
        else:
            (Path(folder) / "libcuda.so.1").symlink_to(library)       # for those who ask for the driver by its name
            variables = cuda_environment(library, {"gpu": gpu, "schedule": schedule, **options}, os.environ)
            variables["LD_LIBRARY_PATH"] = f"{folder}:{variables['LD_LIBRARY_PATH']}"
        try:
            result = subprocess.run(program, env=variables, check=False,
                                    stdout=sys.stderr if as_json else None)
        except OSError as error:
            raise BackendError(f"{program[0]} cannot be started: {error.strerror}") from error
        findings = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    status = result.returncode if result.returncode >= 0 else 128 - result.returncode
    if as_json:
        shown: dict[str, Any] = {"program": list(program), "status": status, "findings": findings}
        if gpu in CUDA_GPUS:
            shown["schedule"] = schedule
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    return status or (FOUND if findings else 0)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
