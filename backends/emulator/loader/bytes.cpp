// SPDX-License-Identifier: MIT
#include "bytes.h"

namespace emu::loader {

std::string hex(uint64_t value) {
    char digits[16];
    int count = 0;
    do {
        digits[count++] = "0123456789abcdef"[value & 15];
        value >>= 4;
    } while (value != 0);
    std::string text = "0x";
    while (count > 0) text += digits[--count];
    return text;
}

std::string shown(std::string_view name) {
    constexpr size_t kLongest = 300;
    std::string text(name.substr(0, kLongest));
    for (char& letter : text) {
        if (static_cast<unsigned char>(letter) < 32 || letter == 127) letter = '?';
    }
    return name.size() > kLongest ? text + " …" : text;
}

void Bytes::beyond(uint64_t offset, uint64_t count) const {
    throw LoadError(
        std::string(what_) + ": " + std::to_string(count) + " bytes at offset " + hex(offset) + " are not within its " +
        std::to_string(size_) + " bytes: the file is truncated or damaged; build it again");
}

std::string_view Bytes::text(uint64_t offset) const {
    require(offset, 1);
    const void* end = std::memchr(data_ + offset, 0, size_ - offset);
    if (end == nullptr) {
        throw LoadError(
            std::string(what_) + ": the text at offset " + hex(offset) +
            " never ends: the file is truncated or damaged; build it again");
    }
    const auto* begin = reinterpret_cast<const char*>(data_ + offset);
    return {begin, static_cast<size_t>(static_cast<const char*>(end) - begin)};
}

uint64_t Cursor::unsigned_leb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += shift < 64 ? 7 : 0) {
        const uint8_t byte = take<uint8_t>();
        if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) return value;
    }
}

int64_t Cursor::signed_leb() {
    uint64_t value = 0;
    for (unsigned shift = 0;;) {  // once above 63 it stays there
        const uint8_t byte = take<uint8_t>();
        if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        shift += shift < 64 ? 7 : 0;
        if ((byte & 0x80) != 0) continue;
        if (shift < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << shift;
        return static_cast<int64_t>(value);
    }
}

}  // namespace emu::loader
