// SPDX-License-Identifier: MIT
// Numbers and formulas: LLVM's "User Guide for AMDGPU Backend", "Relocation Records".
#include "relocations.h"

#include <cstring>

namespace emu::loader {
namespace {

enum Type : uint32_t {
    kNone = 0,
    kAbs32Lo = 1,
    kAbs32Hi = 2,
    kAbs64 = 3,
    kRel32 = 4,
    kRel64 = 5,
    kAbs32 = 6,
    kRel32Lo = 10,
    kRel32Hi = 11,
    kRelative64 = 13,
};

constexpr uint64_t kEntrySize = 24;  // Elf64_Rela

uint64_t width(uint32_t type) {
    switch (type) {
        case kNone: return 0;
        case kAbs64:
        case kRel64:
        case kRelative64: return 8;
        case kAbs32Lo:
        case kAbs32Hi:
        case kRel32:
        case kAbs32:
        case kRel32Lo:
        case kRel32Hi: return 4;
        default:
            throw LoadError(
                "code object: relocation type " + std::to_string(type) +
                " is none that a linked file has: link it with ld.lld -shared");
    }
}

Relocation read_one(const Bytes& entries, uint64_t at, const std::vector<ElfSymbol>& symbols, uint64_t image_size) {
    Relocation made;
    made.offset = entries.at<uint64_t>(at);
    made.type = entries.at<uint32_t>(at + 8);
    made.addend = entries.at<int64_t>(at + 16);
    const uint32_t index = entries.at<uint32_t>(at + 12);
    const uint64_t bytes = width(made.type);
    if (made.offset > image_size || bytes > image_size - made.offset) {
        throw LoadError(
            "code object: a relocation at " + hex(made.offset) +
            " is outside what is loaded: the file is damaged; build it again");
    }
    if (index == 0) {  // no symbol: the addend alone
        made.absolute = true;
        return made;
    }
    if (index >= symbols.size()) {
        throw LoadError(
            "code object: a relocation names symbol " + std::to_string(index) + " of " +
            std::to_string(symbols.size()) + ": the file is damaged; build it again");
    }
    const ElfSymbol& symbol = symbols[index];
    made.symbol = symbol.value;
    made.absolute = symbol.section == kAbsolute;
    made.weak = symbol.binding == kBindingWeak;
    if (symbol.section == kUndefined) {
        if (symbol.name.empty()) {
            throw LoadError(
                "code object: a relocation refers to a symbol that has neither a place nor a name: the "
                "file is damaged; build it again");
        }
        made.name = symbol.name;
    }
    return made;
}

uint64_t address_of(const Relocation& relocation, uint64_t base, const Resolver& resolver) {
    if (relocation.name.empty()) return relocation.absolute ? relocation.symbol : base + relocation.symbol;
    if (resolver) {
        if (const auto found = resolver(relocation.name)) return *found;
    }
    if (relocation.weak) return 0;
    throw LoadError(
        "code object: nothing defines its symbol " + shown(relocation.name) +
        ": link the file that does into it (ld.lld -shared --no-undefined names all such)");
}

template <typename T>
void store(uint8_t* to, uint64_t value) {
    const T narrow = static_cast<T>(value);
    std::memcpy(to, &narrow, sizeof(T));
}

}  // namespace

std::vector<Relocation> read_relocations(const Elf& elf, uint64_t image_size) {
    std::vector<Relocation> found;
    for (const Section& section : elf.sections) {
        if ((section.flags & kSectionAllocated) == 0) continue;
        if (section.type == kSectionRel && section.size != 0) {
            throw LoadError(
                "code object: it has relocations without addends, which AMD GPUs do not use: link it with "
                "ld.lld -shared");
        }
        if (section.type != kSectionRela) continue;
        const Bytes entries = elf.contents(section);
        std::vector<ElfSymbol> symbols;
        if (section.link != 0) {
            if (section.link >= elf.sections.size()) {
                throw LoadError(
                    "code object: relocations name a table of symbols that is not there: the file is "
                    "damaged; build it again");
            }
            symbols = elf.symbols(elf.sections[section.link]);
        }
        for (uint64_t at = 0; entries.holds(at, kEntrySize); at += kEntrySize) {
            Relocation relocation = read_one(entries, at, symbols, image_size);
            if (relocation.type != kNone) found.push_back(std::move(relocation));
        }
    }
    return found;
}

void relocate(const CodeObject& code, uint8_t* base, const Resolver& resolver) {
    const uint64_t start = reinterpret_cast<uintptr_t>(base);
    for (const Relocation& relocation : code.relocations) {
        uint8_t* const to = base + relocation.offset;
        const uint64_t place = start + relocation.offset;
        const auto addend = static_cast<uint64_t>(relocation.addend);
        if (relocation.type == kRelative64) {
            store<uint64_t>(to, start + addend);
            continue;
        }
        const uint64_t value = address_of(relocation, start, resolver) + addend;
        switch (relocation.type) {
            case kAbs64: store<uint64_t>(to, value); break;
            case kRel64: store<uint64_t>(to, value - place); break;
            case kAbs32:
            case kAbs32Lo: store<uint32_t>(to, value); break;
            case kAbs32Hi: store<uint32_t>(to, value >> 32); break;
            case kRel32:
            case kRel32Lo: store<uint32_t>(to, value - place); break;
            case kRel32Hi: store<uint32_t>(to, (value - place) >> 32); break;
            default: width(relocation.type);  // says that it knows no such type
        }
    }
}

}  // namespace emu::loader
