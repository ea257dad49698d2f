// SPDX-License-Identifier: MIT
// The parts of a 64 bit little-endian ELF file that code objects use. Format: the System V ABI, "Object Files".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bytes.h"

namespace emu::loader {

constexpr uint16_t kTypeRelocatable = 1, kTypeShared = 3;
constexpr uint32_t kSegmentLoad = 1, kSegmentNote = 4;
constexpr uint32_t kSegmentExecutable = 1;  // bit of Segment::flags
constexpr uint32_t kSectionSymbols = 2, kSectionRela = 4, kSectionNoBits = 8, kSectionRel = 9;
constexpr uint32_t kSectionDynamicSymbols = 11;
constexpr uint64_t kSectionAllocated = 2, kSectionCompressed = 0x800;  // bits of Section::flags
constexpr uint16_t kUndefined = 0, kReservedSections = 0xff00, kAbsolute = 0xfff1;
constexpr uint8_t kSymbolFunction = 2, kSymbolSection = 3, kSymbolFile = 4, kSymbolKernel = 10;
constexpr uint8_t kBindingWeak = 2;

struct Segment {
    uint32_t type, flags;
    uint64_t offset, address, file_size, memory_size;
};

struct Section {
    std::string_view name;
    uint32_t type, link;
    uint64_t flags, address, offset, size;
};

struct ElfSymbol {
    std::string_view name;
    uint8_t type, binding;
    uint16_t section;
    uint64_t value, size;
};

// Headers of an ELF file, read and checked. Views point into the bytes it was made from.
struct Elf {
    explicit Elf(Bytes file);

    Bytes contents(const Section& section) const;      // empty for .bss and its like
    const Section* find(std::string_view name) const;  // the first of that name, or null
    std::vector<ElfSymbol> symbols(const Section& table) const;

    Bytes file;
    uint8_t abi = 0, abi_version = 0;
    uint16_t type = 0, machine = 0;
    uint32_t flags = 0;
    std::vector<Segment> segments;
    std::vector<Section> sections;
};

bool is_elf(const void* bytes, uint64_t size);

// Bytes from the start of an ELF file to the end of the last thing its headers name; for images that come as a bare
// pointer. Reads no further than `limit`.
uint64_t elf_extent(const void* bytes, uint64_t limit);

}  // namespace emu::loader
