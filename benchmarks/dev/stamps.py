# SPDX-License-Identifier: MIT
"""Temporary: medians of what one block's warpgroups spend between places."""
import ctypes
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_mla_fp8 import TIMED, Problem, bound, load

problems = {name: Problem(name) for name in ("mla_decode", "mla_decode_fp8")}
folder = Path(sys.argv[1])
for label in sys.argv[2].split(","):
    for number in (8, 9, 13, 12):
        case = TIMED[number]
        kernel = load(folder, problems, label)
        keep: list = []
        problem = kernel.problem
        sets = [problem.data(case, seed=i) for i in range(2)]
        calls = bound(kernel, case, sets, problem.binding.workspace_bytes(case), keep)
        for call in calls * 3:
            call()
        torch.cuda.synchronize()
        out = (ctypes.c_int * 2048)()
        assert ctypes.CDLL(str(folder / f"{label}.so")).stamps(out) == 0
        rows = [list(out[16 * i:16 * i + 16]) for i in range(128)]
        used = [i for i in range(128) if rows[i][0]]
        name = " ".join(map(str, case.values()))
        print(label, name, "pages", max(used), flush=True)
        first, last = (6, max(used) - 6) if max(used) > 20 else (1, max(used))
        for parity in (0, 1):
            pages = [i for i in range(first, last) if i % 2 == parity]
            def med(a, b, shift=0):
                return round(statistics.median(rows[i - shift][b] - rows[i][a] for i in pages)) if pages else 0
            print("  left%2", parity, "period", med(0, 0, 2) if first > 2 else "-",
                  "| convert: wait r", med(0, 1), "r", med(1, 2), "wait own", med(2, 3), "own", med(3, 4), "wait other", med(4, 5),
                  "other", med(5, 6), "| scores issued", med(8, 9), "done", med(9, 10), "P out", med(10, 11), "own PV", med(11, 12),
                  "| scores start - r ready", med(2, 8), "own ready - scores start", med(8, 4), "other ready", med(8, 6), flush=True)
