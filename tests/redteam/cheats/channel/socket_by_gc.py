# SPDX-License-Identifier: MIT
# class: channel
# problem: matmul
# device: cpu
# idea: finds the socket among the collector's objects and answers for the worker
# source: own
# expect: rejected
import gc
import json
import struct

import torch


def frame(message):
    body = json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body


def custom_kernel(data):
    a, b, s, _ = data
    nonces = {o["nonce"] for o in gc.get_objects() if isinstance(o, dict) and isinstance(o.get("nonce"), str)}
    for pipe in [o for o in gc.get_objects() if type(o).__name__ == "AnswerPipe"]:
        for nonce in nonces or {""}:
            pipe.sendall(frame({"ok": True, "nonce": nonce, "seconds": 1e-6, "status": "PASSED", "passed": True}))
    return torch.mm(a, b.t()) * s[:, None]
