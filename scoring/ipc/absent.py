# SPDX-License-Identifier: MIT
"""What libraries say where a GPU or a package is absent, and what to tell a person then. Standard library only."""

from __future__ import annotations

import importlib.util
import re

_NO_GPU = re.compile(
    r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available|0 active drivers|libcuda\.so"
    r"|CUDA_HOME|no NVIDIA GPU|No HIP GPUs are available|CUDA driver|is not compiled with CUDA"
    r"|with arguments from the 'CUDA' backend|Could not find the CUDA|libamdhip64|CUDA is not available"
    r"|nvcc: not found|not linked with CUDA|without ATen_cuda library|No CUDA GPU|accelerator support: None")
_NO_MODULE = re.compile(r"No module named '([A-Za-z_]\w*)")


def gpu(text: str) -> str:
    """``a GPU: …`` with the line of ``text`` that the want of one has caused, else ""."""
    found = next((line for line in text.splitlines() if _NO_GPU.search(line)), "")
    return f"a GPU: {found.strip().partition('. ')[0][:200]}" if found else ""


def package(name: str) -> str:
    """``the package …`` if Python finds no top-level module of that name here, else ""."""
    return "" if installed(name) else f"the package {name}, which is not installed here"


def anything(text: str) -> str:
    """What the last lines of a program's output say is absent; "" if nothing."""
    named = [match[1] for match in _NO_MODULE.finditer(text)]
    return next(filter(None, map(package, reversed(named))), "") or gpu(text)


def installed(name: str) -> bool:
    """Whether Python finds a top-level module of that name here."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
