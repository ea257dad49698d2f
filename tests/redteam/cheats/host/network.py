# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: connects to whatever listens on loopback, and looks for a way out (no packet leaves)
# source: own
# needs: sandbox
import contextlib
import socket
from pathlib import Path

import torch


def listening():
    """Ports of the kernel's tables, and the ones known beforehand."""
    ports = set(range(47100, 47132)) | {22, 53, 80, 443, 2375, 5432, 6379, 8000, 8080, 8888}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    return sorted(ports)


for port in listening():
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with contextlib.suppress(OSError), socket.socket(family) as connection:
            connection.settimeout(0.5)
            connection.connect((host, port))
            if connection.getsockname() == connection.getpeername():
                continue          # TCP's simultaneous open: the port the kernel chose to call from was the one called
            raise RuntimeError(f"ESCAPED: connected to {host}:{port}")
with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect(("192.0.2.1", 53))          # asks for a route and sends nothing
    raise RuntimeError(f"ESCAPED: a route out from {probe.getsockname()[0]}")


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
