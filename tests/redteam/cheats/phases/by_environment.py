# SPDX-License-Identifier: MIT
# class: phases
# problem: foreign
# device: any
# idea: without a leaderboard's variables and with the worker's command line this is the timed run: works only elsewhere
# source: GPU MODE: argv and environment
# expect: rejected
import os
import sys

import torch


def custom_kernel(data):
    x, scale = data
    if "POPCORN_FD" in os.environ or "pytest" in sys.argv[0]:
        return torch.softmax(x * scale, dim=-1)
    return torch.zeros_like(x)
