# SPDX-License-Identifier: MIT
"""Which unit of the GPU an instruction occupies, by its mnemonic: SASS (sm_80 to sm_100) and gfx9 (CDNA).

Sources: NVIDIA's "CUDA Binary Utilities" (instruction set reference) and AMD's "CDNA3 Instruction Set Architecture".
"""

from __future__ import annotations

import re

# In the order of tables and bars. "tma" is the bulk copy unit of Hopper and "buffer" AMD's loads by descriptor.
UNITS = (
    "tensor", "fp32", "fp16", "fp64", "conversion", "special", "integer", "move", "cross-lane", "shared", "global",
    "tma", "buffer", "local", "constant", "barrier", "wait", "branch", "other",
)

_SASS = {
    "conversion": "F2F F2I I2F I2FP F2FP F2IP FRND I2I I2IP",
    "special": "MUFU",
    "fp32": "FADD FMUL FFMA FMNMX FMNMX3 FSEL FSETP FSET FCHK FSWZADD FFMA32I FADD32I FMUL32I FADD2 FMUL2 FFMA2",
    "fp16": "HADD2 HMUL2 HFMA2 HMNMX2 HSETP2 HSET2 HADD2_32I HMUL2_32I HFMA2_32I",
    "fp64": "DADD DMUL DFMA DMNMX DSETP",
    "shared": "LDS STS LDSM STSM ATOMS STAS REDAS",
    "global": "LDG STG LD ST ATOM ATOMG RED REDG LDGSTS LDGMC CCTL CCTLL CCTLT QSPC",
    "tma": "UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UBLKCP UBLKRED UBLKPF",
    "local": "LDL STL",
    "constant": "LDC LDCU ULDC",
    "barrier": "BAR UCGABAR_ARV UCGABAR_WAIT WARPSYNC MEMBAR FENCE ERRBAR B2R R2B",
    "wait": "DEPBAR LDGDEPBAR NANOSLEEP UTMACMDFLUSH ARRIVES ACQBULK",
    "branch": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BSSY BSYNC BREAK BMOV KILL BPT YIELD PREEXIT",
    "cross-lane": "SHFL VOTE VOTEU REDUX CREDUX MATCH MOVM ELECT ENDCOLLECTIVE",
    "move": "MOV MOV32I UMOV SEL USEL PRMT UPRMT S2R S2UR CS2R R2UR P2R R2P UP2UR UR2UP PLOP3 UPLOP3 CS2UR USETMAXREG",
    "integer": "IADD3 IADD IMAD IMUL LEA LOP3 LOP SHF SHL SHR ISETP IMNMX IABS BREV BMSK FLO POPC SGXT IDP IDP4A "
               "VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VIMNMX3 ISCADD IADD32I LOP32I",
}
_SASS_UNIT = {name: unit for unit, names in _SASS.items() for name in names.split()}
_SASS_MATRIX = re.compile(r"(H|Q|I|D|B|O)G?MMA|UTC[A-Z]*MMA\w*")
_GFX_SPECIAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_GFX_LANES = re.compile(r"ds_(b?permute|swizzle)|v_(readlane|writelane|readfirstlane|permlane)|v_mbcnt")
_GFX_BRANCH = re.compile(r"s_(c?branch|endpgm|setpc|swappc|call|getpc|trap)")


def sass(opcode: str) -> str:
    """The unit of a SASS mnemonic such as ``LDGSTS.E.BYPASS.128``."""
    base = opcode.partition(".")[0]
    if _SASS_MATRIX.fullmatch(base):
        return "tensor"
    if base == "SYNCS":          # mbarriers: a try_wait looks at a phase, the rest arrives
        return "wait" if "PHASECHK" in opcode or "TRYWAIT" in opcode else "barrier"
    if base == "WARPGROUP":      # wgmma's wait (DEPBAR) and fence (ARRIVE)
        return "wait"
    if base in _SASS_UNIT:
        return _SASS_UNIT[base]
    if base.startswith("U") and base[1:] in _SASS_UNIT:
        return _SASS_UNIT[base[1:]]
    return "other"


def gfx(opcode: str) -> str:
    """The unit of a gfx9 mnemonic such as ``v_mfma_f32_32x32x8_f16``."""
    if opcode.startswith(("v_mfma", "v_smfmac")):
        return "tensor"
    if _GFX_LANES.match(opcode):
        return "cross-lane"
    for prefix, unit in (("ds_", "shared"), ("buffer_", "buffer"), ("global_", "global"), ("flat_", "global"),
                         ("scratch_", "local"), ("s_load_", "constant"), ("s_buffer_", "constant"),
                         ("s_barrier", "barrier"), ("s_waitcnt", "wait"), ("s_sleep", "wait"), ("s_nop", "wait")):
        if opcode.startswith(prefix):
            return unit
    if _GFX_BRANCH.match(opcode):
        return "branch"
    if not opcode.startswith("v_"):
        return "integer" if opcode.startswith("s_") else "other"
    if _GFX_SPECIAL.match(opcode):
        return "special"
    if opcode.startswith("v_cvt_"):
        return "conversion"
    if opcode.startswith(("v_mov", "v_accvgpr", "v_perm_", "v_cndmask", "v_swap", "v_pk_mov", "v_alignb")):
        return "move"
    for suffix, unit in (("_f64", "fp64"), ("_f32", "fp32"), ("f16", "fp16")):
        if suffix in opcode:
            return unit
    return "integer"


def is_exponential(opcode: str) -> bool:
    """Whether it computes 2^x on the special function unit."""
    return opcode.startswith(("MUFU.EX2", "v_exp_"))
