# SPDX-License-Identifier: MIT
"""FlashMLA's dense decode for Hopper, where `flash_mla` is installed.

Its schedule depends on the lengths alone. It is made in every timed call, as a step of a model with new lengths would.
"""

import importlib

library = importlib.import_module("flash_mla")     # by name: this file is called the same


def custom_kernel(data):
    q, kv_cache, block_table, seqlens, causal, scale = data
    schedule, _ = library.get_mla_metadata()
    return library.flash_mla_with_kvcache(
        q, kv_cache, block_table, seqlens, 512, schedule, softmax_scale=scale, causal=bool(causal))
