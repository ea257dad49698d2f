# SPDX-License-Identifier: MIT
"""The system calls a contestant may not make, as the BPF program that the kernel runs before each call.

A deny-list: what drivers and compilers need (``ioctl``, ``mmap``, memory policies) is never on it. Denied calls fail
with EPERM like any call without permission; ``clone3`` is unknown (ENOSYS), so that libraries take ``clone``, whose
flags can be seen here. Calls of another instruction set (i386, x32), which the numbers below would not fit, end the
process.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping, Sequence

Instruction = tuple[int, int, int, int]        # code, jump if true, jump if false, constant

# Opcodes of classic BPF: load a word of the call's data, compare, test bits, mask, return.
LOAD, EQUAL, BITS, AND, RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE = 0, 4                    # offsets in the call's data; argument i is at 16 + 8 i

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32 = 0x40000000                               # bit in the numbers of calls by x86-64's 32-bit flavour
NAMESPACES = 0x7E020000                        # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET = 1, 1, 5

# name: (x86-64, aarch64); None where the architecture has no such call.
CALLS: Mapping[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # parts of the kernel with a history of holes, which no kernel needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "modify_ldt": (154, None), "iopl": (172, None), "ioperm": (173, None), "syslog": (103, 116),
    "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "vhangup": (153, 58), "uselib": (134, None),
    # the machine itself
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "sethostname": (170, 161),
    "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}
# What processes find each other by, and what outlives them.
SHARED: Mapping[str, tuple[int, int]] = {
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
}
# Calls that are looked at more closely.
_CLOSER: Mapping[str, tuple[int, int]] = {
    "clone": (56, 220), "clone3": (435, 435), "personality": (135, 92), "socket": (41, 198), "socketpair": (53, 199),
    "connect": (42, 203), "sendto": (44, 206),
}


def program(namespaces: bool, machine: str | None = None) -> bytes:
    """The filter as the kernel takes it: an array of 8-byte instructions.

    Without ``namespaces`` of its own a process must be kept from those of the host: of sockets only connected local
    pairs work, no internet family, no connection to anybody's socket, and nothing of System V's or POSIX's that others
    could find. Raises ``OSError`` on an architecture there are no numbers for.
    """
    machine = machine or platform.machine()
    if machine not in AUDIT:
        raise OSError(errno.ENOSYS, f"no system call numbers for {machine}; there are {', '.join(AUDIT)}")
    column = list(AUDIT).index(machine)
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, AUDIT[machine]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        code += [(BITS, 0, 1, X32), (RETURN, 0, 0, KILL)]
    for numbers in CALLS.values():
        if (number := numbers[column]) is not None:
            code += [(EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    bodies = {
        "clone3": [_refuse(errno.ENOSYS)],
        "clone": [_argument(0), (BITS, 0, 1, NAMESPACES), _refuse(errno.EPERM), _ALLOWED],
        "personality": _only(0, 0, 0xFFFFFFFF),          # the ordinary one, and asking for the present one
    }
    if not namespaces:
        for numbers in SHARED.values():
            code += [(EQUAL, 0, 1, numbers[column]), _refuse(errno.EPERM)]
        stream = [(AND, 0, 0, 0xF), (EQUAL, 2, 0, SOCK_STREAM), (EQUAL, 1, 0, SOCK_SEQPACKET),
                  _refuse(errno.EPERM), _ALLOWED]
        bodies |= {
            "socket": [_argument(0), (EQUAL, 1, 0, AF_UNIX), _refuse(errno.EPERM), _argument(1), *stream],
            "socketpair": [_argument(1), *stream],       # a datagram socket can address anybody
            "connect": [_refuse(errno.EPERM)],
            "sendto": [_argument(4), (EQUAL, 1, 0, 0), _refuse(errno.EPERM), _argument(4, high=True),
                       (EQUAL, 1, 0, 0), _refuse(errno.EPERM), _ALLOWED],
        }
    for name, body in bodies.items():
        code += [(EQUAL, 0, len(body), _CLOSER[name][column]), *body]
    code.append(_ALLOWED)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


_ALLOWED: Instruction = (RETURN, 0, 0, ALLOW)


def _refuse(code: int) -> Instruction:
    return (RETURN, 0, 0, ERRNO | code)


def _argument(index: int, high: bool = False) -> Instruction:
    """Load the lower (or higher) half of an argument; both architectures are little-endian."""
    return (LOAD, 0, 0, 16 + 8 * index + 4 * high)


def _only(index: int, *values: int) -> Sequence[Instruction]:
    """Allow the call for these values of the lower half of an argument."""
    tests: list[Instruction] = [(EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_argument(index), *tests, _refuse(errno.EPERM), _ALLOWED]
