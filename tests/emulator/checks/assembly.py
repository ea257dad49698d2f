# SPDX-License-Identifier: MIT
"""Kernels in gfx942 assembly, each twice: with a planted bug and with the bug mended. All of them are one code object.

A kernel begins with its arguments in scalar registers and its registers defined: s[4:5] ``input``, s[6:7] ``output``
(both ``BYTES`` long), s2 the workgroup, s3 the wave, v0 the work-item, v1 four times its lane. v2 to v31, a0 to a31,
s8 to s27 and VCC are 0; v32 to v63, a32 to a39 and s28 to s39 are what nothing was written to. Its text may use its
name, ``{kernel}``, for labels and jump to ``.Ldone_{kernel}``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BYTES = 1024  # of each buffer
LDS = 4096
SCRATCH = 64  # a lane
MARK = "// !"  # at the end of the line that is to be found

_HEAD = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.amdhsa_code_object_version 5
.text
"""
_DESCRIPTOR = """
.amdhsa_kernel {name}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 104
  .amdhsa_next_free_sgpr 40
  .amdhsa_accum_offset 64
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_enable_private_segment 1
  .amdhsa_kernarg_size 16
.end_amdhsa_kernel
"""
_METADATA = """  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .wavefront_size: 64
    .sgpr_count: 40
    .vgpr_count: 64
    .agpr_count: 40
    .max_flat_workgroup_size: 1024
    .args:
      - {{.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}}
      - {{.offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}}
"""
_PROLOGUE = "\n".join(
    [
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        *(f"v_mov_b32 v{n}, 0" for n in range(2, 32)),
        *(f"v_accvgpr_write_b32 a{n}, 0" for n in range(32)),
        *(f"s_mov_b32 s{n}, 0" for n in range(8, 28)),
        "s_mov_b64 vcc, 0",
        "v_lshrrev_b32 v1, 6, v0",
        "s_nop 1",
        "v_readfirstlane_b32 s3, v1",
        "v_and_b32 v1, 63, v0",
        "v_lshlrev_b32 v1, 2, v1",
        "s_waitcnt lgkmcnt(0)",
        "s_nop 15",
        "s_nop 15",
    ]
)


@dataclass(frozen=True)
class Case:
    """Texts may be indented. ``wrong`` has one line that ends in ``MARK``: where ``check`` must find what ``message``
    (a regular expression) matches, and nothing else may be found. ``right`` is the same without the bug.
    """

    name: str
    check: str
    wrong: str
    right: str
    message: str
    lane: int | None = None  # that the finding names; None: any
    wave: int | None = None
    group: int | None = None
    threads: int = 64
    groups: int = 1
    freed: bool = False  # ``input`` is freed before the launch with the bug


def source(cases: Sequence[Case]) -> str:
    """Kernels ``<name>_wrong`` and ``<name>_right``."""
    kernels = [
        (f"{case.name}_{kind}", text)
        for case in cases
        for kind, text in (("wrong", case.wrong), ("right", case.right))
    ]
    parts = [_HEAD]
    for name, text in kernels:
        body = "\n".join(line.strip() for line in text.replace("{kernel}", name).strip().splitlines())
        parts.append(
            f".p2align 8\n.globl {name}\n.type {name},@function\n{name}:\n{_PROLOGUE}\n{body}\n"
            f".Ldone_{name}:\ns_endpgm\n.Lend_{name}:\n.size {name}, .Lend_{name}-{name}\n"
        )
    parts.append(".rodata\n.p2align 6\n")
    parts += [_DESCRIPTOR.format(name=name, lds=LDS, scratch=SCRATCH) for name, _ in kernels]
    parts.append(
        ".amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.target: amdgcn-amd-amdhsa--gfx942\namdhsa.kernels:\n"
    )
    parts += [_METADATA.format(name=name, lds=LDS, scratch=SCRATCH) for name, _ in kernels]
    parts.append("...\n.end_amdgpu_metadata\n")
    return "".join(parts)


def unmarked(text: str) -> str:
    return text.replace(MARK, "")


def replaced(name: str, check: str, text: str, wrong: object, right: object, message: str, **more: Any) -> Case:
    """The same text with two things in place of ``{x}``."""
    first, second = (text.replace("{x}", str(each)) for each in (wrong, right))
    return Case(name, check, first, unmarked(second), message, **more)


def marked_line(text: str, name: str) -> int:
    """The number of the marked line of kernel ``name``."""
    lines = text.splitlines()
    start = lines.index(f"{name}:")
    end = lines.index(f".Lend_{name}:")
    marked = [number for number in range(start, end) if lines[number].endswith(MARK)]
    assert len(marked) == 1, f"{name} has {len(marked)} marked lines"
    return marked[0] + 1


def assemble(text: str, folder: Path) -> bytes:
    """The code object, with line numbers of ``folder / "cases.s"``."""
    path, object_file, library = folder / "cases.s", folder / "cases.o", folder / "cases.hsaco"
    path.write_text(text)
    zig = [sys.executable, "-m", "ziglang"]
    _run(
        [
            *zig,
            "clang",
            "-target",
            "amdgcn-amd-amdhsa",
            "-mcpu=gfx942",
            "-g",
            "-x",
            "assembler",
            "-c",
            str(path),
            "-o",
            str(object_file),
        ]
    )
    _run([*zig, "ld.lld", "-shared", str(object_file), "-o", str(library)])
    return library.read_bytes()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
