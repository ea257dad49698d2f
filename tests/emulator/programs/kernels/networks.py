# SPDX-License-Identifier: MIT
"""Layers of networks: convolutions, packed weights, block-scaled formats, backward passes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.programs.program import Expected, Launch, ceil_div, integers, normal, poisoned, program


@triton.jit
def convolution_kernel(x, weight, bias, out, height, width, PIXELS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr):
    """3x3, padded by 1, channels last, as a product: pixels by (taps and channels)."""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    image = tl.program_id(1)
    row, column = pixel // width, pixel % width
    channel = tl.arange(0, IN)
    to = tl.arange(0, OUT)
    total = tl.zeros([PIXELS, OUT], tl.float32)
    for tap in range(9):
        i, j = row + tap // 3 - 1, column + tap % 3 - 1
        inside = (i >= 0) & (i < height) & (j >= 0) & (j < width) & (pixel < height * width)
        at = (image * height + i) * width + j
        v = tl.load(x + at[:, None] * IN + channel[None, :], mask=inside[:, None], other=0.0)
        w = tl.load(weight + (tap * IN + channel)[:, None] * OUT + to[None, :])
        total += tl.dot(v, w)
    total = tl.maximum(total + tl.load(bias + to)[None, :], 0)
    tl.store(out + (image * height * width + pixel)[:, None] * OUT + to[None, :], total.to(out.dtype.element_ty),
             mask=(pixel < height * width)[:, None])


@program("convolution_3x3_relu")
def convolution(generator):
    images, height, width, inputs, outputs = 2, 9, 11, 16, 32
    x = normal(generator, images, height, width, inputs, dtype=torch.float16)
    weight, bias = normal(generator, 3, 3, inputs, outputs, dtype=torch.float16), normal(generator, outputs)
    wanted = torch.nn.functional.conv2d(x.double().permute(0, 3, 1, 2), weight.double().permute(3, 2, 0, 1),
                                        bias.double(), padding=1).relu().permute(0, 2, 3, 1)
    return Launch(convolution_kernel, (2, images),
                  {"x": x, "weight": weight, "bias": bias, "height": height, "width": width,
                   "out": poisoned(images, height, width, outputs, dtype=torch.float16)},
                  {"out": Expected(wanted.half().contiguous(), rtol=2**-9, atol=2e-2)},
                  {"PIXELS": 64, "IN": inputs, "OUT": outputs})


@triton.jit
def packed_weights_kernel(a, words, scales, out, m, n, k, GROUP: tl.constexpr, TILE: tl.constexpr):
    """Weights of 4 bits, eight to a word along k; each group of k has a scale."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, k, GROUP):
        inner = start + tl.arange(0, GROUP)
        v = tl.load(a + i[:, None] * k + inner[None, :], mask=i[:, None] < m, other=0.0)
        word = tl.load(words + (inner // 8)[:, None] * n + j[None, :], mask=j[None, :] < n, other=0)
        nibble = (word >> ((inner % 8) * 4)[:, None]) & 15
        scale = tl.load(scales + start // GROUP * n + j, mask=j < n, other=0.0)
        w = ((nibble - 8).to(tl.float16) * scale[None, :]).to(tl.float16)
        total += tl.dot(v, w)
    tl.store(out + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


@program("matmul_int4_weights")
def packed_weights(generator):
    m, n, k, group = 20, 40, 128, 32
    a, codes = normal(generator, m, k, dtype=torch.float16), integers(generator, 0, 16, k, n, dtype=torch.int64)
    scales = (torch.rand(k // group, n, generator=generator) + 0.5).half()
    shifts = torch.arange(8).mul(4).view(1, 8, 1)
    words = (codes.view(k // 8, 8, n) << shifts).sum(1).to(torch.uint32).view(torch.int32)
    weights = ((codes - 8).half() * scales.repeat_interleave(group, 0)).double()
    return Launch(packed_weights_kernel, (1, 2), {"a": a, "words": words, "scales": scales, "out": poisoned(m, n),
                                                  "m": m, "n": n, "k": k},
                  {"out": Expected((a.double() @ weights).float(), rtol=1e-4, atol=1e-2)}, {"GROUP": group, "TILE": 32})


@triton.jit
def scaled_blocks_kernel(a, scales_a, b, scales_b, out, K: tl.constexpr, TILE: tl.constexpr, FORMAT: tl.constexpr,
                         PACKED: tl.constexpr):
    """The product of block-scaled operands (OCP MX): 32 elements along k share a power of two."""
    i, j = tl.arange(0, TILE), tl.arange(0, TILE)
    code, block = tl.arange(0, K // PACKED), tl.arange(0, K // 32)
    left = tl.load(a + i[:, None] * (K // PACKED) + code[None, :])
    right = tl.load(b + j[None, :] * (K // PACKED) + code[:, None])
    scale_a = tl.load(scales_a + i[:, None] * (K // 32) + block[None, :])
    scale_b = tl.load(scales_b + j[:, None] * (K // 32) + block[None, :])
    total = tl.dot_scaled(left, scale_a, FORMAT, right, scale_b, FORMAT)
    tl.store(out + i[:, None] * TILE + j[None, :], total)


_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


@program("matmul_mxfp4", form="e2m1")
@program("matmul_mxfp8", form="e5m2")
def scaled_blocks(generator, form):
    k, tile, packed = 128, 32, 2 if form == "e2m1" else 1

    def operand():
        scales = integers(generator, 120, 135, tile, k // 32, dtype=torch.uint8)
        if packed == 2:
            codes = integers(generator, 0, 16, tile, k, dtype=torch.uint8)
            stored, values = codes[:, ::2] | codes[:, 1::2] << 4, _E2M1[codes.long()]
        else:
            values = normal(generator, tile, k, dtype=torch.float8_e5m2)
            stored, values = values.view(torch.uint8), values.double()
        return stored.contiguous(), scales, values * torch.pow(2.0, scales.double() - 127).repeat_interleave(32, 1)

    (a, scales_a, left), (b, scales_b, right) = operand(), operand()
    return Launch(scaled_blocks_kernel, (1,), {"a": a, "scales_a": scales_a, "b": b, "scales_b": scales_b,
                                               "out": poisoned(tile, tile)},
                  {"out": Expected((left @ right.T).float(), rtol=1e-5, atol=1e-2)},
                  {"K": k, "TILE": tile, "FORMAT": form, "PACKED": packed})


@triton.jit
def attention_backward_kernel(q, k, v, gradient, logs, deltas, q_gradient, k_gradient, v_gradient, length, scale,
                              DIM: tl.constexpr, TILE: tl.constexpr):
    """One block a tile of keys; it adds its part of the queries' gradient atomically."""
    head = tl.program_id(1)
    d = tl.arange(0, DIM)
    j = tl.program_id(0) * TILE + tl.arange(0, TILE)
    base = head * length * DIM
    key = tl.load(k + base + j[:, None] * DIM + d[None, :], mask=j[:, None] < length, other=0.0)
    value = tl.load(v + base + j[:, None] * DIM + d[None, :], mask=j[:, None] < length, other=0.0)
    dk = tl.zeros([TILE, DIM], tl.float32)
    dv = tl.zeros([TILE, DIM], tl.float32)
    for start in range(0, length, TILE):
        i = start + tl.arange(0, TILE)
        live = i < length
        query = tl.load(q + base + i[:, None] * DIM + d[None, :], mask=live[:, None], other=0.0)
        g = tl.load(gradient + base + i[:, None] * DIM + d[None, :], mask=live[:, None], other=0.0)
        log = tl.load(logs + head * length + i, mask=live, other=float("inf"))
        delta = tl.load(deltas + head * length + i, mask=live, other=0.0)
        p = tl.exp(tl.dot(query, tl.trans(key)) * scale - log[:, None])
        p = tl.where(j[None, :] < length, p, 0.0)
        dv += tl.dot(tl.trans(p).to(tl.float16), g)
        ds = p * (tl.dot(g, tl.trans(value)) - delta[:, None]) * scale
        dk += tl.dot(tl.trans(ds).to(tl.float16), query)
        dq = tl.dot(ds.to(tl.float16), key)
        tl.atomic_add(q_gradient + base + i[:, None] * DIM + d[None, :], dq, mask=live[:, None])
    tl.store(k_gradient + base + j[:, None] * DIM + d[None, :], dk, mask=j[:, None] < length)
    tl.store(v_gradient + base + j[:, None] * DIM + d[None, :], dv, mask=j[:, None] < length)


@program("attention_backward")
def attention_backward(generator):
    heads, length, dim, tile = 2, 50, 32, 32
    q, k, v, gradient = (normal(generator, heads, length, dim, dtype=torch.float16) for _ in range(4))
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    scale = dim ** -0.5
    scores = exact[0] @ exact[1].mT * scale
    output = scores.softmax(-1) @ exact[2]
    output.backward(gradient.double())
    deltas = (output.detach() * gradient.double()).sum(-1).float()
    names = ("q_gradient", "k_gradient", "v_gradient")
    return Launch(attention_backward_kernel, (ceil_div(length, tile), heads),
                  {"q": q, "k": k, "v": v, "gradient": gradient, "logs": scores.detach().logsumexp(-1).float(),
                   "deltas": deltas, "q_gradient": torch.zeros(heads, length, dim),
                   "k_gradient": poisoned(heads, length, dim), "v_gradient": poisoned(heads, length, dim),
                   "length": length, "scale": scale},
                  {name: Expected(x.grad.float(), rtol=2**-8, atol=2**-7)
                   for name, x in zip(names, exact, strict=True)},
                  {"DIM": dim, "TILE": tile})


@triton.jit
def norm_backward_kernel(x, weight, gradient, out, weight_gradient, rows, columns, epsilon, BLOCK: tl.constexpr):
    """RMS norm backwards, a persistent block over rows; the weight's gradient is summed over blocks atomically."""
    at = tl.arange(0, BLOCK)
    live = at < columns
    w = tl.load(weight + at, mask=live, other=0.0)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        v = tl.load(x + row * columns + at, mask=live, other=0.0)
        g = tl.load(gradient + row * columns + at, mask=live, other=0.0)
        inverse = tl.rsqrt(tl.sum(v * v, 0) / columns + epsilon)
        along = tl.sum(v * g * w, 0) / columns
        tl.store(out + row * columns + at, (g * w - v * inverse * inverse * along) * inverse, mask=live)
        total += g * v * inverse
    tl.atomic_add(weight_gradient + at, total, mask=live)


@program("rmsnorm_backward_persistent")
def norm_backward(generator):
    rows, columns, epsilon = 11, 300, 1e-5
    x, weight, gradient = normal(generator, rows, columns), normal(generator, columns), normal(generator, rows, columns)
    exact, factor = x.double().requires_grad_(), weight.double().requires_grad_()
    (exact * (exact.square().mean(1, keepdim=True) + epsilon).rsqrt() * factor).backward(gradient.double())
    return Launch(norm_backward_kernel, (3,),
                  {"x": x, "weight": weight, "gradient": gradient, "out": poisoned(rows, columns),
                   "weight_gradient": torch.zeros(columns), "rows": rows, "columns": columns, "epsilon": epsilon},
                  {"out": Expected(exact.grad.float(), rtol=1e-4, atol=1e-5),
                   "weight_gradient": Expected(factor.grad.float(), rtol=1e-4, atol=1e-5)}, {"BLOCK": 512})
