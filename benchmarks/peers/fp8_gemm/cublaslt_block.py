# SPDX-License-Identifier: MIT
"""cuBLASLt's block-scaled product through torch: 1x128 scales of A, 128x128 scales of B, bf16 out.

torch wants B's scales padded to a multiple of 4 along K. Where K/128 is no such multiple the padding copy is inside the
timed call, about 2 µs; everywhere else the scales are used as they are. torch refuses M = 1.
"""

import torch
import torch.nn.functional as F
from torch.nn.functional import ScalingType, scaled_mm


def custom_kernel(data):
    a, b, a_scale, b_scale, _c = data
    missing = -b_scale.shape[1] % 4
    scale = F.pad(b_scale, (0, missing), value=1.0) if missing else b_scale
    return scaled_mm(
        a, b.t(), a_scale, ScalingType.BlockWise1x128, scale.t(), ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )
