# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: chooses between routines at the first call of a shape with CUDA events of its own
# source: patterns of accepted GPU MODE submissions
import torch

CHOSEN = {}


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def transposed(a, b, a_scale, b_scale):
    left = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (left @ dequantised(a, a_scale).t()).t().bfloat16()


def milliseconds(routine, inputs):
    routine(*inputs)
    begin, end = (torch.cuda.Event(enable_timing=True) for _which in range(2))
    begin.record()
    for _repeat in range(3):
        routine(*inputs)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def custom_kernel(data):
    inputs, c = data[:4], data[4]
    key = (*c.shape, inputs[0].shape[1])
    if key not in CHOSEN:
        CHOSEN[key] = min((product, transposed), key=lambda routine: milliseconds(routine, inputs))
    return c.copy_(CHOSEN[key](*inputs))
