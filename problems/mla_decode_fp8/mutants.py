# SPDX-License-Identifier: MIT
"""Wrong answers that the check of mla_decode_fp8 must refuse in every case they apply to: those of decoding over a
paged latent cache in general, and those that mistake a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import latent
from latent import LATENT
from utils import Mutant

ROTARY_BYTES = 128


def _scales(function: Callable[[Tensor], Tensor]) -> Callable[[Mapping[str, Any], Any], Any]:
    """Turn a change of the scales, fp32 [num_blocks, 64, 1, 4], into a change of the data."""
    def changed(case: Mapping[str, Any], data: Any) -> Any:
        cache = data[1].view(torch.uint8).clone()
        scales = cache[..., LATENT:-ROTARY_BYTES].contiguous().view(torch.float32)
        cache[..., LATENT:-ROTARY_BYTES] = function(scales).contiguous().view(torch.uint8)
        return (data[0], cache.view(data[1].dtype), *data[2:])
    return changed


def _power_of_two(scales: Tensor) -> Tensor:
    return torch.exp2(torch.ceil(torch.log2(scales)))


MUTANTS: dict[str, Mutant] = {
    **latent.MUTANTS,
    "scales_ignored": Mutant("every scale is 1", transform_data=_scales(torch.ones_like)),
    "scales_inverted": Mutant("columns are divided by their scales", transform_data=_scales(torch.reciprocal)),
    "scales_collapsed": Mutant("one scale per token: that of its first 128 columns",
                               transform_data=_scales(lambda s: s[..., :1].expand_as(s))),
    "scales_reversed": Mutant("the four scales of a token in the opposite order",
                              transform_data=_scales(lambda s: s.flip(-1))),
    "scales_of_next_token": Mutant("every token has the scales of the one before it in its page",
                                   transform_data=_scales(lambda s: s.roll(1, 1))),
    "scales_powers_of_two": Mutant("scales rounded up to powers of two, as 8-bit exponents would hold them",
                                   transform_data=_scales(_power_of_two)),
}
