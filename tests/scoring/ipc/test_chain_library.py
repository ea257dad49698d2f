# SPDX-License-Identifier: MIT
"""``ipc.chain_library`` and its native code: what seals, mixes and commits promise; all builds agree to the bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backends
from backends.source import KernelSource
from scoring.ipc.chain_library import ChainError, ChainLibrary, can_mix
from scoring.run.build import NATIVE
from tests.scoring.harness import ROOT

KEY, OTHER = bytes(range(16)), bytes(range(1, 17))
SIZES = [0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000, 8191, 8192, 8193, 65537]


def build(backend_name: str, cache: Path, gpu: str | None = None) -> Path:
    backend = backends.get(backend_name)
    source = KernelSource.read(NATIVE / f"chain{backend.suffix}", NATIVE, "chain")
    return backend.compile(source, backend.target(gpu), cache_dir=cache).path


@pytest.fixture(scope="module")
def library(cache) -> ChainLibrary:
    return ChainLibrary(str(build("cpu", cache)), "cpu")


def noise(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def digest(library: ChainLibrary, data: torch.Tensor, key: bytes = KEY, nonce: int = 0) -> bytes:
    out = library.keys(1)[0]
    library.commit(data.data_ptr(), data.data_ptr(), data.numel(), library.key(key), out, nonce)
    return bytes(out.tolist())


# seal ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", SIZES)
def test_a_seal_undoes_itself_and_hides_everything(library, size):
    data = noise(size)
    sealed = data.clone()
    library.seal(sealed, library.key(KEY), 3)
    if size >= 63:
        assert float((sealed == data).float().mean()) < 0.06, "one in 256 by chance"
    library.seal(sealed, library.key(KEY), 3)
    assert torch.equal(sealed, data)


def test_a_keystream_depends_on_key_and_nonce_and_looks_random(library):
    def stream(key: bytes, nonce: int) -> torch.Tensor:
        zeros = torch.zeros(1 << 16, dtype=torch.uint8)
        library.seal(zeros, library.key(key), nonce)
        return zeros

    streams = [stream(KEY, 0), stream(KEY, 1), stream(OTHER, 0)]
    for index, one in enumerate(streams):
        counts = torch.bincount(one.long(), minlength=256)
        assert int(counts.min()) > 180, "256 expected of each"
        assert int(counts.max()) < 340
        for other in streams[:index]:
            assert 150 < int((one == other).sum()) < 370, "256 expected by chance"


# mix -----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("count", [1, 255, 256, 257, 5000, 16384, 20001])
def test_a_mix_draws_every_window_from_itself(library, dtype, count):
    """In words of four bytes where the tensor fills them, else in elements."""
    whole = count * dtype.itemsize % 4 == 0
    units = torch.arange(count * dtype.itemsize // 4 if whole else count, dtype=torch.int64)
    old = units.to(torch.int32).view(dtype) if whole else units.to(dtype)
    new = old.clone()
    library.mix(new, library.key(KEY), 0)
    drawn, before = (tensor.view(torch.int32) if whole else tensor for tensor in (new, old))
    for begin in range(0, len(units), 256):
        assert set(drawn[begin : begin + 256].tolist()) <= set(before[begin : begin + 256].tolist())
    if count > 2000 and whole:
        assert float((drawn == before).float().mean()) < 0.02
        kept = len(set(drawn[:256].tolist()))
        assert 130 < kept < 195, "256 draws from 256 with replacement leave 63 % of them"


def test_a_mix_depends_on_key_and_nonce(library):
    def mixed(key: bytes, nonce: int) -> torch.Tensor:
        data = torch.arange(4096, dtype=torch.int32)
        library.mix(data, library.key(key), nonce)
        return data

    assert torch.equal(mixed(KEY, 0), mixed(KEY, 0))
    for other in (mixed(OTHER, 0), mixed(KEY, 1)):
        assert float((mixed(KEY, 0) == other).float().mean()) < 0.02


def test_what_can_be_mixed():
    assert can_mix(torch.zeros(3, 5))
    assert can_mix(torch.zeros(3, 5).t())
    assert can_mix(torch.zeros(3, 1, 5).permute(2, 1, 0))
    assert not can_mix(torch.zeros(3, 6)[:, :5]), "with gaps"
    assert not can_mix(torch.zeros(1).expand(4)), "with overlaps"
    assert not can_mix(torch.zeros(4, dtype=torch.float64)), "too wide"
    assert not can_mix(torch.zeros(0))


# commit --------------------------------------------------------------------------------------------------------------

@given(st.integers(1, 40000), st.integers(0, 2**32), st.data())
@settings(max_examples=80, deadline=None)
def test_one_flipped_bit_changes_the_whole_digest(library, size, seed, data):
    bytes_ = noise(size, seed)
    before = digest(library, bytes_)
    at, bit = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 7))
    bytes_[at] ^= 1 << bit
    after = digest(library, bytes_)
    changed = sum((a ^ b).bit_count() for a, b in zip(before, after, strict=True))
    assert changed > 30, "64 of 128 bits are expected to change"


def test_digests_depend_on_key_nonce_length_and_order(library):
    data = noise(4096)
    zeros = [digest(library, torch.zeros(size, dtype=torch.uint8)) for size in SIZES if size]
    swapped = torch.cat([data[64:128], data[:64], data[128:]])
    moved = torch.cat([data[2048:], data[:2048]])
    found = [digest(library, data), digest(library, data, OTHER), digest(library, data, nonce=1),
             digest(library, swapped), digest(library, moved), *zeros]
    assert len(set(found)) == len(found)


def test_a_digest_is_not_linear(library):
    """What Freivalds' trick would need: the digest of a sum told from the digests of the parts."""
    a, b = noise(1024, 1), noise(1024, 2)
    parts = [digest(library, part) for part in (a, b, a ^ b, torch.zeros_like(a))]
    together = bytes(w ^ x ^ y ^ z for w, x, y, z in zip(*parts, strict=True))
    assert sum(byte.bit_count() for byte in together) > 30


