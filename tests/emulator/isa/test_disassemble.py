# SPDX-License-Identifier: MIT
"""The decoder by what it says: whatever was assembled disassembles to text that assembles to the same bits.

Equal bits mean that mnemonic, every operand and every modifier were understood; only fields that LLVM has no syntax for
are not seen by this.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import numpy as np
import pytest

from tests.emulator.isa import suites
from tests.emulator.isa.assembler import assemble
from tests.emulator.isa.sources import register_text
from tests.emulator.isa.wave import Emulator, EmulatorError, random_wave

pytestmark = pytest.mark.toolchain("rocm")

_FLAGS = ("", "sc0", "sc1", "nt", "sc0 sc1", "sc0 nt sc1")
_MORE = [
    *(f"global_load_dwordx4 v[20:23], v4, s[8:9] offset:-4096 {flags}" for flags in _FLAGS),
    *(f"flat_store_dwordx2 v[4:5], a[8:9] offset:4095 {flags}" for flags in _FLAGS),
    *(f"buffer_load_dword v20, v[4:5], s[8:11], 0.5 idxen offen offset:4095 {flags}" for flags in _FLAGS),
    *(f"buffer_inv {flags}" for flags in _FLAGS if flags != "sc0 nt sc1"), *(f"buffer_wbl2 {f}" for f in _FLAGS),
    *(f"s_mov_b64 s[20:21], {place}" for place in (
        "src_shared_base", "src_private_limit", "src_vccz", "src_execz", "src_scc", "vcc", "exec", "flat_scratch",
        "xnack_mask", "ttmp[4:5]", "s[100:101]", "-16", "64", "0.15915494309189532", "-4.0", "0xdeadbeef")),
    *(f"v_add_f32 v20, {place}, v255" for place in ("s101", "vcc_hi", "exec_lo", "m0", "src_shared_limit", "0x12345")),
    "v_fmamk_f32 v20, v4, 0x11213141, v8", "v_fmaak_f32 v20, v4, v8, 0x1234", "v_add_f16 v20, 0.15915494, v8",
    "v_add_f64 v[20:21], 0.15915494309189532, v[8:9]", "v_cmp_lt_f64_e64 s[4:5], |v[4:5]|, -s[8:9]",
    "v_div_scale_f64 v[20:21], s[30:31], v[4:5], 1.0, v[8:9]", "s_cmp_eq_u64 s[4:5], exec", "s_cbranch_scc0 65535",
    "s_waitcnt vmcnt(63) expcnt(7) lgkmcnt(15)", "s_waitcnt vmcnt(0)", "s_sendmsg sendmsg(MSG_INTERRUPT)",
    "s_call_b64 s[30:31], 4660", "ds_write2st64_b64 v4, a[8:9], a[12:13] offset0:255 offset1:1",
]

# Numbers of no instruction in each format, and formats that a later machine has.
_NONE = [0x7FFFFFFF, 0x7C000000 | 0xFF << 9, 0xBFFF0000, 0xBE80FF00, 0xD0000000 | 0x2FF << 16, 0xD3800000 | 0x5B << 16,
         0xD8000000 | 0x1C << 17, 0xDDFC8000, 0xE1FC0000, 0xF0000000, 0xC3FC0000]


def _matrix(emulator: Emulator) -> Iterable[str]:
    """Every matrix instruction with its operands in every register file, and its fields."""
    for row in emulator.instructions():
        if row["formats"] != ["mai"] or "accvgpr" in row["name"]:
            continue
        result, parts = row["signature"].split("=")
        sizes = [_registers(p) for p in parts.split(",") if p != "d"]
        for which in itertools.product("va", repeat=3):
            files = [which[0], which[1], which[2]] if "smfmac" not in row["name"] else [which[0], which[1], "v"]
            sources = [register_text(f, 8 * (i + 1), n) for i, (f, n) in enumerate(zip(files, sizes, strict=True))]
            if "smfmac" not in row["name"]:
                sources[2] = register_text(which[2], 40, sizes[2])
            yield f"{row['name']} {register_text(which[2], 40, _registers(result))}, {', '.join(sources)}"
        text = f"{row['name']} {register_text('v', 40, _registers(result))}, {', '.join(sources[:2])}"
        if "smfmac" in row["name"]:
            yield f"{text}, v30 cbsz:1 abid:1"
        elif "f64" in row["name"]:
            yield f"{text}, -2.0 neg:[1,0,1]"
        elif "xf32" not in row["name"] and "f8" not in row["name"]:
            yield f"{text}, 1.0 cbsz:1 abid:1"
            yield f"{text}, 5 blgp:5"


def _registers(kind: str) -> int:
    match = re.fullmatch(r"[a-z]+(\d+)(?:x(\d+))?", kind)
    assert match, kind
    return int(match.group(1)) // 32 * int(match.group(2) or 1)


def instructions(code: bytes, emulator: Emulator) -> Iterable[tuple[bytes, str]]:
    while code:
        text, words = emulator.disassemble(code)
        assert words, f"{code[:8].hex()} is not decoded"
        yield code[:4 * words], text
        code = code[4 * words:]


def _differences(codes: Iterable[bytes], emulator: Emulator) -> list[str]:
    texts = {single: text for code in codes for single, text in instructions(code, emulator)}
    again = assemble(list(texts.values()))
    return [f"{text}: was {code.hex()}, is {found.hex() if found else 'refused'}"
            for (code, text), found in zip(texts.items(), again, strict=True) if found != code]


@pytest.mark.parametrize("suite", suites.NAMES)
def test_text_assembles_to_the_same_bits(suite: str, emulator: Emulator) -> None:
    assert _differences(suites.codes(suite), emulator) == []


def test_matrix_instructions_assemble_to_the_same_bits(emulator: Emulator) -> None:
    codes = [c for c in assemble(list(_matrix(emulator))) if c]
    assert len(codes) > 400
    assert _differences(codes, emulator) == []


def test_operands_and_flags_assemble_to_the_same_bits(emulator: Emulator) -> None:
    codes = assemble(_MORE)
    assert [t for t, c in zip(_MORE, codes, strict=True) if c is None] == []
    assert _differences([c for c in codes if c], emulator) == []


@pytest.mark.parametrize("word", _NONE, ids=hex)
def test_what_is_no_instruction_is_refused_with_its_bits(word: int, emulator: Emulator) -> None:
    code = b"".join(w.to_bytes(4, "little") for w in (word, 0))
    assert emulator.disassemble(code) == ("", 0)
    with pytest.raises(EmulatorError, match=f"no gfx942 instruction.*0x{word:x}"):
        emulator.execute(code, random_wave(np.random.default_rng(6)))
