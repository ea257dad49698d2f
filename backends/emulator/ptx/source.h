// SPDX-License-Identifier: MIT
// PTX text as data: what a module declares, and the statements of its kernels, not yet decoded.
//
// Source: NVIDIA, Parallel Thread Execution ISA 9.0, sections 4 (syntax), 5 (state spaces and types), 11 (directives).
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "types.h"

namespace emu::ptx {

/// PTX that is malformed or not supported; the message names the line of the PTX text.
struct SourceError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Space : u8 { Shared, Local, Global, Const, Param, Register };

/// A variable or parameter. `bytes` 0: its size is given at the launch (dynamic shared memory).
struct Variable {
    std::string name;
    Space space = Space::Global;
    u32 element = 1;  // bytes
    u32 align = 1;
    u64 bytes = 0;
    u64 offset = 0;           // within its space
    std::vector<u8> initial;  // empty: zeros
    struct Reference {        // an initial value that is an address: of `symbol`, plus what stands in `initial`
        u64 at;
        std::string symbol;
    };
    std::vector<Reference> references;
};

struct Operand {
    enum class Kind : u8 { Register, Number, Variable, Symbol, Special, List, Address, Pair, Sink };
    Kind kind = Kind::Sink;
    u32 reg = 0;                 // Register: its number
    u64 value = 0;               // Number: an integer, or the bits of a float; Variable: its number in the function
    u8 float_bytes = 0;          // Number: 4 or 8 for 0f… and 0d…, 0 for an integer
    i64 offset = 0;              // Address
    bool negated = false;        // !%p
    std::string name;            // Symbol, Special
    std::vector<Operand> parts;  // List; Pair: d and p of d|p; Address: its base
};

struct Statement {
    std::vector<std::string> words;  // of the opcode: {"add", "s32"}
    std::vector<Operand> operands;
    i32 guard = -1;  // register number
    bool guard_negated = false;
    i32 target = -1;  // bra: index of a statement
    u32 file = 0, line = 0;
    u32 ptx_line = 0;
    std::string text;

    bool has(std::string_view word) const;
};

struct Register {
    std::string name;
    u8 bytes = 4;  // 4 (also for shorter ones), 8 or 16; 0: a predicate
};

struct Function {
    std::string name;
    bool entry = false;
    std::vector<Variable> parameters;       // of an entry
    std::vector<Operand> given, results;    // of a device function: a Register or a Variable each
    std::vector<Variable> variables;        // of its own, and what calls hand over
    u32 frame_bytes = 0, frame_align = 16;  // of those that are not shared: `offset` lies in the frame
    std::vector<Register> registers;
    std::vector<Statement> statements;
    std::vector<std::vector<u32>> branch_tables;  // .branchtargets, by the number in an operand's value
    u32 max_threads = 0;                          // .maxntid's product, or 0
    u32 cluster[3] = {0, 0, 0};                   // .reqnctapercluster
    u64 parameter_bytes = 0;
};

/// Generic addresses of functions lie in a window that no memory can be in.
constexpr u64 kCodeWindow = u64{4} << 56;

struct Module {
    std::string version, target;
    std::map<u32, std::string> files;
    std::vector<Variable> variables;                         // .global, .const and .shared of the module
    std::map<std::string, std::string, std::less<>> bodies;  // of functions that are not parsed yet
    std::map<std::string, u32, std::less<>> lines;           // the PTX line where each begins
    std::map<std::string, std::string, std::less<>> aliases;
    std::string text;

    /// Throws SourceError.
    std::unique_ptr<Function> function(std::string_view name) const;
    const Variable* variable(std::string_view name) const;
    /// Of a function that has a body, where no memory is; 0: there is none.
    u64 address(std::string_view function) const;
    /// Device functions whose address something in the module holds.
    std::vector<std::string> taken() const;
};

/// Declarations of the module; functions are parsed when asked for. Throws SourceError.
std::unique_ptr<Module> parse_module(std::string text);

/// Bytes of a type's name without the dot ("f32", "b16", "pred" is 0), or -1.
int type_bytes(std::string_view name);

}  // namespace emu::ptx
