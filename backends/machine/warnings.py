# SPDX-License-Identifier: MIT
"""What in a piece of machine code costs time and need not be there. Pure; one function per kind of warning."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from backends.machine.model import Function, Image

_LOSS = re.compile(r"Potential Performance Loss: (wgmma\.mma_async instructions are serialized due to .*?) "
                   r"in the function '([^']+)'|Potential Performance Loss: (wgmma\.mma_async .*)")
_EXPECTED = re.compile(r"\bwgmma\.mma_async\b|\bmma\.sync\b|\bwmma::|_builtin_amdgcn_s?mfma\w*|\bmma_sync\(")
_UNPACK_FP8 = re.compile(r"F2FP(?:\.\w+)*\.E[45]M[23](?:\.\w+)*\.UNPACK_B")
_GROUP_END = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0")
_FEW = 4               # products below which waiting for each is no pattern
_SHOWN = 5             # places of one warning


@dataclass(frozen=True)
class Warning:
    """``kind`` is fit for programs, ``text`` for people; ``function`` is a short name, "" for the whole file."""

    kind: str
    function: str
    text: str


def warnings(image: Image, whole: bool = True) -> list[Warning]:
    """All warnings; ``whole`` says that no function of the file was left out."""
    found = list(_reported(image))
    reported = {each.function for each in found}
    for function in image.functions:
        if function.name not in reported:
            found += _serialised(function)
        found += [*_local(function), *_emulated_fp8(function)]
    return found + (list(_absent(image)) if whole else [])


def _reported(image: Image) -> Iterator[Warning]:
    names = {function.mangled: function.name for function in image.functions}
    for match in _LOSS.finditer(image.log):
        if match[3] or match[2] in names:
            yield Warning("serialised", names.get(match[2] or "", ""), f"ptxas: {match[1] or match[3]}")


def _serialised(function: Function) -> Iterator[Warning]:
    products = [each for each in function.code if "GMMA" in each.base]
    alone = sum("gsb0" in each.text for each in products)
    waits = sum(bool(_GROUP_END.search(each.text)) for each in function.code)
    if len(products) >= _FEW and alone == len(products) and waits >= len(products):
        yield Warning("serialised", function.name,
                      f"all {len(products)} wgmma are waited for one by one: products are serialised")


def _local(function: Function) -> Iterator[Warning]:
    used = [each for each in function.code if each.unit == "local"]
    if not used:
        return
    places = Counter(str(each.places[0]) if each.places else f"{each.address:#x}" for each in used)
    listed = ", ".join(f"{place} ({count})" for place, count in places.most_common(_SHOWN))
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    yield Warning("local", function.name, f"{len(used)} accesses to local memory (spilled registers or arrays that "
                  f"are indexed at run time): {listed}{more}")


def _emulated_fp8(function: Function) -> Iterator[Warning]:
    units = Counter(each.base for each in function.code if each.unit == "tensor")
    unpacked = sum(bool(_UNPACK_FP8.match(each.opcode)) for each in function.code)
    if units["HMMA"] and not units["QMMA"] and not units["QGMMA"] and unpacked >= units["HMMA"]:
        yield Warning("fp8", function.name, f"{unpacked} conversions unpack FP8 to fp16 for {units['HMMA']} HMMA: "
                      f"{function.arch} has no FP8 product for mma.sync; wgmma has")


def _absent(image: Image) -> Iterator[Warning]:
    match = _EXPECTED.search(image.source)
    if match and not any(each.unit == "tensor" for function in image.functions for each in function.code):
        yield Warning("absent", "", f"the source names {match[0]}, and no function has a tensor instruction: it is not "
                      "called, or a macro or an architecture switches it off")
