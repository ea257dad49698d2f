# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: asks for system calls that no kernel needs and many exploits start with
# source: own
# needs: sandbox
import contextlib
import ctypes
import os

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
ZEROS = ctypes.create_string_buffer(256)
EPERM, EACCES, ENOSYS = 1, 13, 38
CALLS = {            # number and arguments that are refused with another error than EPERM if the call is open
    "bpf": (321, 0, None, 0), "perf_event_open": (298, None, 0, -1, -1, 0), "userfaultfd": (323, 1),
    "io_uring_setup": (425, 4, ZEROS), "keyctl": (250, 0, -3, 0), "add_key": (248, None, None, None, 0, 0),
    "open_by_handle_at": (304, -1, None, 0), "init_module": (175, None, 0, None), "kcmp": (312, 1, 1, 0, 0, 0),
    "process_vm_readv": (310, os.getppid(), None, 0, None, 0, 0), "fsopen": (430, None, 0), "move_mount": (429, -1),
    "mount_setattr": (442, -1), "swapon": (167, None, 0), "acct": (163, b"/nonexistent"),
}
OPEN = []
for name, arguments in CALLS.items():
    ctypes.set_errno(0)
    result = LIBC.syscall(*arguments)
    if result >= 0 or ctypes.get_errno() not in (EPERM, EACCES, ENOSYS):
        OPEN.append(name)
        if name in ("userfaultfd", "io_uring_setup") and result >= 0:
            os.close(result)
for path in ("/dev/mem", "/dev/kmsg", "/proc/kcore", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/kvm"):
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        OPEN.append(path)
if OPEN:
    raise RuntimeError(f"ESCAPED: open to it: {OPEN}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
