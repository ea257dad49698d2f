// SPDX-License-Identifier: MIT
#include "elf.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace emu::loader {
namespace {

constexpr uint64_t kHeaderSize = 64, kSegmentSize = 56, kSectionSize = 64, kSymbolSize = 24;

struct Table {
    uint64_t offset;
    uint16_t entry, count;
};

Table segment_table(const Bytes& file) { return {file.at<uint64_t>(32), file.at<uint16_t>(54), file.at<uint16_t>(56)}; }

Table section_table(const Bytes& file) { return {file.at<uint64_t>(40), file.at<uint16_t>(58), file.at<uint16_t>(60)}; }

Bytes entry_of(const Bytes& file, const Table& table, uint64_t index, const char* what) {
    // entry and count have 16 bits, so only the sum with the offset could wrap, and `part` looks at both by itself.
    const Bytes all = file.part(table.offset, uint64_t{table.entry} * table.count, what);
    return all.part(index * table.entry, table.entry, what);
}

void check_identity(const Bytes& file) {
    if (!is_elf(file.data(), file.size())) {
        throw LoadError(
            "code object: it does not begin like an ELF file: give the device code that a compiler for "
            "gfx942 made (.hsaco, .co), not a source, a host object or a text");
    }
    file.require(0, kHeaderSize);
    if (file.at<uint8_t>(4) != 2 || file.at<uint8_t>(5) != 1) {
        throw LoadError("code object: it is not a 64 bit little-endian ELF file: compile it for amdgcn-amd-amdhsa");
    }
}

Segment read_segment(const Bytes& from) {
    return {from.at<uint32_t>(0),  from.at<uint32_t>(4),  from.at<uint64_t>(8),
            from.at<uint64_t>(16), from.at<uint64_t>(32), from.at<uint64_t>(40)};
}

Section read_section(const Bytes& from) {
    return {
        {},
        from.at<uint32_t>(4),
        from.at<uint32_t>(40),
        from.at<uint64_t>(8),
        from.at<uint64_t>(16),
        from.at<uint64_t>(24),
        from.at<uint64_t>(32)};
}

}  // namespace

bool is_elf(const void* bytes, uint64_t size) { return size >= 4 && std::memcmp(bytes, "\177ELF", 4) == 0; }

Elf::Elf(Bytes from) : file(from) {
    check_identity(file);
    abi = file.at<uint8_t>(7);
    abi_version = file.at<uint8_t>(8);
    type = file.at<uint16_t>(16);
    machine = file.at<uint16_t>(18);
    flags = file.at<uint32_t>(48);
    const Table programs = segment_table(file), headers = section_table(file);
    if ((programs.count != 0 && programs.entry < kSegmentSize) ||
        (headers.count != 0 && headers.entry < kSectionSize)) {
        throw LoadError(
            "code object: entries of its header tables are too short for a 64 bit ELF file: the file is "
            "damaged; build it again");
    }
    for (uint64_t index = 0; index < programs.count; ++index) {
        segments.push_back(read_segment(entry_of(file, programs, index, "program headers of the code object")));
    }
    if (headers.count == 0) return;
    std::vector<uint32_t> names;
    for (uint64_t index = 0; index < headers.count; ++index) {
        const Bytes entry = entry_of(file, headers, index, "section headers of the code object");
        sections.push_back(read_section(entry));
        names.push_back(entry.at<uint32_t>(0));
    }
    const uint16_t strings = file.at<uint16_t>(62);
    if (strings >= sections.size()) {
        throw LoadError(
            "code object: the table of its section names is section " + std::to_string(strings) + " of " +
            std::to_string(sections.size()) + ": the file is damaged; build it again");
    }
    const Bytes table = contents(sections[strings]);
    for (size_t index = 1; index < sections.size(); ++index) sections[index].name = table.text(names[index]);
}

Bytes Elf::contents(const Section& section) const {
    if (section.type == kSectionNoBits) return {};
    return file.part(section.offset, section.size, "a section of the code object");
}

const Section* Elf::find(std::string_view name) const {
    const auto found = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == name; });
    return found == sections.end() ? nullptr : &*found;
}

std::vector<ElfSymbol> Elf::symbols(const Section& table) const {
    if (table.link >= sections.size()) {
        throw LoadError(
            "code object: the names of its symbols are in section " + std::to_string(table.link) +
            ", which is not there: the file is damaged; build it again");
    }
    const Bytes entries = contents(table), names = contents(sections[table.link]);
    std::vector<ElfSymbol> found;
    for (uint64_t at = 0; entries.holds(at, kSymbolSize); at += kSymbolSize) {
        const uint32_t name = entries.at<uint32_t>(at);
        const uint8_t info = entries.at<uint8_t>(at + 4);
        found.push_back(
            {name == 0 ? std::string_view() : names.text(name), static_cast<uint8_t>(info & 15),
             static_cast<uint8_t>(info >> 4), entries.at<uint16_t>(at + 6), entries.at<uint64_t>(at + 8),
             entries.at<uint64_t>(at + 16)});
    }
    return found;
}

uint64_t elf_extent(const void* bytes, uint64_t limit) {
    const Bytes file(bytes, limit, "code object");
    check_identity(file);
    const Table programs = segment_table(file), headers = section_table(file);
    uint64_t end = kHeaderSize;
    const auto include = [&](uint64_t offset, uint64_t size) {
        file.require(offset, size);
        end = std::max(end, offset + size);
    };
    include(programs.offset, uint64_t{programs.entry} * programs.count);
    include(headers.offset, uint64_t{headers.entry} * headers.count);
    for (uint64_t index = 0; index < programs.count; ++index) {
        const Segment segment = read_segment(entry_of(file, programs, index, "program headers of the code object"));
        include(segment.offset, segment.file_size);
    }
    for (uint64_t index = 0; index < headers.count; ++index) {
        const Section section = read_section(entry_of(file, headers, index, "section headers of the code object"));
        if (section.type != kSectionNoBits) include(section.offset, section.size);
    }
    return end;
}

}  // namespace emu::loader
