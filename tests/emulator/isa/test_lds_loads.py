# SPDX-License-Identifier: MIT
"""What moves data between memory and LDS without registers, and the counters in LDS.

Source: "AMD Instinct MI300" ISA reference, "Memory Buffer Load to LDS" and the chapter on flat memory: the wave writes
one dword a lane from M0[15:0] plus the instruction's offset on, shorter data extended.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.emulator.isa import memory_cases
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.memory_cases import ADDRESS_AT, BASE, MEMORY
from tests.emulator.isa.values import Array
from tests.emulator.isa.wave import EXEC, M0, Emulator, EmulatorError, Wave

pytestmark = pytest.mark.toolchain("rocm")

LDS_BYTES, BYTES = 4096, 8192
SIZES = {"dword": "<u4", "ubyte": "u1", "sbyte": "i1", "ushort": "<u2", "sshort": "<i2"}
GLOBAL = [(f"global_load_lds_{kind} v[4:5], off offset:-16", kind, -16) for kind in SIZES] + \
         [(f"global_load_lds_{kind} v4, s[8:9] offset:32", kind, 32) for kind in SIZES]
BUFFER = [(f"buffer_load_{kind} v4, s[8:11], s2 offen offset:64 lds", kind, 64) for kind in SIZES] + \
         [("buffer_load_format_x v4, s[8:11], s2 offen offset:64 lds", "dword", 64)]
SCRATCH = [(f"scratch_load_lds_{kind} v4, off offset:8", kind, 8) for kind in SIZES]
FULL, SOME = (1 << 64) - 1, 0x0F0F_3333_8001_FFFE
GWS = ["ds_gws_init v4 gds", "ds_gws_sema_v gds", "ds_gws_sema_br v4 gds", "ds_gws_sema_p gds", "ds_gws_barrier v4 gds",
       "ds_gws_sema_release_all gds"]
COUNTERS = ["ds_append v20 offset:16", "ds_consume v20 offset:16"]


def codes() -> list[bytes]:
    texts = [t for t, *_ in GLOBAL + BUFFER + SCRATCH] + GWS + COUNTERS + ["ds_nop"]
    return [c for c in assemble(texts) if c]


def _wave(seed: str, mask: int) -> tuple[Wave, np.random.Generator]:
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    wave = memory_cases.new_wave(rng, mask, LDS_BYTES)
    wave.sgprs[M0] = int(rng.integers(64, 512)) * 4
    return wave, rng


def _extended(memory: Array, where: Array, kind: str) -> Array:
    dtype = np.dtype(SIZES[kind])
    found = np.array([memory[w:w + dtype.itemsize].view(dtype)[0] for w in where]).astype(np.int64)
    return (found & 0xFFFFFFFF).astype(np.uint32)


def _placed(wave: Wave, offset: int, data: Array, enabled: Array) -> Array:
    lds = wave.lds.copy()
    first = (int(wave.sgprs[M0]) & 0xFFFF) + offset
    for lane in np.flatnonzero(enabled):
        lds[first + 4 * lane:first + 4 * lane + 4] = np.frombuffer(data[lane].tobytes(), np.uint8)
    return lds


def _check(wave: Wave, right: Array, code: bytes, emulator: Emulator) -> None:
    after = emulator.execute(code, wave)
    assert memory_cases.byte_differences("lds", wave.lds, right, after.lds) == []
    assert np.array_equal(after.vgprs[:24], wave.vgprs[:24])


@pytest.mark.parametrize("mask", [FULL, SOME])
@pytest.mark.parametrize(("text", "kind", "offset"), GLOBAL)
def test_global_load_to_lds(text: str, kind: str, offset: int, mask: int, emulator: Emulator) -> None:
    wave, rng = _wave(text, mask)
    MEMORY[:BYTES] = rng.integers(0, 256, BYTES, dtype=np.uint8)
    where = memory_cases.scattered(rng, 8, 1024)
    if "off " in text:
        memory_cases.fill(wave, "v", ADDRESS_AT, (BASE + where - offset).astype(np.uint64), 64)
    else:
        wave.set_scalar(8, 64, BASE + 512 - offset)
        memory_cases.fill(wave, "v", ADDRESS_AT, (where - 512).astype(np.uint64), 32)
    (code,) = assemble([text])
    assert code
    _check(wave, _placed(wave, offset, _extended(MEMORY, where, kind), wave.exec), code, emulator)


@pytest.mark.parametrize("mask", [FULL, SOME])
@pytest.mark.parametrize(("text", "kind", "offset"), BUFFER)
def test_buffer_load_to_lds(text: str, kind: str, offset: int, mask: int, emulator: Emulator) -> None:
    wave, rng = _wave(text, mask)
    MEMORY[:BYTES] = rng.integers(0, 256, BYTES, dtype=np.uint8)
    where, uniform, records = memory_cases.scattered(rng, 8), 48, 480
    data = 4 << 15 | 4 << 12 | 4            # a resource of 32-bit integers whose X is the first component
    for i, word in enumerate((BASE & 0xFFFFFFFF, BASE >> 32, records, data)):
        wave.sgprs[8 + i] = word
    wave.sgprs[2] = uniform
    wave.vgprs[ADDRESS_AT] = where.astype(np.uint32)
    found = _extended(MEMORY, where + offset + uniform, kind)
    size = np.dtype(SIZES[kind]).itemsize
    found[where + offset + size > records - uniform] = 0        # beyond the buffer
    (code,) = assemble([text])
    assert code
    _check(wave, _placed(wave, offset, found, wave.exec), code, emulator)


@pytest.mark.parametrize(("text", "kind", "offset"), SCRATCH)
def test_scratch_load_to_lds(text: str, kind: str, offset: int, emulator: Emulator) -> None:
    wave, rng = _wave(text, FULL)
    where = rng.integers(0, 12, 64)
    wave.vgprs[ADDRESS_AT] = (256 + where - offset).astype(np.uint32)
    own = np.ascontiguousarray(wave.vgprs[8:12].T).view(np.uint8)
    found = np.array([_extended(own[lane], np.array([where[lane]]), kind)[0] for lane in range(64)])
    (code,) = assemble([f"scratch_store_dwordx4 off, v[8:11], off offset:256\n{text}"])
    assert code
    _check(wave, _placed(wave, offset, found, wave.exec), code, emulator)


@pytest.mark.parametrize("mask", [FULL, SOME, 0])
@pytest.mark.parametrize("text", COUNTERS)
def test_counters_in_lds(text: str, mask: int, emulator: Emulator) -> None:
    """Append adds the number of active lanes, consume subtracts it; all of them get the value from before."""
    wave, _ = _wave(text, mask)
    (code,) = assemble([text])
    assert code
    at = (int(wave.sgprs[M0]) & 0xFFFF) + 16
    before = int(wave.lds[at:at + 4].view("<u4")[0])
    right, lanes = wave.copy(), mask.bit_count()
    right.vgprs[20][wave.exec] = before
    changed = (before + (lanes if "append" in text else -lanes)) & 0xFFFFFFFF
    right.lds[at:at + 4] = np.frombuffer(np.uint32(changed).tobytes(), np.uint8)
    assert memory_cases.state_differences(wave, right, emulator.execute(code, wave)) == []


@pytest.mark.parametrize("text", GWS)
def test_global_wave_sync_is_refused_by_name(text: str, emulator: Emulator) -> None:
    (code,) = assemble([text])
    assert code, "gfx942 has it"
    with pytest.raises(EmulatorError, match=text.split()[0]):
        emulator.execute(code, _wave(text, FULL)[0])


def test_ds_nop_does_nothing(emulator: Emulator) -> None:
    (code,) = assemble(["ds_nop"])
    assert code
    wave, _ = _wave("nop", FULL)
    assert memory_cases.state_differences(wave, wave, emulator.execute(code, wave)) == []


def test_write_to_one_address_twice_keeps_the_first_data(emulator: Emulator) -> None:
    """Equal offsets make a two-address store one store of the first operand."""
    wave, _ = _wave("twice", FULL)
    wave.vgprs[ADDRESS_AT] = np.arange(64) * 8
    (code,) = assemble(["ds_write2_b32 v4, v8, v12 offset0:3 offset1:3"])
    assert code
    right = wave.copy()
    right.lds.view("<u4")[3:131:2] = wave.vgprs[8]
    assert memory_cases.state_differences(wave, right, emulator.execute(code, wave)) == []


def test_exec_is_not_touched(emulator: Emulator) -> None:
    wave, _ = _wave("exec", SOME)
    wave.vgprs[ADDRESS_AT] = np.arange(64) * 4
    (code,) = assemble(["ds_read_b32 v20, v4"])
    assert code
    assert emulator.execute(code, wave).pair(EXEC) == SOME
