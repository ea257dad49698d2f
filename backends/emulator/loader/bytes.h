// SPDX-License-Identifier: MIT
// Bounded reading of bytes that nobody vouches for, and the error that all of the loader raises.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace emu::loader {

static_assert(std::endian::native == std::endian::little, "code objects are little endian, and read as they lie");

// What was wrong with the input and what to do about it, in one sentence.
class LoadError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

std::string hex(uint64_t value);

// A name from a file, fit for a message: no control characters, and an end.
std::string shown(std::string_view name);

// A run of bytes with a name for messages. Every read checks; none trusts an offset or a size found in the bytes.
class Bytes {
public:
    Bytes() = default;
    Bytes(const void* data, uint64_t size, const char* what)
        : data_(static_cast<const uint8_t*>(data)), size_(size), what_(what) {}

    const uint8_t* data() const { return data_; }
    uint64_t size() const { return size_; }
    const char* what() const { return what_; }
    bool holds(uint64_t offset, uint64_t count) const { return offset <= size_ && count <= size_ - offset; }

    template <typename T>
    T at(uint64_t offset) const {
        static_assert(std::is_trivially_copyable_v<T>);
        require(offset, sizeof(T));
        T value;
        std::memcpy(&value, data_ + offset, sizeof(T));
        return value;
    }

    Bytes part(uint64_t offset, uint64_t count, const char* what) const {
        require(offset, count);
        return {data_ + offset, count, what};
    }

    // The text from `offset` to its NUL.
    std::string_view text(uint64_t offset) const;

    // Throws LoadError unless `count` bytes at `offset` are there.
    void require(uint64_t offset, uint64_t count) const {
        if (!holds(offset, count)) beyond(offset, count);
    }

private:
    [[noreturn]] void beyond(uint64_t offset, uint64_t count) const;

    const uint8_t* data_ = nullptr;
    uint64_t size_ = 0;
    const char* what_ = "";
};

// Reads on from a position.
class Cursor {
public:
    explicit Cursor(Bytes bytes) : bytes_(bytes) {}

    uint64_t position() const { return at_; }
    uint64_t left() const { return bytes_.size() - at_; }
    bool done() const { return at_ == bytes_.size(); }

    template <typename T>
    T take() {
        const T value = bytes_.at<T>(at_);
        at_ += sizeof(T);
        return value;
    }

    Bytes take(uint64_t count, const char* what) {
        const Bytes found = bytes_.part(at_, count, what);
        at_ += count;
        return found;
    }

    void skip(uint64_t count) {
        bytes_.require(at_, count);
        at_ += count;
    }

    std::string_view text() {
        const std::string_view found = bytes_.text(at_);
        at_ += found.size() + 1;
        return found;
    }

    // LEB128; bits above 64 are dropped.
    uint64_t unsigned_leb();
    int64_t signed_leb();

private:
    Bytes bytes_;
    uint64_t at_ = 0;
};

}  // namespace emu::loader
