# SPDX-License-Identifier: MIT
"""Which thread and register holds which element of a wgmma product, and where 16-byte pieces lie in shared memory.

    python workbench/layout.py half 64 --operand d       the 64 x n accumulators: thread and register of each element
    python workbench/layout.py half 64 --operand a       A in registers: thread, register and part of it
    python workbench/layout.py half 64 --operand shared  byte address of each 16-byte piece, in all four layouts
    python workbench/layout.py half 64 --operand transposed  the same where N is contiguous, for one product of 16 bits

The types are half, bfloat, tfloat (TF32) and eight (e4m3). Rows of shared memory are as long as the
swizzle's name says; without one they are core matrices of eight rows by 16 bytes. Source: PTX ISA, wgmma fragments and
matrix layouts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

BYTES = {"half": 2, "bfloat": 2, "tfloat": 4, "eight": 1}
SWIZZLES = (0, 32, 64, 128)


def accumulator(row: int, column: int) -> tuple[int, int]:
    """(thread, register) of element (row, column) of D."""
    return row // 16 * 32 + row % 8 * 4 + column % 8 // 2, column // 8 * 4 + row % 16 // 8 * 2 + column % 2


def fragment(row: int, byte: int) -> tuple[int, int, int]:
    """(thread, register, byte of it) of byte ``byte`` (0 to 31) of K of a row of A."""
    return row // 16 * 32 + row % 8 * 4 + byte % 16 // 4, byte // 16 * 2 + row % 16 // 8, byte % 4


def place(swizzle: int, row: int, byte: int) -> int:
    """Byte address of byte ``byte`` of a row; rows are ``swizzle`` bytes long, without swizzle 32."""
    if swizzle == 0:
        return row // 8 * 256 + byte // 16 * 128 + row % 8 * 16 + byte % 16
    address = row * swizzle + byte
    return address ^ (address >> 7 & swizzle // 16 - 1) << 4


def place_transposed(swizzle: int, row: int, k: int, rows: int, depth: int) -> int:
    """Byte address of element ``k`` of a row of 16 bits, where rows are contiguous: ``depth`` k of ``rows`` rows.

    The swizzle is 0 (core matrices of eight k by eight rows) or 128 (a k has 64 rows).
    """
    if swizzle == 0:
        return k // 8 * rows * 16 + row // 8 * 128 + k % 8 * 16 + row % 8 * 2
    address = row // 64 * depth * 128 + k * 128 + row % 64 * 2
    return address ^ (address >> 7 & 7) << 4


def table(kind: str, n: int, operand: str) -> list[str]:
    """The lines to print."""
    size = BYTES[kind]
    if operand == "d":
        cells = [[f"{thread}.{register}" for thread, register in (accumulator(row, column) for column in range(n))]
                 for row in range(64)]
        title = "thread.register of D[row][column]"
    elif operand == "a":
        cells = [[f"{thread}.{register}.{part // size}" for thread, register, part in (
            fragment(row, byte) for byte in range(0, 32, size))] for row in range(64)]
        title = f"thread.register.element of A[row][k], {32 // size} elements of K"
    elif operand == "transposed":
        cells = [["/".join(str(place_transposed(swizzle, row, k, n, 64)) for swizzle in (0, 128))
                  for row in range(0, n, 8)] for k in range(16)]
        title = "byte address of eight elements of B[k][row ...], swizzle 0/128"
    else:
        cells = [["/".join(str(place(swizzle, row, byte)) for swizzle in SWIZZLES) for byte in (0, 16)]
                 for row in range(n)]
        title = f"byte address of 16-byte pieces 0 and 1 of a row, swizzle {'/'.join(map(str, SWIZZLES))}"
    width = max(len(cell) for row in cells for cell in row)
    return [title, *(f"{number:4} " + " ".join(f"{cell:>{width}}" for cell in row) for number, row in enumerate(cells))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("type", choices=BYTES)
    parser.add_argument("n", type=int, choices=range(8, 257, 8), metavar="N", help="8 to 256 in eights")
    parser.add_argument("--operand", choices=("d", "a", "shared", "transposed"), default="d")
    options = parser.parse_args(arguments)
    if options.operand == "transposed" and BYTES[options.type] != 2:
        parser.error("only operands of 16 bits may be transposed: half and bfloat")
    print("\n".join(table(options.type, options.n, options.operand)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
