# SPDX-License-Identifier: MIT
# class: harness
# problem: matmul
# device: any
# idea: sends the reply itself before working, and swallows the worker's own
# source: pygpubench: report before the work
# expect: no-gain
import sys

import torch

WIRE = next(m for n, m in sys.modules.items() if n.endswith("scoring.ipc.wire"))
REAL = WIRE.answer
SENT = set()


def send(sock, message, *rest, **keywords):
    if message.get("nonce") in SENT:
        return None
    return REAL(sock, message, *rest, **keywords)


WIRE.answer = send


def custom_kernel(data):
    a, b, s, c = data
    frame = sys._getframe()
    while frame is not None and not {"answers", "message"} <= set(frame.f_locals):
        frame = frame.f_back
    message = frame.f_locals["message"]
    if message["do"] not in ("capture", "prepare_chain") and message["nonce"] not in SENT:
        REAL(frame.f_locals["answers"], {"ok": True, "nonce": message["nonce"], "seconds": 1e-6, "digest": "0" * 32})
        SENT.add(message["nonce"])
    return torch.matmul(a, b.t(), out=c).mul_(s[:, None])
