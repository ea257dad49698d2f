# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: a thousand answers to questions not asked yet, with the nonces it has seen and random ones
# source: own
# expect: rejected
import json
import secrets
import struct
import sys

import torch


def question():
    """The pipe to the judge and the request that is being served, from the frames below."""
    frame, sock, message = sys._getframe(), None, None
    while frame is not None and (sock is None or message is None):
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == "AnswerPipe":
                sock = sock or value
            elif isinstance(value, dict) and "nonce" in value:
                message = message or value
        frame = frame.f_back
    return sock, message


def frame(message):
    body = json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body


def custom_kernel(data):
    a, b, s, _ = data
    sock, message = question()
    if sock is not None:
        for _ahead in range(1000):
            nonce = secrets.choice([message["nonce"], secrets.token_hex(8), "", None, [], {}])
            sock.sendall(frame({"ok": True, "nonce": nonce, "seconds": 1e-6}))
    return torch.mm(a, b.t()) * s[:, None]
