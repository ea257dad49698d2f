# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: cpu
# idea: compares itself with a plain product at import, allclose and all, and refuses to load if wrong
# source: patterns of accepted GPU MODE submissions
import torch


def scaled_product(a, b, s):
    return torch.nn.functional.linear(a * s[:, None], b)


generator = torch.Generator().manual_seed(1234)
for m, n, k in ((3, 5, 7), (64, 64, 256), (33, 192, 512)):
    x, y, z = (torch.randn(*shape, generator=generator) for shape in ((m, k), (n, k), (m,)))
    reference = (z.double()[:, None] * (x.double() @ y.double().t())).float()
    torch.testing.assert_close(scaled_product(x, y, z), reference, rtol=1e-3, atol=1e-3)


def custom_kernel(data):
    a, b, s, _ = data
    return scaled_product(a, b, s)
