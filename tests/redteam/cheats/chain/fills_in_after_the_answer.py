# SPDX-License-Identifier: MIT
# class: chain
# problem: foreign
# device: cpu
# idea: answers with a made-up digest at once, computes while the judge reads the answer
# source: own: against the commit chain
# expect: rejected
import sys

import torch

WIRE = next(m for n, m in sys.modules.items() if n.endswith("scoring.ipc.wire"))
REAL = WIRE.answer


def custom_kernel(data):
    x, scale = data
    frame, names = sys._getframe(), set()
    while frame is not None and frame.f_code.co_name != "serve":
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    if frame is not None and "do_run_chain" in names:
        nonce = frame.f_locals["message"]["nonce"]
        REAL(frame.f_locals["answers"], {"ok": True, "nonce": nonce, "seconds": 1e-6, "digest": "00" * 16})
        WIRE.answer = lambda sock, message, *rest: None if message["nonce"] == nonce else REAL(sock, message, *rest)
    return torch.softmax(x * scale, dim=-1)
