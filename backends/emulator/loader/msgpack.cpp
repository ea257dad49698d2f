// SPDX-License-Identifier: MIT
#include "msgpack.h"

#include <bit>
#include <limits>
#include <string>

namespace emu::loader::msgpack {
namespace {

constexpr int kDeepest = 32;  // metadata need five levels; this keeps hostile nesting off the call stack

[[noreturn]] void damaged(const std::string& what) {
    throw LoadError("metadata of the code object: " + what + "; build it again with a compiler for amdhsa");
}

template <typename T>
T big_endian(Cursor& from) {
    const T value = from.take<T>();
    T turned = 0;
    for (size_t byte = 0; byte < sizeof(T); ++byte) {
        turned = static_cast<T>(turned << 8 % (8 * sizeof(T))) | static_cast<T>((value >> 8 * byte) & 0xff);
    }
    return turned;
}

class Parser {
public:
    explicit Parser(Bytes bytes) : from_(bytes) {}

    Value value(int depth) {
        if (depth > kDeepest) damaged("nested more than " + std::to_string(kDeepest) + " deep");
        const uint8_t tag = from_.take<uint8_t>();
        if (tag < 0x80) return integer(tag);
        if (tag < 0x90) return map(tag & 15, depth);
        if (tag < 0xa0) return array(tag & 15, depth);
        if (tag < 0xc0) return bytes(Value::Kind::kText, tag & 31);
        if (tag >= 0xe0) return integer(static_cast<int8_t>(tag));
        switch (tag) {
            case 0xc0: return {};
            case 0xc2:
            case 0xc3: return boolean(tag == 0xc3);
            case 0xc4: return bytes(Value::Kind::kBinary, from_.take<uint8_t>());
            case 0xc5: return bytes(Value::Kind::kBinary, big_endian<uint16_t>(from_));
            case 0xc6: return bytes(Value::Kind::kBinary, big_endian<uint32_t>(from_));
            case 0xca: return real(std::bit_cast<float>(big_endian<uint32_t>(from_)));
            case 0xcb: return real(std::bit_cast<double>(big_endian<uint64_t>(from_)));
            case 0xcc: return integer(from_.take<uint8_t>());
            case 0xcd: return integer(big_endian<uint16_t>(from_));
            case 0xce: return integer(big_endian<uint32_t>(from_));
            case 0xcf: return integer(static_cast<int64_t>(big_endian<uint64_t>(from_)));
            case 0xd0: return integer(from_.take<int8_t>());
            case 0xd1: return integer(static_cast<int16_t>(big_endian<uint16_t>(from_)));
            case 0xd2: return integer(static_cast<int32_t>(big_endian<uint32_t>(from_)));
            case 0xd3: return integer(static_cast<int64_t>(big_endian<uint64_t>(from_)));
            case 0xd9: return bytes(Value::Kind::kText, from_.take<uint8_t>());
            case 0xda: return bytes(Value::Kind::kText, big_endian<uint16_t>(from_));
            case 0xdb: return bytes(Value::Kind::kText, big_endian<uint32_t>(from_));
            case 0xdc: return array(big_endian<uint16_t>(from_), depth);
            case 0xdd: return array(big_endian<uint32_t>(from_), depth);
            case 0xde: return map(big_endian<uint16_t>(from_), depth);
            case 0xdf: return map(big_endian<uint32_t>(from_), depth);
            default: damaged("no metadata hold the MessagePack tag " + hex(tag));
        }
    }

private:
    static Value integer(int64_t number) {
        Value made;
        made.kind = Value::Kind::kInteger;
        made.integer = number;
        return made;
    }

    static Value boolean(bool set) {
        Value made = integer(set);
        made.kind = Value::Kind::kBoolean;
        return made;
    }

    static Value real(double number) {
        Value made;
        made.kind = Value::Kind::kFloat;
        made.number = number;
        return made;
    }

    Value bytes(Value::Kind kind, uint64_t count) {
        const Bytes found = from_.take(count, "metadata of the code object");
        Value made;
        made.kind = kind;
        made.text = {reinterpret_cast<const char*>(found.data()), static_cast<size_t>(count)};
        return made;
    }

    Value array(uint64_t count, int depth) {
        Value made;
        made.kind = Value::Kind::kArray;
        // Nothing is reserved for `count`: it is a claim, and each item takes at least a byte to prove.
        for (uint64_t index = 0; index < count; ++index) made.items.push_back(value(depth + 1));
        return made;
    }

    Value map(uint64_t count, int depth) {
        Value made;
        made.kind = Value::Kind::kMap;
        for (uint64_t index = 0; index < count; ++index) {
            const Value key = value(depth + 1);
            if (key.kind != Value::Kind::kText) damaged("a map has a key that is no text");
            made.keys.push_back(key.text);
            made.items.push_back(value(depth + 1));
        }
        return made;
    }

    Cursor from_;
};

}  // namespace

const Value* Value::find(std::string_view key) const {
    for (size_t index = 0; index < keys.size(); ++index) {
        if (keys[index] == key) return &items[index];
    }
    return nullptr;
}

uint32_t Value::number_at(std::string_view key, uint32_t otherwise) const {
    const Value* found = find(key);
    if (found == nullptr) return otherwise;
    if (found->kind != Kind::kInteger) damaged(shown(key) + " is no number");
    if (found->integer < 0 || found->integer > std::numeric_limits<uint32_t>::max()) {
        damaged(shown(key) + " is " + std::to_string(found->integer) + ", outside 32 bits");
    }
    return static_cast<uint32_t>(found->integer);
}

std::string_view Value::text_at(std::string_view key, std::string_view otherwise) const {
    const Value* found = find(key);
    if (found == nullptr) return otherwise;
    if (found->kind != Kind::kText) damaged(shown(key) + " is no text");
    return found->text;
}

bool Value::flag_at(std::string_view key) const {
    const Value* found = find(key);
    if (found == nullptr) return false;
    if (found->kind != Kind::kBoolean && found->kind != Kind::kInteger) damaged(shown(key) + " is no flag");
    return found->integer != 0;
}

const std::vector<Value>& Value::array_at(std::string_view key) const {
    static const std::vector<Value> kNone;
    const Value* found = find(key);
    if (found == nullptr) return kNone;
    if (found->kind != Kind::kArray) damaged(shown(key) + " is no list");
    return found->items;
}

Value parse(Bytes bytes) { return Parser(bytes).value(0); }

}  // namespace emu::loader::msgpack
