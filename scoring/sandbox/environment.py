# SPDX-License-Identifier: MIT
"""The environment of a worker: toolchains, devices and library paths, nothing of the judge's.

And what a worker may not read in the judge's own command line, which every process of a machine can read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import site
from collections.abc import Mapping
from pathlib import Path

from scoring.sandbox.policy import ROOT

MARK = "WARPWAVE_WORKER"      # in the environment of a worker and of all it starts, so that strays are found
USER = "contestant"

PASSED = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CUDA_HOME", "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCM_PATH", "HIP_PATH", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "CXX", "CC", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "MAX_JOBS", "OMP_NUM_THREADS",
    "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH", "WARPWAVE_EMULATOR",
)
# Where compilers keep what they made: below the scratch folder, so that nothing outlives the worker.
CACHES = {
    "XDG_CACHE_HOME": ".cache", "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions", "TRITON_CACHE_DIR": ".cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/inductor", "CUDA_CACHE_PATH": ".cache/nv",
}


def build(given: Mapping[str, str], scratch: str, mark: str, devices: Mapping[str, str | None]) -> dict[str, str]:
    """The variables of a worker whose temporary folder and home is ``scratch``.

    ``devices`` overrides what selects a device (None: unset), as it names the one device that can be seen in there.
    """
    made = {name: given[name] for name in PASSED if name in given}
    python = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if entry]
    made["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(str(Path(entry).absolute()) for entry in python)])
    made |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    if site.ENABLE_USER_SITE:
        made["PYTHONUSERBASE"] = site.getuserbase()
    made |= {"HOME": scratch, "TMPDIR": scratch, "USER": USER, "LOGNAME": USER, MARK: mark}
    made |= {name: f"{scratch}/{folder}" for name, folder in CACHES.items()}
    for name, value in devices.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = value
    return made


def hide_argument(option: str) -> None:
    """Blank the value of ``--option`` in what ``/proc`` shows of this process's command line (Linux; else no effect).

    Parents that were given the same words (a shell, ``timeout``) still show them.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])        # arg_start and arg_end of proc_pid_stat(5)
        if not 0 < start < end:
            return
        at, is_value = start, False
        for word in ctypes.string_at(start, end - start).split(b"\0"):
            name, equals, value = word.partition(b"=")
            hidden = word if is_value else value
            is_option = len(name) > 2 and f"--{option}".encode().startswith(name)
            if is_value or (is_option and equals):
                ctypes.memset(at + len(word) - len(hidden), ord("*"), len(hidden))
            is_value = is_option and not equals
            at += len(word) + 1
