# SPDX-License-Identifier: MIT
"""How much a contest's reference may take on a CPU: work is counted before each operation, time between them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class TooLarge(Exception):
    """A case that this machine is too slow or too small for; the message ends ``it needs …``."""

    passes = True            # through the folder's own code


class Budget(TorchDispatchMode):      # type: ignore[no-untyped-call]
    """While it is entered, torch operations are refused that go beyond ``seconds``, ``flops`` or ``nbytes``.

    Seconds are those of this thread on a processor: a busy machine leaves out no more cases than an idle one.
    ``flops`` are those of matrix products, convolutions and attention together; ``nbytes`` those of one new tensor.
    """

    def __init__(self, seconds: float, flops: float, nbytes: float):
        from torch.utils.flop_counter import flop_registry  # which imports Triton: most judgements need neither

        super().__init__()               # type: ignore[no-untyped-call]
        self.formulas = flop_registry
        self.seconds, self.flops, self.nbytes = seconds, flops, nbytes
        self.done, self.until = 0.0, time.thread_time() + seconds

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch's question whether to load its compiler for this mode, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if time.thread_time() > self.until:
            raise TooLarge(f"more than {self.seconds:g} s of the reference")
        size = _new_bytes(args, options)
        if size > self.nbytes:
            raise TooLarge(f"a tensor of {size / 2**30:.3g} GiB")
        self.done += _flops(self.formulas, func, args, options)
        if self.done > self.flops:
            raise TooLarge(f"more than {self.flops / 1e9:g} GFLOP in the reference")
        return func(*args, **options)


def _new_bytes(args: tuple[Any, ...], options: Mapping[str, Any]) -> int:
    """Bytes of the tensor that a factory function such as ``randn`` or ``empty`` is asked for; 0 for others."""
    sizes = next((value for value in args if isinstance(value, list | tuple)), None)
    if "dtype" not in options and "device" not in options:
        return 0
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return 0
    dtype = options.get("dtype") or torch.float32
    return math.prod(sizes) * dtype.itemsize


def _flops(
    formulas: Mapping[Any, Any], func: Any, args: tuple[Any, ...], options: Mapping[str, Any],
) -> float:
    formula = formulas.get(getattr(func, "_overloadpacket", None))
    if formula is None:
        return 0.0
    try:
        return float(formula(*args, **options, out_val=None))
    except Exception:                  # noqa: BLE001 - some formulas ask for the output's shape
        tensors = [value for value in args[:2] if isinstance(value, torch.Tensor)]
        if len(tensors) < 2 or tensors[0].dim() < 2:
            return 0.0
        image, weights = tensors         # of a convolution with stride 1
        return 2.0 * image.numel() * weights.numel() / max(image.shape[1], 1)
