# SPDX-License-Identifier: MIT
# class: host
# ends: never
# problem: matmul
# device: cpu
# idea: never ends its import and ignores every signal that can be ignored
# source: own
# expect: rejected
import signal
import time

for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        continue
while True:
    time.sleep(1)
