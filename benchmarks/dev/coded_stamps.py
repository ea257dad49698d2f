# SPDX-License-Identifier: MIT
"""When the blocks of mla_decode_fp8 with 16 rows get where: temporary.

    python benchmarks/dev/coded_stamps.py FOLDER LABEL,... [cases]
"""
import ctypes
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_mla_fp8 import TIMED, Problem, bound, load
from graphs import capture

NAMES = {0: "entry", 1: "waited", 2: "planned", 10: "copies", 3: "page0 asked", 4: "queries", 5: "first page", 11: "last asked",
         6: "last page", 7: "pages done", 8: "part", 12: "met", 9: "end"}
problems = {name: Problem(name) for name in ("mla_decode", "mla_decode_fp8")}
folder = Path(sys.argv[1])
for number in map(int, sys.argv[3].split(",")):
    case = TIMED[number]
    problem = problems["mla_decode_fp8"]
    sets = [problem.data(case, seed=i) for i in range(2)]
    for label in sys.argv[2].split(","):
        kernel = load(folder, problems, label)
        keep: list = []
        graph = capture(bound(kernel, case, sets, problem.binding.workspace_bytes(case), keep) * 4)
        graph.replay()
        torch.cuda.synchronize()
        out = (ctypes.c_uint * (160 * 16))()
        assert ctypes.CDLL(str(folder / f"{label}.so")).stamps(out) == 0
        rows = [list(out[16 * i:16 * i + 16]) for i in range(160)]
        rows = [row for row in rows if row[6]]
        start = min(row[1] for row in rows)
        print(label, *case.values(), len(rows), "blocks; ns from the first one's wait: least median most", flush=True)
        for place, name in NAMES.items():
            values = sorted(row[place] - start if abs(row[place] - start) < 1 << 30 else 0 for row in rows if row[place])
            if values:
                print(f"   {name:12} {values[0]:7} {values[len(values) // 10]:7} {values[len(values) // 2]:7} "
                      f"{values[len(values) * 9 // 10]:7} {values[-1]:7}", flush=True)
        done = sorted((row[7] - start, row[13]) for row in rows)
        print("   pages done, ns/100 at SM:", " ".join(f"{t // 100}@{sm}" for t, sm in done), flush=True)
