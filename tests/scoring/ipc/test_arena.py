# SPDX-License-Identifier: MIT
"""``scoring.ipc.arena``: memory two processes share, that the other one cannot take away."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scoring.ipc import arena


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_both_sides_see_the_same_bytes():
    ours = arena.create_host(100)
    theirs = arena.attach(ours.export, os.dup(ours.fd), 0)
    assert ours.block.numel() == theirs.block.numel() == 100
    assert not bool(ours.block.any()), "fresh memory is zero"
    theirs.block[7] = 42
    assert int(ours.block[7]) == 42
    theirs.close()
    ours.close()


def test_closing_gives_descriptors_and_memory_back():
    def mappings() -> int:
        """Of this process, in which other tests may have left some."""
        return Path("/proc/self/maps").read_text().count("memfd:warpwave")

    gc.collect()
    before, mapped = descriptors(), mappings()
    for _ in range(20):
        block = arena.create_host(1 << 20)
        block.block.fill_(1)
        block.close()
        block.close()
    assert descriptors() == before
    assert mappings() == mapped


@pytest.mark.parametrize("nbytes", [1 << 48, 1 << 62, 1 << 63, 1 << 70])
def test_no_room_is_an_arena_error_and_leaks_nothing(nbytes):
    before = descriptors()
    with pytest.raises(arena.ArenaError, match=f"cannot allocate {nbytes} bytes"):
        arena.create_host(nbytes)
    assert descriptors() == before


def test_the_other_side_cannot_pull_the_memory_away():
    """Without seals the judge would die of SIGBUS when it reads what a worker has truncated."""
    block = arena.create_host(8192)
    code = "import os, sys; os.ftruncate(int(sys.argv[1]), int(sys.argv[2]))"
    for size in ("0", "1", "100000"):
        done = subprocess.run([sys.executable, "-c", code, str(block.fd), size], pass_fds=[block.fd],
                              capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr
    assert int(block.block.sum()) == 0
    block.close()


@pytest.mark.parametrize("nbytes", [0, 1])
def test_tiny_arenas(nbytes):
    block = arena.create_host(nbytes)
    assert arena.TensorSpec("x", "float32", (0, 4), (4, 1), 0).view(block.block).shape == (0, 4)
    block.close()


def test_a_host_arena_needs_its_descriptor():
    with pytest.raises(arena.ArenaError, match="descriptor"):
        arena.attach({"kind": "host", "nbytes": 4}, None, 0)


@pytest.mark.parametrize("spec", [
    arena.TensorSpec("x", "float32", (4,), (1,), -4), arena.TensorSpec("x", "float32", (5,), (1,), 0),
    arena.TensorSpec("x", "float32", (2,), (4,), 4), arena.TensorSpec("x", "int8", (1,), (1,), 16),
], ids=["before", "too long", "strided out", "behind"])
def test_a_view_never_reaches_outside(spec):
    with pytest.raises(arena.ArenaError, match="does not fit"):
        spec.view(torch.zeros(16, dtype=torch.uint8))


@pytest.mark.parametrize("name", ["float33", "nn", "device", "__name__", "Tensor"])
def test_only_dtypes_are_dtypes(name):
    with pytest.raises(arena.ArenaError, match="unknown dtype"):
        arena.dtype_of(name)


@pytest.mark.parametrize(("shape", "strides", "elements"), [
    ((), (), 1), ((3,), (1,), 3), ((2, 3), (3, 1), 6), ((2, 3), (10, 1), 13), ((4, 0), (7, 1), 0), ((5,), (0,), 1),
])
def test_extent(shape, strides, elements):
    assert arena.extent(shape, strides) == elements
