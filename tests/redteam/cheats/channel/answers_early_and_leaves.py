# SPDX-License-Identifier: MIT
# class: channel
# problem: foreign
# device: cpu
# idea: answers early, finishes the work in a thread, and swallows the worker's own answer
# source: own
# expect: rejected
import json
import struct
import sys
import threading

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
    x, scale = data
    sock, message = question()
    y = torch.empty_like(x)
    if sock is None:
        return torch.softmax(x * scale, -1)
    threading.Thread(target=lambda: y.copy_(torch.softmax(x * scale, -1))).start()
    sock.sendall(frame({"ok": True, "nonce": message["nonce"], "seconds": 5e-5, "digest": "f" * 32}))
    message["nonce"] = None
    return y
