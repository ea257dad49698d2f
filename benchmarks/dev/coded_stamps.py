# SPDX-License-Identifier: MIT
"""When the blocks of mla_decode_fp8 with 16 rows get where: temporary.

    python benchmarks/dev/coded_stamps.py FOLDER LABEL,... cases
"""
import ctypes
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_mla_fp8 import TIMED, Problem, bound, load
from graphs import capture

NAMES = {0: "entry", 1: "waited", 2: "planned", 10: "copies", 3: "page0 asked", 4: "queries", 5: "first page",
         11: "last asked", 6: "last page", 7: "pages done", 8: "part", 12: "met", 9: "end"}
problem = Problem("mla_decode_fp8")
folder = Path(sys.argv[1])
for number in map(int, sys.argv[3].split(",")):
    case = TIMED[number]
    sets = [problem.data(case, seed=i) for i in range(2)]
    for label in sys.argv[2].split(","):
        kernel = load(folder, {"mla_decode_fp8": problem}, label)
        keep: list = []
        calls = bound(kernel, case, sets, problem.binding.workspace_bytes(case), keep) * 8
        graph = capture(calls)
        graph.replay()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        out = (ctypes.c_uint * (2 * 160 * 16))()
        assert ctypes.CDLL(str(folder / f"{label}.so")).stamps(out) == 0
        both = [[list(out[2560 * k + 16 * i:2560 * k + 16 * i + 16]) for i in range(160)] for k in range(2)]
        both = [[row for row in rows if row[6]] for rows in both]
        if (both[1][0][1] - both[0][0][1]) & 0xffffffff > 1 << 31:
            both.reverse()
        first = [min(row[1] for row in rows) for rows in both]
        print(label, *case.values(), len(both[1]), f"blocks; {begin.elapsed_time(end) * 1e3 / 32:.1f} us a call, "
              f"{(first[1] - first[0]) / 1e3:.1f} between the last two; ns from the wait: 0 10 50 90 100 %", flush=True)
        for which, start in ((0, first[1]), (1, first[1])):
            for place, name in NAMES.items():
                if which == 0 and place not in (0, 6, 7, 9):
                    continue
                values = sorted(row[place] - start for row in both[which] if row[place] and abs(row[place] - start) < 1e6)
                if values:
                    print(f"   {'before: ' if which == 0 else ''}{name:12} {values[0]:7} {values[len(values) // 10]:7} "
                          f"{values[len(values) // 2]:7} {values[len(values) * 9 // 10]:7} {values[-1]:7}", flush=True)
        done = sorted((row[7] - first[1], row[13]) for row in both[1])
        print("   pages done, ns/100 at SM:", " ".join(f"{t // 100}@{sm}" for t, sm in done), flush=True)
