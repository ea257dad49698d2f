// SPDX-License-Identifier: MIT
// What runs: a launch has workgroups, a workgroup has waves, a wave has registers.
//
// A workgroup's waves run one after the other, each until it waits at a barrier, ends, or has used up its slice; so a
// workgroup needs one CPU thread, and its result does not depend on timing.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../loader/code_object.h"
#include "instruction.h"

namespace emu {

namespace checks {
struct Plan;
struct LaunchShadow;
struct GroupShadow;
struct WaveShadow;
}  // namespace checks
namespace counters {
class Places;
struct Tally;
struct Record;
}  // namespace counters

struct Module;
struct Wave;

struct Dim {
    u32 x = 1, y = 1, z = 1;
    u64 volume() const { return u64{x} * y * z; }
};

/// A kernel's code, translated. `start` is the index of its first instruction.
struct Program {
    std::vector<Op> ops;             // of the module's whole .text: kernels call functions
    std::vector<u32> index_of_word;  // dword of .text -> index in ops, or kNoOp inside an instruction
    std::vector<std::unique_ptr<u32[]>> splats;
    u64 text = 0;  // address of .text's first byte, where it is placed
    u64 bytes = 0;
    u32 accum_offset = 0, vgprs = 0;                   // what operands were resolved for
    mutable std::shared_ptr<const checks::Plan> plan;  // made when a checked launch first needs it
};
constexpr u32 kNoOp = ~u32{0};

/// Codes of scalar operands (ISA guide, table of scalar operands).
enum ScalarCode : u16 {
    kFlatScratch = 102,
    kXnack = 104,
    kVcc = 106,
    kTtmp = 108,
    kM0 = 124,
    kExec = 126,
    kSharedBase = 235,
    kSharedLimit,
    kPrivateBase,
    kPrivateLimit,
    kPopsExitingWaveId,
    kVccz = 251,
    kExecz,
    kScc,
    kLdsDirect,
    kLiteral,
    kVgpr0,
};

/// What registers, LDS and scratch hold before anything is written to them: a NaN, and no address.
constexpr u32 kPoison = 0xffc0dead;

/// Flat addresses whose upper half is one of these mean LDS or scratch. Host addresses never have them.
constexpr u64 kSharedAperture = u64{0x00010000} << 32;
constexpr u64 kPrivateAperture = u64{0x00020000} << 32;

struct Launch {
    const Program* program = nullptr;
    const loader::KernelInfo* kernel = nullptr;
    const Module* module = nullptr;
    Dim grid, block;
    u64 kernarg = 0;  // address of the complete kernarg segment
    u32 kernarg_bytes = 0;
    u32 lds_bytes = 0;                       // static + dynamic
    u32 scratch_bytes = 0;                   // a lane
    u64 dispatch_packet = 0, queue = 0;      // addresses
    u32 start = 0;                           // index of the first instruction
    checks::LaunchShadow* shadow = nullptr;  // null: checks off
    u64 sampled = 0;                         // so many workgroups run, for counters; 0: all
    bool ordered = false;                    // workgroups see each other's work: one thread, in order
    const counters::Places* places{};        // null: counters off
};

struct Workgroup {
    const Launch* launch = nullptr;
    Dim id;  // in the grid
    u64 linear = 0;
    u8* lds = nullptr;  // lds_bytes, then 64 bytes that nothing means
    u32 lds_bytes = 0;
    std::vector<Wave> waves;
    u32 barriers = 0;  // passed so far
    checks::GroupShadow* shadow = nullptr;
    counters::Tally* tally = nullptr;    // of this CPU thread; null: counters off
    counters::Record* record = nullptr;  // likewise
};

struct Wave {
    enum State : u8 { Running, AtBarrier, Ended };

