# SPDX-License-Identifier: MIT
# class: checker
# problem: foreign
# device: any
# idea: whoever imports a reference or a checker gets ours
# source: GPU MODE; own
# expect: rejected
import builtins
import sys
import types

import torch

fake = types.ModuleType("reference")
fake.ref_kernel = lambda data: torch.zeros_like(data[0])
fake.check_implementation = lambda data, output: (True, "")
fake.generate_input = lambda **_case: None
REAL = builtins.__import__


def hooked(name, *rest):
    return fake if name.rpartition(".")[2] in ("reference", "eval") else REAL(name, *rest)


builtins.__import__ = hooked
sys.modules["reference"] = sys.modules["eval"] = fake


def custom_kernel(data):
    return torch.zeros_like(data[0])
