# SPDX-License-Identifier: MIT
# class: theft
# problem: fp8_gemm
# device: cuda
# idea: takes all free device memory, unwritten, and looks for a finished answer in it
# source: pygpubench exploits; catalogue 3.6
import torch


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    row = product(a[:1], b, a_scale[:1], b_scale)[0]
    free, _total = torch.cuda.mem_get_info()
    for share in (2, 4, 8):
        try:
            pile = torch.empty(free // share // 2, dtype=torch.bfloat16, device=c.device)
        except torch.OutOfMemoryError:
            continue
        for place in (pile[: len(pile) // 128 * 128].view(-1, 128)[:, 0] == row[0]).nonzero().flatten()[:64].tolist():
            found = pile[128 * place : 128 * place + c.numel()]
            if len(found) == c.numel() and torch.equal(found[: len(row)], row):
                return c.copy_(found.view(c.shape))
        del pile
    return c.copy_(product(a, b, a_scale, b_scale))
