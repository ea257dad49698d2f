# SPDX-License-Identifier: MIT
"""torch eager: the rotation as a product with the matrix in fp32, then amax, division and conversion."""

import torch

BLOCK = 128
MATRICES = {}


def hadamard(size, device):
    """Sylvester's matrix, orthonormal, kept from call to call."""
    if (size, device) not in MATRICES:
        matrix = torch.ones(1, 1, device=device)
        while len(matrix) < size:
            matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
        MATRICES[size, device] = matrix * size**-0.5
    return MATRICES[size, device]


def quantised(x, rotation, scales, largest):
    y = x.float() if rotation is None else x.float() @ rotation
    size = y.abs().amax(-1)
    if scales == "block":
        size = torch.nn.functional.pad(size, (0, 0, 0, -size.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK)).amax(2)
    else:
        size = size.amax(1, keepdim=True) if scales == "head" else size.amax().view(1, 1, 1)
    scale = size.clamp_min(1e-4) / largest
    each = scale if scale.shape[1] == 1 else scale.repeat_interleave(BLOCK, 1)[:, : x.shape[1]]
    fp8 = torch.float8_e4m3fn if largest == 448 else torch.float8_e4m3fnuz
    codes = (y / each.unsqueeze(-1)).clamp(-largest, largest).to(fp8).view(torch.uint8)
    return torch.where(codes == 0x80, 0, codes), scale


def custom_kernel(data):
    x, signs, rotated, scales, largest = data
    rotation = signs[:, None] * hadamard(x.shape[-1], x.device) if rotated else None
    return quantised(x, rotation, scales, largest)
