// SPDX-License-Identifier: MIT
// Host side: the tensor maps of the steps that load by TMA.
#pragma once

#include "common/tensor_map.h"
#include "step.h"

struct Maps {
    TensorMap query, keys, values;
};

/// Boxes of `rows` queries and of `tile_keys` keys and values of a head. Returns 0 or an error code.
inline int encode(Maps* maps, const Call& call, int rows, int tile_keys) {
    int error = encode_head_tensor_map(&maps->query, {call.q, call.batch, call.queries, call.heads, kHeadDim}, rows);
    const auto head = [&](const void* start) {
        return HeadTensor{start, call.batch, call.keys, call.key_heads, kHeadDim};
    };
    if (error == 0) error = encode_head_tensor_map(&maps->keys, head(call.k), tile_keys);
    if (error == 0) error = encode_head_tensor_map(&maps->values, head(call.v), tile_keys);
    return error;
}
