// SPDX-License-Identifier: MIT
// A kernel, decoded: what the interpreter executes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "source.h"

namespace emu::ptx {

struct Warp;
struct Op;

/// What a warp does after an instruction.
enum class Flow : u8 {
    Next,
    Jump,    // the lanes of the mask go to the target
    Again,   // the instruction waits: others may run, then it is executed once more
    Retry,   // it is done, with a result that says "not yet": others may run, then the warp goes on behind it
    Spread,  // the lanes of the mask have gone to targets of their own
    Exit,    // the lanes of the mask end
};

using Handler = Flow (*)(Warp&, const Op&);

/// Operands are byte offsets into a warp's registers; negative ones, -1 - offset, into the program's constants.
struct Op {
    static constexpr i32 kAllMembers = INT32_MIN;
    Handler run = nullptr;
    i32 operand[5] = {0, 0, 0, 0, 0};
    i32 guard = -1;
    bool guard_negated = false;
    bool together = false;      // lanes execute it at once: those of `members`, or all of the warp that have not ended
    bool lasting = false;       // it stores or multiplies: a loop with one is more than a wait
    i32 members = kAllMembers;  // a register with their mask
    i32 watched = -1;           // in Program::touched: it touches registers that a wgmma works on
    u16 count = 0;              // registers in `list`
    i32 target = -1;
    u32 list = 0;  // where its registers begin in Program::lists
    i64 immediate = 0;
    u32 extra = 0;
    u32 statement = 0;
};

/// Special registers that a warp gets at its start.
enum class Special : u8 {
    TidX,
    TidY,
    TidZ,
    NtidX,
    NtidY,
    NtidZ,
    CtaidX,
    CtaidY,
    CtaidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    LaneId,
    WarpId,
    NwarpId,
    LanemaskEq,
    LanemaskLt,
    LanemaskLe,
    LanemaskGt,
    LanemaskGe,
    ClusteridX,
    ClusteridY,
    ClusteridZ,
    NclusteridX,
    NclusteridY,
    NclusteridZ,
    ClusterCtaidX,
    ClusterCtaidY,
    ClusterCtaidZ,
    ClusterNctaidX,
    ClusterNctaidY,
    ClusterNctaidZ,
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    SmId,
    NsmId,
    GridId,
    DynamicSmemSize,
    TotalSmemSize,
};

/// What a call hands over or gets back: a register, or a variable of the function's frame in local memory.
struct Place {
    enum class Where : u8 { Register, Frame, Number } where;
    i32 at;     // as operands are; or the offset in the frame
    u32 bytes;  // Number: as many as are asked for
};

/// A function of a program: the kernel, or one of the device's.
struct Routine {
    std::string name;
    u64 address = 0;
    bool optional = false;   // only reached through a pointer, so that it may be refused:
    std::string refusal;     // it cannot be called, since …
    u32 begin = 0, end = 0;  // its operations
    u32 frame_bytes = 0, frame_align = 16;
    std::vector<Place> given, results;
    struct Slot {
        i32 offset;
        u8 bytes;
    };
    std::vector<Slot> slots;  // its registers
    struct Address {          // a register with the address of a variable
        i32 offset;
        u8 bytes;
        u32 variable;  // in the frame
    };
    std::vector<Address> addresses;
};

struct Call {
    u32 at = 0;  // its operation
    u32 caller = 0;
    i32 callee = -1;     // -1: that of the address in the operation's first operand
    bool keeps = false;  // it may come to the caller once more, so that the caller's registers are to be kept
    std::vector<Place> given, results;
};

/// What is wrong with a call of a function; "": nothing.
std::string unlike(const Call&, const Routine&);

struct Program {
    std::string name;
    std::unique_ptr<Function> function;
    std::vector<Op> ops;
    std::vector<i32> lists;
    struct alignas(64) Line {
        u8 bytes[64];
    };
    std::vector<Line> constants;
    struct Start {
        Special special;
        i32 offset;
    };
    std::vector<Start> specials;
    u32 register_bytes = 0;
    u32 static_shared_bytes = 0, shared_align = 16;
    u32 local_bytes = 0;            // of the kernel's own variables
    std::vector<Routine> routines;  // the kernel is the first one
    std::vector<Call> calls;        // by Op::extra
    bool allocates = false;         // it calls malloc or free
    int arch = 0;                   // 89, 90
    // For the check of registers in flight: see checks/registers.cpp.
    struct Touched {
        enum class What : u8 { Product, Fence, Copy, Other } what = What::Other;
        u16 reads = 0, writes = 0;
        u32 begin = 0;  // in touched_registers: those read, then those written
    };
    u32 watched = 0;  // registers
    std::vector<Touched> touched;
    std::vector<u32> touched_registers;
    std::map<u32, std::string> files;

    /// "kernel f, file.cu:12: add.s32 %r1, %r2, %r3;"
    std::string place(const Op&) const;
};

/// Where the variables of a module lie: constants and globals of the device, by name; 0: there is none.
struct Addresses {
    virtual ~Addresses() = default;
    virtual u64 of(const std::string& symbol) const = 0;
};

/// Throws SourceError: an instruction or feature is not supported, with its text.
std::unique_ptr<Program> decode(const Module&, std::string_view name, const Addresses&);

}  // namespace emu::ptx
