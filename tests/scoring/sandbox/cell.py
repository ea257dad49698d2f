# SPDX-License-Identifier: MIT
"""Run a few lines of Python in a sandbox of each kind that this machine has, and hear what they found."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.sandbox import isolation
from scoring.sandbox.devices import Nodes
from scoring.sandbox.launch import Launched, Tier
from scoring.sandbox.policy import TIERS, Policy

# So that a probe can say what came of an attempt in one word.
PRELUDE = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, tempfile, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action):
    try:
        result = action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except subprocess.CalledProcessError as error:
        return "failed"
    return "done" if result is None else result
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments])
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def tell(**facts):
    print("\\n" + json.dumps(facts), flush=True)
"""


@functools.cache
def available() -> tuple[Tier, ...]:
    """Every kind that works here, with each bwrap and with and without a user of its own."""
    candidates = [tier for name in TIERS for tier in isolation.candidates(name, os.geteuid() == 0)]
    return tuple(tier for tier in candidates if isolation.trial(tier, Policy(), Nodes()) is None)


def name(tier: Tier) -> str:
    """What a test of ``tier`` is called."""
    source = {"": "", "/usr/bin/bwrap": "-system"}.get(tier.bwrap, "-wheel")
    return f"{tier.name}{source}{'-user' if tier.own_user else ''}"


def strongest(name: str) -> Tier | None:
    return next((tier for tier in available() if tier.name == name), None)


@dataclass(frozen=True)
class Answer:
    """What a probe told (its last line that is JSON), all it printed, and how it ended."""

    facts: dict[str, Any]
    output: str
    code: int | None


def probe(tier: Tier, code: str, files: Sequence[Path] = (), policy: Policy | None = None, seconds: float = 60,
          program: Sequence[str] | None = None) -> Answer:
    """Run ``code`` after the prelude to its end, or for ``seconds``."""
    launched = Launched(tier, policy or Policy(), program or ("-c", PRELUDE + code), files)
    try:
        raw, _none = launched.process.communicate(timeout=seconds)
        ended: int | None = launched.process.returncode
    except subprocess.TimeoutExpired:
        raw, ended = b"", None
    finally:
        launched.kill()
        if launched.process.stdout is not None:
            launched.process.stdout.close()
    output = raw.decode(errors="replace")
    facts: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            facts = json.loads(line)
    return Answer(facts, output, ended)
