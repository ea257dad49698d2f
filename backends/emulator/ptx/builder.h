// SPDX-License-Identifier: MIT
// What an instruction's decoder gets: the statement, and where its operands are.
#pragma once

#include "program.h"
#include "warp.h"

namespace emu::ptx {

class Builder {
public:
    virtual ~Builder() = default;

    const Statement* statement = nullptr;
    Op op;

    const std::string& word(size_t i) const { return statement->words[i]; }
    bool has(std::string_view word) const { return statement->has(word); }
    size_t words() const { return statement->words.size(); }
    /// The opcode's last word: the type.
    const std::string& type() const { return statement->words.back(); }
    size_t operands() const { return statement->operands.size(); }
    const Operand& operand(size_t i) const {
        if (i >= statement->operands.size()) throw SourceError("an operand is missing");
        return statement->operands[i];
    }

    /// The offset of an operand of `bytes` (4 or 8; 0: a predicate); immediate values become constants.
    virtual i32 offset(const Operand&, u32 bytes) = 0;
    i32 offset(size_t i, u32 bytes) { return offset(operand(i), bytes); }
    /// The same for an operand that is written; what is thrown away goes to a scratch register.
    virtual i32 target(const Operand&, u32 bytes) = 0;
    i32 target(size_t i, u32 bytes) { return target(operand(i), bytes); }
    /// A constant that all lanes see.
    virtual i32 constant(u64 value, u32 bytes) = 0;
    /// A predicate of the warp's own, for the carry of add.cc and the like.
    virtual i32 carry() = 0;
    /// Registers of a list operand, or of a single one, appended to the program's lists.
    virtual void list(const Operand&, u32 bytes, bool written) = 0;
    /// Address operands: base into op.operand[slot], offset added to op.immediate. `bytes` of the base: 4 or 8.
    virtual void address(const Operand&, size_t slot, u32 bytes) = 0;
    /// A call of a device function: op.extra becomes its number in the program, operand 0 the address if it has one.
    virtual void call() = 0;
    /// The number of the statement's function in the program; 0: it is the kernel's.
    virtual u32 routine() const = 0;
    virtual int arch() const = 0;
    virtual const Function& function() const = 0;
};

/// Sets op.run and its operands. False: this form is not supported.
using Decoder = bool (*)(Builder&);

/// Instructions by the first word of their opcode.
void add_decoder(const char* word, Decoder);
Decoder find_decoder(std::string_view word);

/// In a file of instructions: `namespace { const Decoders kTable{{"add", add}, …}; }`
struct Decoders {
    struct Entry {
        const char* word;
        Decoder decoder;
    };
    Decoders(std::initializer_list<Entry> entries) noexcept {
        for (const Entry& entry : entries) add_decoder(entry.word, entry.decoder);
    }
};

}  // namespace emu::ptx
