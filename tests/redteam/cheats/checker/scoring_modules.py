# SPDX-License-Identifier: MIT
# class: checker
# problem: foreign
# device: any
# idea: imports the judge's own modules and makes their verdict PASSED, by attribute and by code object
# source: own: the scorer's source is public
# expect: rejected
import importlib
import sys

import torch

sys.path.insert(0, sys.modules["__main__"].__file__.rpartition("/scoring/")[0])
for name in ("scoring.judge.check", "scoring.judge.case_run", "scoring.judge.score",
             "scoring.judge.chain_verifier", "scoring.judge.rounds", "scoring.judge.timing"):
    try:
        module = importlib.import_module(name)
        from scoring.judge.check import Verdict
        from scoring.record import Status
    except ImportError:
        continue

    def passed(*_arguments, **_keywords):
        return Verdict(Status.PASSED)

    for attribute in ("verify", "compare"):
        function = getattr(module, attribute, None)
        if hasattr(function, "__code__"):
            function.__globals__.update(Verdict=Verdict, Status=Status)
            setattr(module, attribute, passed)


def custom_kernel(data):
    return torch.zeros_like(data[0])
