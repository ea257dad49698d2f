// SPDX-License-Identifier: MIT
// A gfx942 code object, read: its image, kernels, symbols, relocations and source lines. Nothing here executes.
// Formats and numbers: LLVM's "User Guide for AMDGPU Backend", code objects V4 to V6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bytes.h"
#include "inlined.h"
#include "lines.h"

namespace emu::loader {

// The emulated device, as the HIP runtime names it.
inline constexpr std::string_view kDevice = "gfx942:sramecc+:xnack-";

struct Argument {
    std::string name, kind;  // kind: the metadata's value_kind: by_value, global_buffer, hidden_block_count_x …
    uint32_t offset, size;   // bytes, in the kernarg segment
};

// What the descriptor and the metadata say; where both say it, the descriptor, as it is what the hardware reads.
struct KernelInfo {
    std::string name, symbol;            // mangled; `symbol` is that of the descriptor, "<name>.kd"
    uint64_t descriptor = 0, entry = 0;  // addresses as linked
    uint32_t kernarg_bytes = 0, kernarg_align = 0;
    uint32_t lds_bytes = 0;      // static
    uint32_t scratch_bytes = 0;  // per lane
    uint32_t sgprs = 0;
    uint32_t vgprs = 0, agprs = 0;  // of each file; with AGPRs in use `vgprs` is `accum_offset`
    uint32_t accum_offset = 0;      // where AGPRs begin in the unified file
    uint32_t max_threads = 0, wave_size = 0;
    uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
    uint16_t properties = 0;       // kernel code properties
    uint16_t kernarg_preload = 0;  // bits 6:0 dwords, 15:7 first dword
    bool dynamic_stack = false, uniform_workgroup = false;
    int spilled_vgprs = 0, spilled_sgprs = 0;
    std::vector<Argument> arguments;
};

struct Symbol {
    std::string name;
    uint64_t address, size;  // as linked
    bool function;
};

struct Relocation {
    uint64_t offset = 0;  // in the image
    uint32_t type = 0;    // R_AMDGPU_*
    int64_t addend = 0;
    uint64_t symbol = 0;  // its value: an address as linked, or a plain number if `absolute`
    std::string name;     // of an undefined symbol, else empty
    bool absolute = false, weak = false;
};

struct CodeObject {
    // All loadable segments at their addresses, zero filled; the caller places a copy that is aligned to 4 KB.
    std::vector<uint8_t> image;
    std::string target;  // gfx942:sramecc+:xnack-; a feature that the code leaves open is not named
    std::vector<KernelInfo> kernels;
    std::vector<Symbol> symbols;
    std::vector<Relocation> relocations;
    uint64_t text_begin = 0, text_end = 0;  // machine code, as linked; equal if there is none
    LineTable lines;
    InlineTable inlined;
    int abi_version = 0;  // of the code object: 4, 5 or 6
};

// Reads a linked ELF file; the result keeps nothing of `bytes`. Throws LoadError.
CodeObject load(const void* bytes, size_t size);

// The device address of a symbol that the code object leaves undefined.
using Resolver = std::function<std::optional<uint64_t>(std::string_view name)>;

// Patches a copy of the image that lies at `base`, where it will run. Throws LoadError for a symbol that neither the
// code object nor `resolver` knows.
void relocate(const CodeObject& code, uint8_t* base, const Resolver& resolver);

}  // namespace emu::loader
