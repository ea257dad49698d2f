# SPDX-License-Identifier: MIT
# class: chain
# problem: foreign
# device: cpu
# idea: answers with a made-up digest at once, computes while the judge reads the answer
# source: own: against the commit chain
# expect: rejected
import sys

import torch

WIRE = next(m for n, m in sys.modules.items() if n.endswith("scoring.wire"))
REAL = WIRE.send


def custom_kernel(data):
    x, scale = data
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "do_go":
        frame = frame.f_back
    if frame is not None:
        nonce = frame.f_locals["message"]["nonce"]
        REAL(frame.f_locals["self"].sock, {"ok": True, "nonce": nonce, "seconds": 1e-6, "digest": "00" * 16})
        WIRE.send = lambda sock, message, *rest: None if message["nonce"] == nonce else REAL(sock, message, *rest)
    return torch.softmax(x * scale, dim=-1)
