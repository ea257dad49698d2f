// SPDX-License-Identifier: MIT
// MessagePack (the published format), as far as code object metadata use it: maps have text as keys.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bytes.h"

namespace emu::loader::msgpack {

// One value. Text and binary point into the bytes that were parsed.
struct Value {
    enum class Kind : uint8_t { kNil, kBoolean, kInteger, kFloat, kText, kBinary, kArray, kMap };

    Kind kind = Kind::kNil;
    int64_t integer = 0;  // also a boolean; unsigned numbers above its range wrap
    double number = 0;
    std::string_view text;               // of text and binary
    std::vector<Value> items;            // of an array or a map
    std::vector<std::string_view> keys;  // of a map, beside `items`

    // The value under a key of a map, or null.
    const Value* find(std::string_view key) const;

    // The same, or `otherwise` if it is absent; LoadError if it is of another kind or does not fit.
    uint32_t number_at(std::string_view key, uint32_t otherwise) const;
    std::string_view text_at(std::string_view key, std::string_view otherwise = {}) const;
    bool flag_at(std::string_view key) const;
    const std::vector<Value>& array_at(std::string_view key) const;  // empty if absent
};

// The one value that `bytes` hold (zero bytes may follow: notes are padded).
Value parse(Bytes bytes);

}  // namespace emu::loader::msgpack