    alignas(64) u32 sgpr[160] = {};     // by operand code: 106/107 VCC, 124 M0, 126/127 EXEC; then what malformed
                                        // code may write: 16 registers from the last one
    alignas(64) u32 lane_mask[kLanes];  // EXEC spread over the lanes; see mask()
    u64 lane_mask_exec = 0;
    u32* vgprs = nullptr;  // physical registers, 64 words each
    u32 vgpr_count = 0;
    bool scc = false;
    State state = Running;
    u32 mode = 0, status = 0, trapsts = 0;
    u32 next = 0;     // index of the next instruction
    u32 current = 0;  // index of the one that runs
    u32 id = 0;       // in the workgroup
    u64 initial_exec = 0;
    u8* scratch = nullptr;  // scratch_bytes for each lane, one lane after the other
    u64 executed = 0;       // instructions
    bool yield = false;     // give the other waves a turn (s_sleep)
    Workgroup* group = nullptr;
    checks::WaveShadow* shadow = nullptr;  // null: checks off

    Wave() { std::memset(lane_mask, 0, sizeof lane_mask); }

    u64 pair(unsigned code) const { return sgpr[code] | u64{sgpr[code + 1]} << 32; }
    void set_pair(unsigned code, u64 value) {
        sgpr[code] = static_cast<u32>(value);
        sgpr[code + 1] = static_cast<u32>(value >> 32);
    }
    u64 exec() const { return pair(kExec); }
    u64 vcc() const { return pair(kVcc); }
    u32 m0() const { return sgpr[kM0]; }
    u32* v(unsigned physical) const { return vgprs + size_t{physical} * kLanes; }

    /// EXEC as 64 words of all ones or zero.
    const u32* mask() {
        const u64 now = exec();
        if (now != lane_mask_exec) {
            spread(now, lane_mask);
            lane_mask_exec = now;
        }
        return lane_mask;
    }

    // MODE (ISA guide, "Mode register"): rounding and denormal control, two bits each for f32 and for f64/f16.
    unsigned round32() const { return mode & 3; }
    unsigned round64() const { return mode >> 2 & 3; }
    bool denormals32() const { return (mode >> 4 & 3) != 0; }
    bool denormals64() const { return (mode >> 6 & 3) != 0; }
    bool dx10_clamp() const { return mode >> 8 & 1; }
    bool ieee() const { return mode >> 9 & 1; }
};

/// What 64 lanes of vector arithmetic work on: sources as arrays of 64 words (two registers for 64-bit types), with all
/// modifiers applied; the result is written where it belongs by the caller. Lanes that EXEC excludes may be computed, too.
struct Lanes {
    u32* d = nullptr;
    const u32* s[3] = {};
    u64 exec = 0;
    u64 mask_in = 0;   // a Mask source (carry, v_cndmask)
    u64 mask_out = 0;  // a Mask destination (carry, comparison); excluded lanes are cleared afterwards
    Wave* wave = nullptr;
    const Op* op = nullptr;

    bool clamp() const { return op->inst.clamp; }  // integers: saturate; floats are clamped by the caller
};

/// Stops the launch. What was wrong, in one sentence; where is added by whoever catches it.
struct KernelFault : std::runtime_error {
    using std::runtime_error::runtime_error;
    int hip_error = 719;  // hipErrorLaunchFailure
};

/// Scalar operands.
u64 scalar64(const Wave&, const Operand&);
u32 scalar32(const Wave&, const Operand&);
void set_scalar32(Wave&, const Operand&, u32);
void set_scalar64(Wave&, const Operand&, u64);

/// A vector source's 64 words as they are in the register, or the scalar splatted into `scratch` (`dwords` * 64 words).
const u32* vector_words(const Wave&, const Operand&, u32* scratch);

/// Writes `value` (dwords * 64 words) to a vector destination in the lanes that EXEC includes.
void write_vector(Wave&, const Operand&, const u32* value, u64 lanes);

/// Runs Op::lanes with sources, modifiers and destination as the operation says.
void run_lanes(Wave&, const Op&);

/// Stops the kernel with `what` and the place.
[[noreturn]] void fault(const Wave&, const Op&, const std::string& what, int hip_error = 719);

}  // namespace emu