@pytest.mark.parametrize("size", SIZES)
def test_a_commit_copies_what_it_digests(library, size):
    source, target, out = noise(size), torch.zeros(size, dtype=torch.uint8), library.keys(1)[0]
    library.commit(source.data_ptr(), target.data_ptr(), size, library.key(KEY), out, 0)
    assert torch.equal(source, target)
    assert bytes(out.tolist()) == digest(library, source)


def test_a_digest_may_replace_its_key(library):
    data, key = noise(777), library.key(KEY)
    library.commit(data.data_ptr(), data.data_ptr(), data.numel(), key, key, 0)
    assert bytes(key.tolist()) == digest(library, data)


def test_a_library_that_is_none(tmp_path):
    with pytest.raises(ChainError, match="cannot be loaded"):
        ChainLibrary(str(tmp_path / "nothing.so"), "cpu")


# All builds alike ----------------------------------------------------------------------------------------------------

ALIKE = """
import mmap
import sys
import torch
from scoring.ipc.chain_library import (
    DOORBELL_ANSWERED, DOORBELL_DIGEST, DOORBELL_KEY, DOORBELL_LISTENS, DOORBELL_RUNG, ChainLibrary)
from scoring.ipc.emulator import Emulator

emulator = Emulator(sys.argv[1], {"checks": "all", "counters": "0", "strict": "0"})
ours, theirs = ChainLibrary(sys.argv[2], "cpu"), ChainLibrary(sys.argv[3], "cpu")
key = ours.key(bytes(range(16)))
for size in map(int, sys.argv[4].split(",")):
    data = torch.randint(0, 256, (size,), dtype=torch.uint8)
    results = []
    for library in (ours, theirs):
        sealed, copied = data.clone(), torch.zeros_like(data)
        library.seal(sealed, key, 3)
        mixed = [data[: size // width * width].clone().view(dtype) for width, dtype in
                 ((1, torch.uint8), (2, torch.int16), (4, torch.int32))]
        for tensor in mixed:
            library.mix(tensor, key, 1)
        digest = library.keys(1)[0]
        library.commit(data.data_ptr(), copied.data_ptr(), size, key, digest, 2)
        results.append([sealed, copied, digest, *mixed])
    assert all(a.tolist() == b.tolist() for a, b in zip(*results)), size

page = mmap.mmap(-1, mmap.PAGESIZE)
doorbells, digest = torch.frombuffer(page, dtype=torch.uint8), key.flip(0)
for library in (ours, theirs):
    doorbells.zero_()
    doorbells[DOORBELL_RUNG], doorbells[DOORBELL_KEY : DOORBELL_KEY + 16], heard = 1, key, library.keys(1)[0]
    seen = library.open(doorbells)
    library.listen(seen, heard)
    library.answer(seen, digest)
    library.close(doorbells)
    assert heard.tolist() == key.tolist() and doorbells[DOORBELL_LISTENS] == 1 and doorbells[DOORBELL_ANSWERED] == 1
    assert torch.equal(doorbells[DOORBELL_DIGEST : DOORBELL_DIGEST + 16], digest)
print(emulator.take_findings() or "alike")
"""


def test_the_gpu_build_agrees_with_the_hosts_to_the_bit(cache):
    """The kernels both vendors get, compiled for gfx942 and run on the emulator with all its checks."""
    rocm = backends.get("rocm")
    available = rocm.prepare(rocm.probe(), lambda _text: None)
    device = next(device for device in available.devices if device.emulated)
    (emulator,) = rocm.runtime_libraries(device)
    sizes = "1,16,33,64,100,1000,8192,8255,40000"
    done = subprocess.run(
        [sys.executable, "-c", ALIKE, str(emulator), str(build("cpu", cache)), str(build("rocm", cache)), sizes],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "alike", done.stdout + done.stderr
