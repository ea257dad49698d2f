# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: becomes root, changes the root folder, mounts; looks for capabilities that were left to it
# source: own
# needs: sandbox
import contextlib
import ctypes
import os
import resource
from pathlib import Path

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
FOUND = []
STATUS = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
if int(STATUS["CapEff"], 16) or int(STATUS["CapPrm"], 16) or int(STATUS["CapInh"], 16):
    FOUND.append(f"capabilities {STATUS['CapEff']}")
if STATUS.get("NoNewPrivs", "1").strip() == "0":
    FOUND.append("set-user-id programs work")
with contextlib.suppress(OSError):
    if os.getuid() != 0:
        os.setresuid(0, 0, 0)
        FOUND.append("became root")
with contextlib.suppress(OSError):
    os.chroot("/")
    FOUND.append("chroot")
if LIBC.mount(b"none", b"/tmp", b"no-such-filesystem", 0, None) == 0 or ctypes.get_errno() == 19:
    FOUND.append("mount")                     # ENODEV: only then was the name looked at
with contextlib.suppress(OSError):
    os.setgroups([0])
    FOUND.append("setgroups")
with contextlib.suppress(OSError):
    os.mknod("/tmp/warpwave-redteam-null", 0o20666, os.makedev(1, 1))
    FOUND.append("device nodes")
    Path("/tmp/warpwave-redteam-null").unlink()
with contextlib.suppress(OSError, ValueError):
    _soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NPROC, (hard + 1, hard + 1))
        FOUND.append("raised a hard limit")
if FOUND:
    raise RuntimeError(f"ESCAPED: {FOUND}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
