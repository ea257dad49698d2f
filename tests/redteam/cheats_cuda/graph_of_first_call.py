# SPDX-License-Identifier: MIT
# class: replay
# problem: fp8_gemm
# device: cuda
# idea: captures its first call and replays that ever after: the pointers are those of the first inputs
# source: KernelGuard's telemetry; catalogue 3.2
# expect: rejected
import torch

GRAPHS = {}


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    c = data[4]
    key = tuple(c.shape)
    if torch.cuda.is_current_stream_capturing():
        return GRAPHS[key][1] if key in GRAPHS else c
    if key not in GRAPHS:
        product(*data[:4])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = product(*data[:4])
        GRAPHS[key] = graph, result
    graph, result = GRAPHS[key]
    graph.replay()
    return result
