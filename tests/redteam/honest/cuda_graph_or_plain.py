# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: the same, but launched plainly where somebody else is capturing
# source: patterns of accepted GPU MODE submissions
import torch

GRAPHS = {}


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def custom_kernel(data):
    *inputs, c = data
    if torch.cuda.is_current_stream_capturing():
        return product(*inputs)
    key = (*c.shape, inputs[0].shape[1])
    if key not in GRAPHS:
        static, graph = [x.clone() for x in inputs], torch.cuda.CUDAGraph()
        product(*static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            result = product(*static)
        GRAPHS[key] = graph, static, result
    graph, static, result = GRAPHS[key]
    for ours, given in zip(static, inputs, strict=True):
        ours.copy_(given)
    graph.replay()
    return result
