# SPDX-License-Identifier: MIT
"""torch eager: torch.nn.functional.gelu."""

import torch.nn.functional as F


def custom_kernel(data):
    x, form = data
    return F.gelu(x, approximate="tanh" if form == "tanh" else "none")
