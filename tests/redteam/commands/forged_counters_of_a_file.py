# SPDX-License-Identifier: MIT
# class: commands
# problem: toy
# device: shell
# idea: a Python file on the emulated MI300X sends counters of its own and launches nothing
# source: own
from pathlib import Path

from tests.redteam.shell import EMULATED, timed

SUBMISSION = '''
import sys

wire = next(module for name, module in sys.modules.items() if name.endswith("scoring.ipc.wire"))
REAL = wire.answer


def answer(pipe, message):
    if "counters" in message:
        message["counters"] = [{"kernel": "fast", "modelled_us": 0.1}]
    REAL(pipe, message)


wire.answer = answer


def custom_kernel(data):
    return data[0] * data[1]
'''


def attack(folder: Path, secret: Path) -> list[str]:
    path = folder / "forged.py"
    path.write_text(SUBMISSION)
    return [*EMULATED, "--problem", "toy", "--submission", str(path)]


def gained(folder: Path, record: dict, text: str) -> str:
    return "a modelled time without a launch" if timed(record) else ""
