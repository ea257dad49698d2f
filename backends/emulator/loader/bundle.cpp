// SPDX-License-Identifier: MIT
// Formats: clang's "Clang Offload Bundler" page, and the wrapper that clang emits for __hipRegisterFatBinary.
#include "bundle.h"

#include <cstring>
#include <string>

#include "compressed.h"
#include "elf.h"

namespace emu::loader {
namespace {

constexpr std::string_view kBundle = "__CLANG_OFFLOAD_BUNDLE__";
constexpr uint32_t kWrapper = 0x48495046;  // "HIPF" as the number clang writes
constexpr uint64_t kMostEntries = 4096, kLongestName = 4096;

struct Wrapper {
    uint32_t magic, version;
    const void* binary;
    void* unused;
};

// Features that `target` sets: text behind its first colon.
std::string_view features(std::string_view target) {
    const size_t colon = target.find(':');
    return colon == std::string_view::npos ? std::string_view() : target.substr(colon + 1);
}

std::string_view processor(std::string_view target) { return target.substr(0, target.find(':')); }

// '+', '-', or 0 where `list` leaves the feature open.
char setting(std::string_view list, std::string_view feature) {
    while (!list.empty()) {
        const std::string_view item = list.substr(0, list.find(':'));
        if (item.size() == feature.size() + 1 && item.starts_with(feature)) return item.back();
        list.remove_prefix(item.size());
        if (!list.empty()) list.remove_prefix(1);
    }
    return 0;
}

// Processor and features in the name of a bundle's entry, or nothing for host code: "hipv4-amdgcn-amd-amdhsa--gfx942".
std::string_view target_of(std::string_view name) {
    if (!name.starts_with("hip")) return {};
    const size_t at = name.rfind("-gfx");
    return at == std::string_view::npos ? std::string_view() : name.substr(at + 1);
}

bool begins(const Bytes& bytes, std::string_view magic) {
    return bytes.holds(0, magic.size()) && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

std::pair<const uint8_t*, size_t> from_bundle(const Bytes& bundle, std::string_view wanted) {
    Cursor from(bundle);
    from.skip(kBundle.size());
    const uint64_t count = from.take<uint64_t>();
    if (count > kMostEntries) {
        throw LoadError(
            "offload bundle: it claims " + std::to_string(count) + " entries: the file is damaged; build it again");
    }
    std::string others;
    Bytes best;
    size_t best_features = 0;
    for (uint64_t index = 0; index < count; ++index) {
        const uint64_t offset = from.take<uint64_t>(), size = from.take<uint64_t>(), length = from.take<uint64_t>();
        if (length > kLongestName) {
            throw LoadError(
                "offload bundle: an entry's name has " + std::to_string(length) +
                " bytes: the file is damaged; build it again");
        }
        const Bytes text = from.take(length, "offload bundle");
        const std::string_view name(reinterpret_cast<const char*>(text.data()), length);
        const std::string_view target = target_of(name);
        if (target.empty()) continue;
        if (!runs_on(target, wanted)) {
            others.append(others.empty() ? "" : ", ").append(shown(target));
            continue;
        }
        // The one that says most about the device was compiled for it most narrowly; all beat a generic one.
        const size_t said = 1 + features(target).size() + (processor(target) == processor(wanted) ? 1024 : 0);
        if (said > best_features) {
            best = bundle.part(offset, size, "offload bundle");
            best_features = said;
        }
    }
    if (best_features == 0) {
        throw LoadError(
            "offload bundle: no device code in it runs on " + std::string(wanted) + " (it holds " +
            (others.empty() ? "none" : others) + "): rebuild with --offload-arch=" + std::string(processor(wanted)));
    }
    return {best.data(), best.size()};
}

}  // namespace

bool runs_on(std::string_view code, std::string_view device) {
    const std::string_view generic = "gfx9-4-generic";  // what gfx940 to gfx942 and gfx950 share
    const bool covered = processor(code) == generic && processor(device) == "gfx942";
    if (processor(code) != processor(device) && !covered) return false;
    for (const std::string_view feature : {"sramecc", "xnack"}) {
        const char needs = setting(features(code), feature), has = setting(features(device), feature);
        if (needs != 0 && has != 0 && needs != has) return false;
    }
    return true;
}

std::pair<const uint8_t*, size_t> find_code_object(const void* fat, std::string_view target, size_t limit) {
    if (fat == nullptr) {
        throw LoadError(
            "device code: the pointer to it is null: link the program with the device part of its "
            "HIP sources");
    }
    Bytes bytes(fat, limit, "device code");
    if (bytes.holds(0, 4) && bytes.at<uint32_t>(0) == kWrapper) {
        const Wrapper wrapper = bytes.at<Wrapper>(0);
        if (wrapper.version != 1 || wrapper.binary == nullptr) {
            throw LoadError(
                "device code: its wrapper has version " + std::to_string(wrapper.version) +
                (wrapper.binary == nullptr ? " and no content" : "") +
                ", where 1 is known: build the host program with clang 17 to 22 and without -fgpu-rdc");
        }
        bytes = Bytes(wrapper.binary, SIZE_MAX, "device code");  // elsewhere: nothing says how long it is
    }
    if (begins(bytes, kCompressed)) {
        thread_local std::vector<uint8_t> decompressed;
        decompressed = decompress(bytes);
        bytes = Bytes(decompressed.data(), decompressed.size(), "offload bundle");
    }
    if (begins(bytes, kBundle)) return from_bundle(bytes, target);
    if (is_elf(bytes.data(), bytes.size())) {
        return {bytes.data(), static_cast<size_t>(elf_extent(bytes.data(), bytes.size()))};
    }
    throw LoadError(
        "device code: neither an ELF file nor a clang offload bundle: give the .hsaco or .co file, or the "
        "host program that clang made from HIP sources");
}

}  // namespace emu::loader
