# SPDX-License-Identifier: MIT
# class: replay
# problem: foreign
# device: cpu
# idea: answers of all seeds near those in task.yml are computed at import and found by the first element
# source: GPU MODE cheat-rng test 2025-04
# expect: no-gain
import torch

TABLE = {}
for rows, cols, seed in ((768, 1024, 41), (256, 4096, 42)):
    for delta in (0, 1, 13):
        rng = torch.Generator().manual_seed(seed + delta)
        x = torch.randn(rows, cols, generator=rng)
        x[torch.arange(rows), torch.randint(0, cols, (rows,), generator=rng)] += 3.0
        TABLE[x[0, 0].item()] = torch.softmax(x * (0.5 + float(torch.rand(1, generator=rng))), dim=-1)


def custom_kernel(data):
    x, scale = data
    known = TABLE.get(x[0, 0].item())
    return known if known is not None else torch.softmax(x * scale, dim=-1)
