# SPDX-License-Identifier: MIT
"""Landlock by its three system calls: which files this process and all it starts may use, and whom they may reach.

Needs no privilege. Imports the standard library only, as it is called in the worker before anything else.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Sequence

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446      # the same on all architectures
VERSION, PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV      # those that a rule on a file may give
READ = EXECUTE | READ_FILE | READ_DIR
TCP = 0b11                    # bind, connect
SCOPES = 0b11                 # abstract sockets, signals

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def abi() -> int:
    """The kernel's version of Landlock, 0 where there is none or it is switched off."""
    found = int(_libc.syscall(ctypes.c_long(CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(VERSION)))
    return max(found, 0)


def handled(version: int) -> int:
    """All rights to files that a version of Landlock knows, which are denied unless a rule gives them."""
    return (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1


def restrict(read: Sequence[str], listed: Sequence[str], write: Sequence[str], devices: Sequence[str]) -> int:
    """Confine this process for good, and return the version used: ``read`` may be read and run, ``listed`` folders
    tell their names, ``write`` (folders) everything, ``devices`` read, written and controlled; paths that are not there
    are left out.

    Needs no_new_privs. Raises ``OSError``.
    """
    version = abi()
    rights = handled(version)
    if not version:
        raise OSError("this kernel has no Landlock, or it is switched off")
    attributes = struct.pack("=QQQ", rights, TCP if version >= 4 else 0, SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(size), ctypes.c_uint(0))
    try:
        rules = ((read, READ), (listed, READ_DIR), (write, rights & ~IOCTL_DEV), (devices, FILE_RIGHTS & ~EXECUTE))
        for paths, given in rules:
            for path in paths:
                _allow(ruleset, path, given & rights)
        _call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= FILE_RIGHTS
        rule = struct.pack("=Qi", rights, beneath)
        _call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), ctypes.c_char_p(rule), ctypes.c_uint(0))
    finally:
        os.close(beneath)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result
