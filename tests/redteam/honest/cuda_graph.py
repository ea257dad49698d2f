# SPDX-License-Identifier: MIT
# class: honest
# problem: fp8_gemm
# device: cuda
# idea: a CUDA graph per shape: inputs copied into static memory, replay, result copied out
# source: patterns of accepted GPU MODE submissions
import torch

GRAPHS = {}


def dequantised(x, scale):
    rows, k = x.shape
    return (x.float().view(rows, k // 128, 128) * scale[:, :, None]).view(rows, k)


def product(a, b, a_scale, b_scale):
    right = dequantised(b, b_scale.repeat_interleave(128, 0)[: len(b)])
    return (dequantised(a, a_scale) @ right.t()).bfloat16()


def capture(inputs):
    static = [x.clone() for x in inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        product(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = product(*static)
    return graph, static, result


def custom_kernel(data):
    *inputs, c = data
    key = (*c.shape, inputs[0].shape[1])
    if key not in GRAPHS:
        GRAPHS[key] = capture(inputs)
    graph, static, result = GRAPHS[key]
    for ours, given in zip(static, inputs, strict=True):
        ours.copy_(given)
    graph.replay()
    return c.copy_(result)
