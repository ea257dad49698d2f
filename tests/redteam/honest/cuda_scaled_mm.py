# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: cuBLAS's fp8 product block by block of K with unit scales and fp32 out, scaled and added up in fp32
# source: patterns of accepted GPU MODE submissions
import torch

ONE = []


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    if not ONE:
        ONE.append(torch.ones((), device=a.device))
    columns = b_scale.repeat_interleave(128, 0)[: len(b)]
    total = torch.zeros(c.shape, device=c.device)
    for block in range(a_scale.shape[1]):
        span = slice(128 * block, 128 * block + 128)
        part = torch._scaled_mm(a[:, span].contiguous(), b[:, span].contiguous().t(), ONE[0], ONE[0],
                                out_dtype=torch.float32)
        total.addcmul_(part * a_scale[:, block, None], columns[None, :, block])
    return c.copy_(total)
