# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: thousands of descriptors travel with an answer
# source: own
# expect: rejected
import array
import json
import os
import socket
import struct
import sys

import torch


def send(sock, message, *rest, **more):
    body = json.dumps(message).encode()
    numbers = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 250)
    for byte in struct.pack("!I", len(body)) + body:
        sock.sendmsg([bytes([byte])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])


for module in [m for n, m in list(sys.modules.items()) if n.startswith("scoring")]:
    if hasattr(module, "send") and hasattr(module, "receive"):
        module.send = send


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
