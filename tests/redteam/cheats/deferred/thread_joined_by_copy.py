# SPDX-License-Identifier: MIT
# class: deferred
# problem: matmul
# device: cpu
# idea: a pool made at import computes while the worker believes the call is over; who copies the result waits for it
# source: own
# expect: no-gain
import concurrent.futures

import torch

POOL = concurrent.futures.ThreadPoolExecutor(1)


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        with torch._C.DisableTorchFunctionSubclass():
            if function.__name__ in ("detach", "copy_"):
                return function(*[x.future.result() if isinstance(x, Later) else x for x in arguments])
            return function(*arguments, **(keywords or {}))


def custom_kernel(data):
    a, b, s, c = data
    shell = torch.empty(c.shape).as_subclass(Later)
    shell.future = POOL.submit(lambda: torch.matmul(a, b.t()) * s[:, None])
    return shell
