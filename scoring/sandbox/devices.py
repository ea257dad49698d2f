# SPDX-License-Identifier: MIT
"""The device files of a GPU or several, and what selects them where no other can be seen."""

from __future__ import annotations

import multiprocessing
import os
import re
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASIC = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
NVIDIA = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@dataclass(frozen=True)
class Nodes:
    """``paths`` to pass on, ``groups`` that may open those which not everybody may, ``environment`` to change, and the
    device's number among those that can then be seen. ``note``: why there are more devices than one."""

    paths: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    index: int | None = None
    note: str = ""


def of(index: int | None) -> Nodes:
    """The device files of torch's device number ``index``; none of any GPU for None."""
    if index is None:
        return Nodes()
    import torch

    facts: Any = torch.cuda.get_device_properties(index)
    address = f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"
    if torch.version.hip:
        return amd(index, address, Path("/"))
    return nvidia(index, address, os.environ.get("CUDA_VISIBLE_DEVICES", ""), Path("/"))


def first(count: int) -> Nodes:
    """The device files of torch's first ``count`` devices. This process uses none of them: it can still be forked."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return together(list(pool.map(of, range(count))))


def together(each: Sequence[Nodes]) -> Nodes:
    """The device files of several GPUs, which keep their order."""
    names = [name for nodes in each for name in nodes.environment]
    environment: dict[str, str | None] = {}
    for name in dict.fromkeys(names):
        values = [nodes.environment.get(name) for nodes in each]
        chosen = [value for value in values if value is not None]
        environment[name] = ",".join(dict.fromkeys(chosen)) or None
    return Nodes(
        tuple(dict.fromkeys(path for nodes in each for path in nodes.paths)),
        tuple(sorted({group for nodes in each for group in nodes.groups})), environment, None,
        "; ".join(dict.fromkeys(nodes.note for nodes in each if nodes.note)))


def nvidia(index: int, address: str, selected: str, root: Path) -> Nodes:
    """Of the NVIDIA GPU at a PCI address; ``selected`` is CUDA_VISIBLE_DEVICES, ``root`` the file system's."""
    shared = [name for name in NVIDIA if (root / name[1:]).exists()]
    entries = [entry.strip() for entry in selected.split(",") if entry.strip()]
    entry = entries[index] if index < len(entries) else ""
    if entry.startswith("MIG-"):             # a part of a GPU: reached through files for it alone
        shared += [f"/dev/nvidia-caps/{path.name}" for path in sorted((root / "dev/nvidia-caps").glob("nvidia-cap*"))]
    try:
        facts = (root / "proc/driver/nvidia/gpus" / address / "information").read_text()
    except OSError:
        facts = ""
    minor = re.search(r"^Device Minor:\s*(\d+)", facts, re.MULTILINE)
    uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)", facts, re.MULTILINE)
    if minor is None or uuid is None or not (root / f"dev/nvidia{minor[1]}").exists():
        every = sorted(f"/dev/{path.name}" for path in (root / "dev").glob("nvidia[0-9]*"))
        every += [name for name in ("/dev/dxg",) if (root / name[1:]).exists()]
        return Nodes((*every, *shared), groups((*every, *shared), root), {}, index,
                     f"the driver does not say which device file belongs to {address}")
    paths = (f"/dev/nvidia{minor[1]}", *shared)
    chosen = entry if entry.startswith("MIG-") else uuid[1]
    return Nodes(paths, groups(paths, root), {"CUDA_VISIBLE_DEVICES": chosen}, 0)


def amd(index: int, address: str, root: Path) -> Nodes:
    """Of the AMD GPU at a PCI address: the runtime leaves out devices whose render node it cannot open."""
    render = sorted(path.name for path in (root / "sys/bus/pci/devices" / address / "drm").glob("renderD*"))
    if not render:
        every = sorted(f"/dev/dri/{path.name}" for path in (root / "dev/dri").glob("renderD*"))
        return Nodes(("/dev/kfd", *every), groups(("/dev/kfd", *every), root), {}, index,
                     f"no render node belongs to {address}")
    paths = ("/dev/kfd", f"/dev/dri/{render[0]}")
    hidden: dict[str, str | None] = {"HIP_VISIBLE_DEVICES": None, "ROCR_VISIBLE_DEVICES": None,
                                     "CUDA_VISIBLE_DEVICES": None}
    return Nodes(paths, groups(paths, root), hidden, 0)


def groups(paths: tuple[str, ...], root: Path) -> tuple[int, ...]:
    """The groups that open those of ``paths`` which others may not."""
    found = set()
    for name in paths:
        try:
            facts = (root / name[1:]).stat()
        except OSError:
            continue
        if not facts.st_mode & stat.S_IWOTH and facts.st_mode & stat.S_IWGRP and facts.st_gid:
            found.add(facts.st_gid)
    return tuple(sorted(found))
