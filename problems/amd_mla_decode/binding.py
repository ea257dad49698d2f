# SPDX-License-Identifier: MIT
"""Binds amd_mla_decode's data to ``kernel.h`` and counts the least work of one call.

``case_of``, ``arguments`` and ``returned`` also take the challenge's own objects, so that a packed file runs there: a
config with attributes in place of keys, and a cache module with ``data`` and ``seq_len`` in place of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYMBOL = "amd_mla_decode"
DATA_OUTPUTS: dict[str, int] = {}
FRESH = ("x",)                # every link of the judge's chain redraws these; all outputs depend on them

_MIB = 1 << 20
_HEADS, _LATENT, _WIDTH, _QUERY, _MAPS, _VALUE = 128, 512, 576, 192, 256, 128
_WEIGHTS = {"q_down": "Q_proj_down_weight", "q_up": "Q_proj_up_weight", "kv_down": "KV_proj_down_weight",
            "kv_up": "KV_proj_up_weight", "wo": "wo_weight"}


def PEAK(case: Mapping[str, Any]) -> str:
    """The peak rate that the roofline divides by."""
    return "bf16"


def UPDATED(case: Mapping[str, Any]) -> dict[str, tuple[tuple[slice, ...], str]]:
    """The parts of inputs that a call rewrites: parameter -> (the part, the output whose value it must then have)."""
    return {"kv_cache": ((slice(None), slice(case["prefill"], case["prefill"] + 1)), "kv_row")}


def case_of(data: Any) -> dict[str, Any]:
    """The case of ``data``, except its seed."""
    config, _, kv_cache = data
    if isinstance(config, dict):
        batch, dim, rank, prefill = (config[key] for key in ("batch_size", "dim", "q_lora_rank", "prefill"))
    else:
        batch, dim, rank, prefill = config.batch_size, config.dim, config.q_lora_rank, kv_cache.seq_len
    return {"batchsize": batch, "dim": dim, "dq": rank, "prefill": prefill}


def outputs(case: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Output parameters of kernel.h: name -> (shape, dtype name), in the order ``custom_kernel`` returns them."""
    batch, dim = case["batchsize"], case["dim"]
    return {"y": ((batch, 1, dim), "bfloat16"), "kv_row": ((batch, 1, _WIDTH), "bfloat16")}


def arguments(case: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The other parameters of kernel.h, by name, except workspace, workspace_bytes and queue."""
    config, x, kv_cache = data
    if isinstance(config, dict):
        weights = {name: config[key] for name, key in _WEIGHTS.items()}
    else:
        weights = {name: getattr(config, key) for name, key in _WEIGHTS.items()}
        kv_cache = kv_cache.data
    return {
        **weights, "x": x, "kv_cache": kv_cache, "batch": case["batchsize"], "dim": case["dim"], "q_rank": case["dq"],
        "length": case["prefill"], "max_len": kv_cache.shape[1],
    }


def returned(data: Any, values: Any) -> Any:
    """What ``custom_kernel`` returns of the outputs' ``values``: for the challenge's objects the cache, not its row."""
    if isinstance(data[0], dict):
        return values
    return values[0], data[2].data


def workspace_bytes(case: Mapping[str, Any]) -> int:
    """64 MiB for libraries; bf16: the latent query, the queries, the absorbed queries, the latent outputs, the heads'
    outputs, and the rotary columns of all tokens; page numbers of 4 bytes; partial results of the attention as for
    mla_decode: one piece per thread block of the largest GPU (304 multiprocessors), one more per request.
    """
    batch, heads = case["batchsize"], case["batchsize"] * _HEADS
    stages = 2 * (batch * case["dq"] + heads * (_QUERY + _WIDTH + _LATENT + _VALUE))
    stages += 128 * batch * (case["prefill"] // 64 + 1) * 64
    tables = batch * (8192 // 64 + 2) * 4
    parts = (304 + batch) * _HEADS * (_LATENT + 2) * 4
    return 64 * _MIB + stages + tables + parts + _MIB


def _weights(case: Mapping[str, Any]) -> int:
    """Elements of all weights."""
    dim, rank = case["dim"], case["dq"]
    return rank * dim + _WIDTH * dim + _HEADS * (_QUERY * rank + _MAPS * _LATENT + _VALUE * dim)


def flops(case: Mapping[str, Any]) -> int:
    """In the absorbed form, which has the fewest: every weight once per request, and 2 · (576 + 512) per head and
    token. Rotations and exponentials are not counted.
    """
    return 2 * case["batchsize"] * (_weights(case) + (_WIDTH + _LATENT) * _HEADS * (case["prefill"] + 1))


def bytes_moved(case: Mapping[str, Any]) -> int:
    """Weights, x and y, the cached tokens once (1152 bytes each), the newest one twice: in the cache and by itself."""
    batch, dim = case["batchsize"], case["dim"]
    return 2 * (_weights(case) + 2 * batch * dim) + batch * 2 * _WIDTH * (case["prefill"] + 2)
