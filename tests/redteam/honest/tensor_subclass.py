# SPDX-License-Identifier: MIT
# class: honest
# problem: matmul
# device: any
# idea: uses a tensor subclass inside, with __torch_function__; returns a plain tensor
# source: patterns of accepted GPU MODE submissions
import torch


class Scaled(torch.Tensor):
    """A matrix with a factor per row that waits until the end."""

    rows = None

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        result = super().__torch_function__(function, types, arguments, keywords or {})
        owner = next((x for x in arguments if isinstance(x, Scaled)), None)
        if isinstance(result, Scaled) and owner is not None:
            result.rows = owner.rows
        return result

    def plain(self):
        return self.as_subclass(torch.Tensor) * self.rows[:, None]


def custom_kernel(data):
    a, b, s, _ = data
    left = a.as_subclass(Scaled)
    left.rows = s
    return (left @ b.t()).plain()
