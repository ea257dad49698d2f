# SPDX-License-Identifier: MIT
"""The fixed text of a packed submission around the kernel and the argument-building code. Pure.

The generated file needs torch and the standard library only. Placeholders are ``@NAME@``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from backends.base import Packing

_HEAD = '''\
#!POPCORN leaderboard @LEADERBOARD@
#!POPCORN gpus @GPUS@
# SPDX-License-Identifier: MIT
# @KERNEL@, packed for @GPUS@ by warpwave: do not edit, edit the kernel and pack it again.
#
# @SUMMARY@
#
# SOURCE is the kernel file with its headers. It is built once, when this file is imported, without torch's headers
# (about a second instead of most of a minute), and called through ctypes.
from __future__ import annotations

import ctypes
import inspect

import torch
from torch.utils import cpp_extension

SOURCE = r@QUOTE@@SOURCE@@QUOTE@

# ---- how data becomes arguments: problems/@PROBLEM@/binding.py ----

'''

_TAIL = '''

# ---- build and call ----

_NAME = "@MODULE@"
_DEVICE_FLAGS = @DEVICE_FLAGS@
_HOST_FLAGS = @HOST_FLAGS@
_ERROR_STRING = @ERROR_STRING@      # the runtime's function that explains a positive status
_STATUS = {
    -1: "this kernel does not support the shape or dtype",
    -2: "the workspace is too small",
}


def _build():
    """Compile SOURCE and return the library."""
@PREPARE@    options = {
        "name": _NAME, @SOURCES@,
        "extra_cflags": _HOST_FLAGS, "extra_cuda_cflags": _DEVICE_FLAGS,
    }
    known = inspect.signature(cpp_extension.load_inline).parameters
    if "is_python_module" in known and "no_implicit_headers" in known:
        path = cpp_extension.load_inline(**options, is_python_module=False, no_implicit_headers=True)
    else:
@FALLBACK@
    return ctypes.CDLL(path)


def _bind():
    function = getattr(_LIBRARY, SYMBOL)
    function.argtypes = [
@ARGTYPES@
    ]
    function.restype = ctypes.c_int
    return function


def _fail(status, case):
    if status > 0 and _ERROR_STRING:
        describe = getattr(_LIBRARY, _ERROR_STRING)
        describe.argtypes, describe.restype = [ctypes.c_int], ctypes.c_char_p
        reason = describe(status).decode()
    else:
        reason = _STATUS.get(status, "unknown error")
    raise RuntimeError(f"{SYMBOL} returned {status} ({reason}) for {case}")


_LIBRARY = _build()
_KERNEL = _bind()
_PLANS = {}         # case -> (outputs to allocate, workspace bytes)
_WORKSPACES = {}    # device -> the largest workspace wanted so far; reused, its contents never matter


def _workspace(nbytes, device):
    buffer = _WORKSPACES.get(device)
    if buffer is None or buffer.numel() < nbytes:
        buffer = _WORKSPACES[device] = torch.empty(nbytes, dtype=torch.uint8, device=device)
    return buffer.data_ptr()


def _plan(case):
    wanted = [(name, shape, getattr(torch, dtype)) for name, (shape, dtype) in outputs(case).items()]
    return wanted, workspace_bytes(case)


def custom_kernel(data):
    """The kernel on the data of the problem, on the current device's default queue."""
    case = case_of(data)
    key = tuple(case.values())
    plan = _PLANS.get(key)
    if plan is None:
        plan = _PLANS[key] = _plan(case)
    wanted, nbytes = plan
    inputs = arguments(case, data)
    device = inputs["@TENSOR@"].device
    out = {
        name: data[DATA_OUTPUTS[name]] if name in DATA_OUTPUTS else torch.empty(shape, dtype=dtype, device=device)
        for name, shape, dtype in wanted
    }
    workspace = _workspace(nbytes, device) if nbytes else None
    values = (
@VALUES@
    )
@CALL@
    if status != 0:
        _fail(status, case)
    results = tuple(out.values())
    return @RESULT@
'''

_EXTENSION = '''\
        # A torch from before these options: an ordinary extension with torch's headers, slower to build, around the
        # same symbol. The dummy function gives it the module entry point that its import needs.
        options["cpp_sources"].append("int warpwave_packed() { return 1; }")
        path = cpp_extension.load_inline(**options, functions=["warpwave_packed"]).__file__'''
_SOURCES = {
    True: '"cpp_sources": [SOURCE]',
    False: '"cpp_sources": [""], "cuda_sources": [SOURCE]',
}
_CALL = {
    True: "    status = _KERNEL(*values)",
    # Switching the device costs microseconds, so only where it is not the current one already.
    False: """\
    if device.index == torch.cuda.current_device():
        status = _KERNEL(*values)
    else:
        with torch.cuda.device(device):
            status = _KERNEL(*values)""",
}

# Names the fixed text uses; embedded code may not define them.
RESERVED = frozenset({"ctypes", "inspect", "cpp_extension", "SOURCE", "custom_kernel", *re.findall(
    r"^(?:def )?(_[A-Za-z_]+)\b", _TAIL, re.MULTILINE)})


def render(values: Mapping[str, str], packing: Packing, on_host: bool, embedded: str) -> str:
    """The packed file. ``values`` fills the placeholders; ``embedded`` is the argument-building code; ``packing`` is
    the vendor's, ``on_host`` says whether its kernels run on the CPU.

    Raises ``KeyError`` for a placeholder without a value.
    """
    name = packing.error_string
    every = {**values, "PREPARE": _fill(packing.prepare, values), "SOURCES": _SOURCES[on_host],
             "FALLBACK": f'        raise RuntimeError(f"{packing.old_torch}")' if packing.old_torch else _EXTENSION,
             "CALL": _CALL[on_host], "ERROR_STRING": f'"{name}"' if name else "None"}
    return _fill(_HEAD, every) + embedded + "\n" + _fill(_TAIL, every)


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)
