// SPDX-License-Identifier: MIT
#include "fatbin.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

namespace emu::cuda {
namespace {

constexpr uint32_t kWrapper = 0x466243b1, kMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1;
constexpr uint64_t kCompressed = 0x2000, kZstd = 0x8000;

struct Wrapper {
    uint32_t magic, version;
    const uint8_t* data;
    void* file;
};

template <class T>
T read(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

/// By the system's libzstd, which is loaded for it.
bool unpacked(const uint8_t* data, size_t size, size_t full, std::string& text) {
    using Decompress = size_t (*)(void*, size_t, const void*, size_t);
    void* library = nullptr;
    for (const char* name : {"libzstd.so.1", "libzstd.so"})
        if (!library) library = dlopen(name, RTLD_NOW);
    const auto decompress = library ? reinterpret_cast<Decompress>(dlsym(library, "ZSTD_decompress")) : nullptr;
    if (!decompress) return false;
    text.resize(full);
    return decompress(text.data(), full, data, size) == full;
}

}  // namespace

std::vector<Image> images(const void* fat_binary) {
    std::vector<Image> found;
    const auto& wrapper = *static_cast<const Wrapper*>(fat_binary);
    if (wrapper.magic != kWrapper || read<uint32_t>(wrapper.data) != kMagic) return found;
    const uint8_t* at = wrapper.data + read<uint16_t>(wrapper.data + 6);
    const uint8_t* const end = at + read<uint64_t>(wrapper.data + 8);
    while (at + 64 <= end) {
        const auto header = read<uint32_t>(at + 4);
        const auto size = read<uint64_t>(at + 8), flags = read<uint64_t>(at + 40), full = read<uint64_t>(at + 56);
        const auto packed = read<uint32_t>(at + 16);
        Image image;
        image.ptx = read<uint16_t>(at) == kPtx;
        image.arch = static_cast<int>(read<uint32_t>(at + 28));
        if (image.ptx) {
            const uint8_t* const data = at + header;
            if (flags & kZstd) {
                if (!unpacked(data, packed ? packed : size, full, image.text))
                    image.problem =
                        "its PTX is compressed, and there is no libzstd here: build with nvcc --no-compress, or "
                        "install libzstd (Debian: libzstd1)";
            } else if (flags & kCompressed) {
                image.problem = "its PTX is compressed in an old form: build with nvcc --no-compress";
            } else {
                image.text.assign(reinterpret_cast<const char*>(data), size);
            }
            image.text.resize(std::strlen(image.text.c_str()));  // it ends with zeros, packed or not
        }
        found.push_back(std::move(image));
        at += header + size;
    }
    return found;
}

}  // namespace emu::cuda
