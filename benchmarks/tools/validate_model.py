# SPDX-License-Identifier: MIT
"""The timing model against published MI300X times of the very same sources.

    python benchmarks/tools/validate_model.py --sources DIR [--only ladder] [--half judged] [--json FILE]

``DIR`` has checkouts named ``owner+repository`` (published_programs.py lists them); nothing of them is committed.
Programs are built once, into ``--build``. A sample of the workgroups of each launch runs. Every second row is of the
half that constants of the model may be fitted to; the other half judges them.

Of Snektron's 380 configurations ``--configurations`` are drawn with the seed in published_programs.py; 0 takes all.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import io
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from emulated import ROOT, Emulator, modelled
from published_programs import CONFIGURATIONS, Program, Row, families, folder

from backends import rocm
from backends.emulator.hipcc import main as hipcc
from backends.toolchain import Tool

# MiB: two operands, both transposed, result, partial sums, two kinds of scales, counters.
BUFFERS = [64, 64, 64, 64, 96, 192, 16, 16, 16]


@dataclass
class Found:
    row: Row
    modelled: float
    launches: list[dict[str, Any]]
    changed: list[float]             # modelled µs with other numbers in the model

    @property
    def ratio(self) -> float:
        return self.modelled / self.row.published


def headers(sources: Path, build: Path) -> Path:
    """A folder with what hipcc's headers have and the compiler's wheels lack."""
    place = build / "headers"
    hip, detail = place / "hip", place / "hip" / "amd_detail"
    detail.mkdir(parents=True, exist_ok=True)
    (place / "rocwmma").mkdir(exist_ok=True)
    links = {place / "rocwmma" / "rocwmma.hpp": ROOT / "benchmarks" / "tools" / "rocwmma_stand_in.h"}
    for name in ("bf16", "bfloat16", "fp8", "fp16"):
        links[hip / f"hip_{name}.h"] = folder(sources, "hip") / "include" / "hip" / f"hip_{name}.h"
    amd = folder(sources, "clr") / "hipamd" / "include" / "hip" / "amd_detail"
    for name in ("amd_hip_bf16", "amd_hip_bfloat16", "amd_hip_fp8", "amd_hip_fp16"):
        links[detail / f"{name}.h"] = amd / f"{name}.h"
    compiler = rocm.find()
    if not isinstance(compiler, Tool):      # what those headers take to be beside themselves
        for each in (compiler.headers / "hip" / "amd_detail").iterdir():
            links.setdefault(detail / each.name, each)
    for link, target in links.items():
        if link.resolve() != target.resolve():     # or another checkout made it
            link.unlink(missing_ok=True)
            link.symlink_to(target.resolve())
    return place


def built(program: Program, extra: Path, build: Path) -> Path | str:
    """The program's shared library, or what its compiler said."""
    key = hashlib.sha256("".join((program.text, *program.flags)).encode()).hexdigest()[:12]
    library = build / f"{program.name}_{key}.so"
    if library.is_file():
        return library
    source = build / f"{program.name}_{key}.hip"
    source.write_text(program.text)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = hipcc(["-O3", *program.flags, "-std=c++20", "-DNDEBUG", "-w", "-shared", "-fPIC",
                        "-isystem", str(extra), "-isystem", str(extra / "hip"),
                        *(f"-I{each}" for each in program.folders), str(source), "-o", str(library)])
    return said.getvalue() if status else library


class Device:
    def __init__(self, emulator: Emulator, megabytes: Sequence[int] = BUFFERS):
        self.emulator = emulator
        self._hip = emulator.library
        self._hip.hipMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._hip.hipMemset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        self._hip.hipMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.buffers = (ctypes.c_void_p * len(megabytes))(*(self._allocated(size) for size in megabytes))

    def put(self, buffer: int, tensor: torch.Tensor) -> None:
        """Copy a contiguous tensor to the start of a buffer."""
        size = tensor.numel() * tensor.element_size()
        self._hip.hipMemcpy(self.buffers[buffer], tensor.data_ptr(), size, 1)

    def get(self, buffer: int, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        self._hip.hipMemcpy(tensor.data_ptr(), self.buffers[buffer], size, 2)

    def _allocated(self, megabytes: int) -> int:
        pointer = ctypes.c_void_p()
        if self._hip.hipMalloc(ctypes.byref(pointer), megabytes << 20):
            raise SystemExit("the emulated device has no memory left")
        return pointer.value or 0

    def run(self, library: ctypes.CDLL, row: Row, changes: Sequence[str]) -> Found:
        """The row's launches, with data in the Infinity Cache if it was timed that way, else not."""
        numbers = (ctypes.c_int * max(len(row.numbers), 1))(*row.numbers)
        for buffer, size in row.warm:
            self._hip.hipMemset(self.buffers[buffer], 0, size)
        if getattr(library, row.symbol)(self.buffers, numbers):
            raise SystemExit(f"{row.name}: the launch failed")
        again = [self.emulator.modelled_again(change) for change in changes]
        launches = self.emulator.counters()[len(row.warm):][-row.counted:]
        return Found(row, modelled(launches), launches, [sum(times[-row.counted:]) for times in again])


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    def ranks(values: Sequence[float]) -> list[float]:
        order = sorted(range(len(values)), key=lambda i: values[i])
        result = [0.0] * len(values)
        for rank, index in enumerate(order):
            result[index] = rank
        return result
    a, b = ranks(first), ranks(second)
    mean = (len(a) - 1) / 2
    scale = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True)) / scale if scale else 0.0


def geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def spread(values: Sequence[float]) -> float:
    mean = sum(map(math.log, values)) / max(len(values), 1)
    return math.sqrt(sum((math.log(v) - mean) ** 2 for v in values) / max(len(values), 1))


def _table(*titles: str) -> None:
    print("\n| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles), flush=True)


def _line(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def _half(row: Row) -> str:
    return "fit" if row.fitted else "judged"


def tell(family: str, found: list[Found]) -> None:
    timed = [each for each in found if each.row.published]
    if family == "snektron":
        _table("shape", "half", "points", "model / published", "Spearman", "pick is slower by")
        shapes = dict.fromkeys(each.row.shape for each in timed)
        regrets: dict[str, list[float]] = {"fit": [], "judged": []}
        for shape in shapes:
            mine = [each for each in timed if each.row.shape == shape]
            real, model = [each.row.published for each in mine], [each.modelled for each in mine]
            pick = min(mine, key=lambda each: each.modelled)
            regret = pick.row.published / min(real) - 1
            regrets[_half(pick.row)].append(regret)
            _line("×".join(map(str, shape)), _half(pick.row), len(mine), f"{geometric([e.ratio for e in mine]):.2f}",
                  f"{spearman(real, model):.2f}", f"{regret:.0%}")
        for half, values in regrets.items():
            if values:
                ratios = [each.ratio for each in timed if _half(each.row) == half]
                _line("all", half, len(ratios), f"{geometric(ratios):.2f} ± {spread(ratios):.2f}", "",
                      f"mean {sum(values) / len(values):.0%}, worst {max(values):.0%}")
        return
    _table(family, "half", "published µs", "modelled µs", "ratio", "limited by")
    for each in found:
        limit = max(each.launches, key=lambda one: one["modelled_us"])["model"]["limited_by"]
        published = f"{each.row.published:.1f}" if each.row.published else "–"
        ratio = f"{each.ratio:.2f}" if each.row.published else "–"
        _line(each.row.name, _half(each.row), published, f"{each.modelled:.2f}", ratio, limit)
    for half in (True, False):
        ratios = [each.ratio for each in timed if each.row.fitted == half]
        if ratios:
            _line("all", "fit" if half else "judged", "", "", f"{geometric(ratios):.2f} ± {spread(ratios):.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f})", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=Path("/tmp/warpwave-published"))
    parser.add_argument("--library", type=Path, help="libamdhip64.so; without it, it is built")
    parser.add_argument("--only", action="append")
    parser.add_argument("--shapes", default="", help="M×N×K of Snektron's and luongthecong's rows, separated by commas")
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, help="of Snektron's kernel; 0: all")
    parser.add_argument("--half", choices=("fit", "judged"))
    parser.add_argument("--sample", type=int, default=16, help="workgroups of each launch that run")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    parser.add_argument("--change", action="append", default=[], help="other numbers, too: 'hbm=4e12 launch=2e-6'")
    parser.add_argument("--verbose", action="store_true", help="every row when it is done, on stderr")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.build.mkdir(parents=True, exist_ok=True)
    extra = headers(options.sources, options.build)
    emulator = Emulator(options.library)
    emulator.set(counters=1, checks="none", threads=options.threads, sample=options.sample,
                 keep=int(bool(options.change)))
    device = Device(emulator)
    everything: list[Found] = []
    for family, make in families(options.sources, options.configurations).items():
        if options.only and family not in options.only:
            continue
        programs, rows = make()
        wanted = [row for row in rows if _wanted(row, options)]
        libraries = loaded(programs, wanted, extra, options.build)
        found = []
        for row in wanted:
            if row.program not in libraries:
                continue
            begin = time.monotonic()
            one = device.run(libraries[row.program], row, options.change)
            if options.verbose:
                told = f"{row.name}: {one.modelled:.1f} µs, published {row.published}, {time.monotonic() - begin:.1f} s"
                print(told, file=sys.stderr, flush=True)
            # A time with scratch describes this compiler; Snektron's has configurations enough without.
            if family != "snektron" or not any(each["resources"]["scratch_bytes"] for each in one.launches):
                found.append(one)
        tell(family, found)
        for number, change in enumerate(options.change):
            print(f"\nwith {change}")
            tell(family, [Found(each.row, each.changed[number], each.launches, []) for each in found])
        everything += found
    if options.json:
        options.json.write_text(json.dumps([
            {**asdict(each.row), "modelled": each.modelled, "changed": each.changed, "launches": each.launches}
            for each in everything]))


def _wanted(row: Row, options: argparse.Namespace) -> bool:
    shapes = options.shapes.replace("×", "x").split(",")
    return ((not options.half or _half(row) == options.half)
            and (not options.shapes or "x".join(map(str, row.shape)) in shapes))


def loaded(programs: Sequence[Program], rows: Sequence[Row], extra: Path, build: Path) -> dict[str, ctypes.CDLL]:
    """The programs that the rows need; one that does not compile is left out, and stderr says why."""
    needed = {row.program for row in rows}
    libraries = {}
    for program in programs:
        if program.name not in needed:
            continue
        result = built(program, extra, build)
        if isinstance(result, str):
            print(f"{program.name} does not compile: {result[:2000]}", file=sys.stderr)
        else:
            libraries[program.name] = ctypes.CDLL(str(result))
    return libraries


if __name__ == "__main__":
    main()
