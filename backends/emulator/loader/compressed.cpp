// SPDX-License-Identifier: MIT
// Format: clang's "Clang Offload Bundler" page, "Compressed offload bundles", versions 1 to 3.
#include "compressed.h"

#include <dlfcn.h>

#include <string>

namespace emu::loader {
namespace {

constexpr uint64_t kMost = uint64_t{4} << 30;
enum Method : uint16_t { kZlib = 0, kZstd = 1 };

struct Header {
    uint16_t version, method;
    uint64_t begin, compressed, size;  // bytes: where the data begin, how many they are, and decompressed
};

Header read_header(const Bytes& bundle) {
    Header header{bundle.at<uint16_t>(4), bundle.at<uint16_t>(6), 0, 0, 0};
    uint64_t whole = bundle.size();
    if (header.version == 1) {
        header.begin = 20;
        header.size = bundle.at<uint32_t>(8);
    } else if (header.version == 2) {
        header.begin = 24;
        whole = bundle.at<uint32_t>(8);
        header.size = bundle.at<uint32_t>(12);
    } else if (header.version == 3) {
        header.begin = 32;
        whole = bundle.at<uint64_t>(8);
        header.size = bundle.at<uint64_t>(16);
    } else {
        throw LoadError(
            "offload bundle: compressed in version " + std::to_string(header.version) +
            " of the format, where 1 to 3 are known: rebuild with --no-offload-compress");
    }
    if (whole == UINT64_MAX) {
        throw LoadError(
            "offload bundle: it is compressed, and nothing says how long it is: rebuild with --no-offload-compress");
    }
    if (whole < header.begin || header.size > kMost)
        throw LoadError("offload bundle: its header is damaged; build it again");
    header.compressed = whole - header.begin;
    return header;
}

void* function(const char* library, const char* package, const char* name) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void* const found = handle ? dlsym(handle, name) : nullptr;
    if (!found) {
        throw LoadError(
            "offload bundle: it is compressed, and " + std::string(library) + " is not here: install " + package +
            ", or rebuild with --no-offload-compress");
    }
    return found;
}

bool unpack(uint16_t method, std::vector<uint8_t>& to, const uint8_t* from, uint64_t bytes) {
    if (method == kZstd) {
        using Decompress = size_t (*)(void*, size_t, const void*, size_t);
        return reinterpret_cast<Decompress>(function("libzstd.so.1", "libzstd1", "ZSTD_decompress"))(
                   to.data(), to.size(), from, bytes) == to.size();
    }
    using Uncompress = int (*)(uint8_t*, unsigned long*, const uint8_t*, unsigned long);
    unsigned long size = to.size();
    return reinterpret_cast<Uncompress>(function("libz.so.1", "zlib1g", "uncompress"))(to.data(), &size, from, bytes) ==
               0 &&
           size == to.size();
}

}  // namespace

std::vector<uint8_t> decompress(const Bytes& bundle) {
    const Header header = read_header(bundle);
    const Bytes data = bundle.part(header.begin, header.compressed, "offload bundle");
    std::vector<uint8_t> result(header.size);
    if (!unpack(header.method, result, data.data(), data.size())) {
        throw LoadError("offload bundle: its compressed data are damaged; build it again");
    }
    return result;
}

}  // namespace emu::loader
