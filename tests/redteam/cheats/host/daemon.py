# SPDX-License-Identifier: MIT
# class: host
# problem: matmul
# device: cpu
# idea: a daemon without parent, session or environment outlives the judgement and answers the next one
# source: own
# needs: sandbox
# again: yes
import contextlib
import os
import socket
import subprocess
import sys

import torch

NAME = "\0warpwave-redteam-daemon"
CODE = f"""
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind({NAME!r})
listener.listen()
listener.settimeout(90)
try:
    listener.accept()[0].sendall(b'still here')
except TimeoutError:
    pass
"""

with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
    connection.connect(NAME)
    raise RuntimeError("ESCAPED: the daemon of an earlier judgement answered")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = subprocess.DEVNULL
        subprocess.Popen([sys.executable, "-S", "-c", CODE], env={}, cwd="/", stdin=null, stdout=null, stderr=null,
                         start_new_session=True, close_fds=True)
    os._exit(0)
os.wait()


def custom_kernel(data):
    a, b, s, _ = data
    return torch.mm(a, b.t()) * s[:, None]
