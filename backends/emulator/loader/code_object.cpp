// SPDX-License-Identifier: MIT
#include "code_object.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <set>

#include "bundle.h"
#include "elf.h"
#include "msgpack.h"
#include "relocations.h"

namespace emu::loader {
namespace {

constexpr uint16_t kMachineAmdgpu = 224;
constexpr uint8_t kAbiHsa = 64;
constexpr uint64_t kMostImage = uint64_t{1} << 30;
constexpr uint32_t kMetadataNote = 32;
constexpr uint64_t kDescriptorSize = 64, kCodeAlignment = 256;
constexpr uint32_t kWaveSize = 64;

struct Processor {
    uint32_t number;
    const char* name;
};

// EF_AMDGPU_MACH of the processors that someone may mistake for ours, to name them.
constexpr Processor kProcessors[] = {
    {0x2c, "gfx900"},  {0x2f, "gfx906"},       {0x30, "gfx908"},         {0x33, "gfx1010"}, {0x36, "gfx1030"},
    {0x3f, "gfx90a"},  {0x40, "gfx940"},       {0x41, "gfx1100"},        {0x46, "gfx1101"}, {0x47, "gfx1102"},
    {0x48, "gfx1200"}, {0x49, "gfx1250"},      {0x4b, "gfx941"},         {0x4c, "gfx942"},  {0x4e, "gfx1201"},
    {0x4f, "gfx950"},  {0x51, "gfx9-generic"}, {0x5f, "gfx9-4-generic"},
};

std::string processor_name(uint32_t flags) {
    for (const Processor& processor : kProcessors) {
        if (processor.number == (flags & 0xff)) return processor.name;
    }
    return "processor " + hex(flags & 0xff);
}

// EF_AMDGPU_FEATURE_*_V4: two bits, 2 off and 3 on; 0 and 1 leave it open.
std::string feature(const char* name, uint32_t bits) {
    if ((bits & 3) < 2) return "";
    return std::string(":") + name + ((bits & 3) == 3 ? "+" : "-");
}

void check_kind(const Elf& elf) {
    if (elf.machine != kMachineAmdgpu) {
        throw LoadError(
            "code object: it is an ELF file for machine " + std::to_string(elf.machine) +
            ", not for AMD GPUs (224): give the device code, which the host library only wraps");
    }
    if (elf.abi != kAbiHsa) {
        throw LoadError(
            "code object: its ABI is " + std::to_string(elf.abi) +
            ", not HSA (64): compile it for the triple amdgcn-amd-amdhsa");
    }
    if (elf.type == kTypeRelocatable) {
        throw LoadError("code object: it is not linked yet: link it with ld.lld -shared");
    }
    if (elf.type != kTypeShared) {
        throw LoadError(
            "code object: ELF type " + std::to_string(elf.type) +
            " is no shared object (3): link it with ld.lld -shared");
    }
    if (elf.abi_version < 2 || elf.abi_version > 4) {
        throw LoadError(
            "code object: its ABI version " + std::to_string(elf.abi_version) +
            " is none of code objects 4 to 6: rebuild with -mcode-object-version=5");
    }
}

std::string target_of(const Elf& elf) {
    const std::string target =
        processor_name(elf.flags) + feature("sramecc", elf.flags >> 10) + feature("xnack", elf.flags >> 8);
    if (!runs_on(target, kDevice)) {
        throw LoadError(
            "code object: it was compiled for " + target + " and cannot run on the emulated " + std::string(kDevice) +
            ": rebuild with --offload-arch=gfx942 (-mcpu=gfx942)");
    }
    return target;
}

std::vector<uint8_t> place(const Elf& elf) {
    uint64_t end = 0;
    for (const Segment& segment : elf.segments) {
        if (segment.type != kSegmentLoad) continue;
        if (segment.file_size > segment.memory_size || segment.address > kMostImage ||
            segment.memory_size > kMostImage - segment.address) {
            throw LoadError(
                "code object: a segment of " + std::to_string(segment.memory_size) + " bytes at " +
                hex(segment.address) +
                " is damaged, or passes the 1 GiB that a code object may take here: "
                "allocate large device arrays with hipMalloc");
        }
        elf.file.require(segment.offset, segment.file_size);
        end = std::max(end, segment.address + segment.memory_size);
    }
    if (end == 0) throw LoadError("code object: it has nothing to load: build it again");
    std::vector<uint8_t> image;
    try {
        image.resize(end);
    } catch (const std::bad_alloc&) {
        throw LoadError("code object: no memory for its image of " + std::to_string(end) + " bytes: free some");
    }
    for (const Segment& segment : elf.segments) {
        if (segment.type != kSegmentLoad || segment.file_size == 0) continue;
        std::memcpy(image.data() + segment.address, elf.file.data() + segment.offset, segment.file_size);
    }
    return image;
}

Bytes metadata(const Elf& elf) {
    for (const Segment& segment : elf.segments) {
        if (segment.type != kSegmentNote) continue;
        Cursor from(elf.file.part(segment.offset, segment.file_size, "notes of the code object"));
        while (from.left() >= 12) {
            const uint32_t owner_size = from.take<uint32_t>(), size = from.take<uint32_t>();
            const uint32_t type = from.take<uint32_t>();
            const Bytes owner = from.take(owner_size, "notes of the code object");
            from.skip(std::min<uint64_t>(-owner_size & 3, from.left()));
            const Bytes content = from.take(size, "metadata of the code object");
            from.skip(std::min<uint64_t>(-size & 3, from.left()));
            if (type == kMetadataNote && owner_size >= 6 && std::memcmp(owner.data(), "AMDGPU", 6) == 0) return content;
        }
    }
    throw LoadError(
        "code object: it has no AMDGPU metadata note: build it again with a compiler for "
        "amdgcn-amd-amdhsa, and do not strip it");
}

void read_descriptor(KernelInfo& kernel, const CodeObject& code) {
    const Bytes image(code.image.data(), code.image.size(), "image of the code object");
    const Bytes from = image.part(kernel.descriptor, kDescriptorSize, "kernel descriptor");
    kernel.lds_bytes = from.at<uint32_t>(0);
    kernel.scratch_bytes = from.at<uint32_t>(4);
    // Hand-written code may leave it out here, or tell less than the metadata, by which the host lays arguments out.
    kernel.kernarg_bytes = std::max(kernel.kernarg_bytes, from.at<uint32_t>(8));
    kernel.entry = kernel.descriptor + from.at<uint64_t>(16);  // a signed distance; unsigned arithmetic does the same
    kernel.rsrc3 = from.at<uint32_t>(44);
    kernel.rsrc1 = from.at<uint32_t>(48);
    kernel.rsrc2 = from.at<uint32_t>(52);
    kernel.properties = from.at<uint16_t>(56);
    kernel.kernarg_preload = from.at<uint16_t>(58);
    kernel.accum_offset = ((kernel.rsrc3 & 0x3f) + 1) * 4;
    if (kernel.entry < code.text_begin || kernel.entry >= code.text_end) {
        throw LoadError(
            "kernel " + shown(kernel.name) + ": it begins at " + hex(kernel.entry) + ", outside the machine code (" +
            hex(code.text_begin) + " to " + hex(code.text_end) + "): the file is damaged; build it again");
    }
    if (kernel.entry % kCodeAlignment != 0 || kernel.descriptor % kDescriptorSize != 0) {
        throw LoadError(
            "kernel " + shown(kernel.name) + ": its code at " + hex(kernel.entry) +
            " must be aligned to 256 bytes and its descriptor at " + hex(kernel.descriptor) +
            " to 64: add .p2align 8 before the one and .p2align 6 before the other");
    }
}

Argument read_argument(const msgpack::Value& from, const KernelInfo& kernel) {
    Argument argument{
        std::string(from.text_at(".name")), std::string(from.text_at(".value_kind")), from.number_at(".offset", 0),
        from.number_at(".size", 0)};
    if (uint64_t{argument.offset} + argument.size > kernel.kernarg_bytes) {
        throw LoadError(
            "kernel " + shown(kernel.name) + ": its argument at " + std::to_string(argument.offset) + " of " +
            std::to_string(argument.size) + " bytes passes the end of its " + std::to_string(kernel.kernarg_bytes) +
            " bytes of arguments: build it again");
    }
    return argument;
}

KernelInfo read_kernel(const msgpack::Value& from, const CodeObject& code) {
    KernelInfo kernel;
    kernel.name = from.text_at(".name");
    kernel.symbol = from.text_at(".symbol");
    if (kernel.name.empty() || kernel.symbol.empty()) {
        throw LoadError("metadata of the code object: a kernel has no name or no symbol: build it again");
    }
    const auto symbol = std::find_if(code.symbols.begin(), code.symbols.end(), [&](const Symbol& candidate) {
        return candidate.name == kernel.symbol;
    });
    if (symbol == code.symbols.end()) {
        throw LoadError(
            "kernel " + shown(kernel.name) + ": its descriptor " + shown(kernel.symbol) +
            " is not among the symbols: do not strip the code object");
    }
    kernel.descriptor = symbol->address;
    kernel.kernarg_bytes = from.number_at(".kernarg_segment_size", 0);
    kernel.kernarg_align = from.number_at(".kernarg_segment_align", 8);
    kernel.max_threads = from.number_at(".max_flat_workgroup_size", 1024);
    kernel.wave_size = from.number_at(".wavefront_size", kWaveSize);
    kernel.sgprs = from.number_at(".sgpr_count", 0);
    kernel.agprs = from.number_at(".agpr_count", 0);
    kernel.spilled_vgprs = static_cast<int>(from.number_at(".vgpr_spill_count", 0));
    kernel.spilled_sgprs = static_cast<int>(from.number_at(".sgpr_spill_count", 0));
    kernel.dynamic_stack = from.flag_at(".uses_dynamic_stack");
    kernel.uniform_workgroup = from.flag_at(".uniform_work_group_size");
    read_descriptor(kernel, code);
    // .vgpr_count is the total of the unified file, with the ordinary ones rounded up to where the others begin.
    kernel.vgprs = kernel.agprs == 0 ? from.number_at(".vgpr_count", 0) : kernel.accum_offset;
    if (kernel.wave_size != kWaveSize) {
        throw LoadError(
            "kernel " + shown(kernel.name) + ": compiled for waves of " + std::to_string(kernel.wave_size) +
            " lanes; gfx942 has 64");
    }
    for (const msgpack::Value& argument : from.array_at(".args")) {
        kernel.arguments.push_back(read_argument(argument, kernel));
    }
    return kernel;
}

// Global symbols first, then what only the full table has (static device variables, local functions).
std::vector<Symbol> read_symbols(const Elf& elf, uint64_t image_size) {
    std::vector<Symbol> symbols;
    std::set<std::pair<std::string_view, uint64_t>> seen;
    for (const uint32_t table : {kSectionDynamicSymbols, kSectionSymbols}) {
        for (const Section& section : elf.sections) {
            if (section.type != table) continue;
            for (const ElfSymbol& symbol : elf.symbols(section)) {
                if (symbol.name.empty() || symbol.section == kUndefined || symbol.section >= kReservedSections ||
                    symbol.type == kSymbolSection || symbol.type == kSymbolFile) {
                    continue;
                }
                if (!seen.insert({symbol.name, symbol.value}).second) continue;
                if (symbol.value > image_size || symbol.size > image_size - symbol.value) {
                    throw LoadError(
                        "code object: its symbol " + shown(symbol.name) + " at " + hex(symbol.value) +
                        " is outside what is loaded: the file is damaged; build it again");
                }
                const bool function = symbol.type == kSymbolFunction || symbol.type == kSymbolKernel;
                symbols.push_back({std::string(symbol.name), symbol.value, symbol.size, function});
            }
        }
    }
    return symbols;
}

void read_lines(const Elf& elf, CodeObject& code) {
    const auto contents = [&](const char* name) {
        const Section* section = elf.find(name);
        return section == nullptr || (section->flags & kSectionCompressed) != 0 ? Bytes() : elf.contents(*section);
    };
    const Bytes lines = contents(".debug_line");
    if (lines.size() == 0) return;
    code.lines = {lines, contents(".debug_line_str"), contents(".debug_str"), code.text_begin, code.text_end};
    code.inlined = {
        {contents(".debug_info"), contents(".debug_abbrev"), contents(".debug_addr"), contents(".debug_ranges"),
         contents(".debug_rnglists")},
        code.lines};
}

}  // namespace

CodeObject load(const void* bytes, size_t size) {
    const Elf elf(Bytes(bytes, size, "code object"));
    check_kind(elf);
    CodeObject code;
    code.abi_version = elf.abi_version + 2;
    code.target = target_of(elf);
    if (elf.sections.empty()) {
        throw LoadError("code object: it has no section headers, so no symbols: do not strip them");
    }
    code.image = place(elf);
    for (const Segment& segment : elf.segments) {
        if (segment.type != kSegmentLoad || (segment.flags & kSegmentExecutable) == 0) continue;
        const bool first = code.text_begin == code.text_end;
        code.text_begin = first ? segment.address : std::min(code.text_begin, segment.address);
        code.text_end = std::max(code.text_end, segment.address + segment.file_size);
    }
    code.symbols = read_symbols(elf, code.image.size());
    const msgpack::Value facts = msgpack::parse(metadata(elf));
    for (const msgpack::Value& kernel : facts.array_at("amdhsa.kernels")) {
        code.kernels.push_back(read_kernel(kernel, code));
    }
    code.relocations = read_relocations(elf, code.image.size());
    read_lines(elf, code);
    return code;
}

}  // namespace emu::loader
