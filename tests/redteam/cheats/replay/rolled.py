# SPDX-License-Identifier: MIT
# class: replay
# problem: foreign
# device: any
# idea: an input that is an old one rolled along the columns has the old answer rolled
# source: own: fake freshness by permuting a base tensor
# expect: no-gain
import torch

KEPT = {}


def custom_kernel(data):
    x, scale = data
    kept = KEPT.get(x.shape)
    if kept is not None:
        where = (kept[0][0] == x[0, 0]).nonzero()
        if len(where) and kept[2] == scale:
            shift = -int(where[0])
            if torch.equal(kept[0][0].roll(shift), x[0]):
                return kept[1].roll(shift, 1)
    y = torch.softmax(x * scale, dim=-1)
    KEPT[x.shape] = x.clone(), y, scale
    return y
